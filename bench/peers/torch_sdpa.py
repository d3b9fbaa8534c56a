"""torch_sdpa.py --pagekv PROGRAM [--threads 2] [--rounds 7] [-o JSON]

pagekv's attention beside PyTorch's scaled_dot_product_attention on the CPU: bf16, 32 query heads on
8 KV heads of dim 128; torch's keys and values contiguous, pagekv's in pages of random order. The
two take turns. torch's answer is compared with float64 attention first, pagekv's by `pagekv bench`
itself. Shown are the median times and the median of torch : pagekv with its quartiles.
"""

import argparse
import json
import statistics
import subprocess
import time

import torch
import torch.nn.functional as functional

HEADS, KV_HEADS, DIM = 32, 8, 128
SET_BYTES = 512 << 20
# name, context, queries
CASES = [("decode at 8k", 8192, 1), ("decode at 32k", 32768, 1), ("prefill 512 on 8k", 8192, 512)]


class Torch:
    def __init__(self, context, queries):
        layer_bytes = 2 * 2 * KV_HEADS * context * DIM
        # So many layers in turn that no cache holds them; of a prefill one, which takes long.
        count = 1 if queries > 16 else -(-SET_BYTES // layer_bytes)
        shape = (1, KV_HEADS, context, DIM)
        self.layers = [(torch.randn(shape).bfloat16(), torch.randn(shape).bfloat16())
                       for _ in range(count)]
        self.q = torch.randn(1, HEADS, queries, DIM).bfloat16()
        # Row i of r sees all but the last r - 1 - i tokens.
        self.mask = None
        if queries > 1:
            self.mask = torch.ones(queries, context, dtype=torch.bool).tril(context - queries)

    def attend(self, k, v):
        return functional.scaled_dot_product_attention(self.q, k, v, attn_mask=self.mask,
                                                       enable_gqa=True)

    def error(self):
        """Relative L2 against float64, of the first KV head's queries."""
        k, v = (tensor[:, :1].double() for tensor in self.layers[0])
        group = HEADS // KV_HEADS
        logits = self.q[:, :group].double() @ k.transpose(-1, -2) / DIM ** 0.5
        if self.mask is not None:
            logits = logits.masked_fill(~self.mask, float("-inf"))
        want = logits.softmax(-1) @ v
        got = self.attend(*self.layers[0])[:, :group].double()
        return ((got - want).norm() / want.norm()).item()

    def milliseconds(self):
        start = time.perf_counter()
        for k, v in self.layers:
            self.attend(k, v)
        return 1e3 * (time.perf_counter() - start) / len(self.layers)


def pagekv(program, context, queries, threads, formats):
    output = subprocess.run(
        [program, "bench", "--attn", "--ctx", str(context), "--queries", str(queries), "--kv",
         formats, "-t", str(threads), "-r", "3", "--query-type", "bf16", "-o", "json"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return {row["kv"]: row["ms"] for row in json.loads(output)}


def quartiles(values):
    return statistics.quantiles(values, n=4, method="inclusive")


def measure(arguments, name, context, queries):
    peer = Torch(context, queries)
    error = peer.error()
    if not error < 2e-2:
        raise SystemExit(f"{name}: torch is {error:.1e} from float64")
    peer.milliseconds()
    theirs, ours = [], {}
    for _ in range(arguments.rounds):
        theirs.append(statistics.median(peer.milliseconds() for _ in range(3)))
        for kv, ms in pagekv(arguments.pagekv, context, queries, arguments.threads,
                             arguments.kv).items():
            ours.setdefault(kv, []).append(ms)
    rows = []
    for kv, times in ours.items():
        low, middle, high = quartiles([a / b for a, b in zip(theirs, times)])
        rows.append({"case": name, "kv": kv, "torch_ms": statistics.median(theirs),
                     "pagekv_ms": statistics.median(times), "ratio": middle, "ratio_low": low,
                     "ratio_high": high, "threads": arguments.threads, "torch_error": error})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagekv", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kv", default="bf16,kv8,kv4")
    parser.add_argument("-o", "--output")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    rows = []
    print(f"torch {torch.__version__}, {arguments.threads} threads\n\n"
          "| case | kv | torch ms | pagekv ms | torch : pagekv |\n|---|---|---|---|---|")
    for case in CASES:
        with torch.inference_mode():
            found = measure(arguments, *case)
        for row in found:
            print(f"| {row['case']} | {row['kv']} | {row['torch_ms']:.2f} | "
                  f"{row['pagekv_ms']:.2f} | {row['ratio']:.2f} ({row['ratio_low']:.2f}-"
                  f"{row['ratio_high']:.2f}) |", flush=True)
        rows += found
    if arguments.output:
        with open(arguments.output, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
