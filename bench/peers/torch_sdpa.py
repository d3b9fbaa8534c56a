"""torch_sdpa.py --pagekv PROGRAM [--threads 2] [--rounds 7] [--kv bf16,kv8,kv4] [-o JSON]

pagekv's attention beside PyTorch's scaled_dot_product_attention on the CPU: bf16, 32 query heads on
8 KV heads of dim 128; torch's keys and values contiguous, pagekv's in pages of random order. The
two take turns. torch's answer is compared with float64 attention first, pagekv's by `pagekv bench`
itself. Shown are the median times and the median of torch : pagekv with its quartiles. Exits with
77, "skipped", where torch is missing.
"""

import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as functional
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import turns

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


def measure(arguments, name, context, queries):
    peer = Torch(context, queries)
    error = peer.error()
    if not error < 2e-2:
        raise SystemExit(f"{name}: torch is {error:.1e} from float64")
    peer.milliseconds()
    theirs, ours = [], {}
    for _ in range(arguments.rounds):
        theirs.append(statistics.median(peer.milliseconds() for _ in range(3)))
        for kv, ms in turns.pagekv_attention(arguments, context, queries, arguments.kv).items():
            ours.setdefault(kv, []).append(ms)
    return [{**turns.compare(name, kv, theirs, times), "peer_error": error}
            for kv, times in ours.items()]


def main():
    parser = turns.parser(__doc__, rounds=7)
    parser.add_argument("--kv", default="bf16,kv8,kv4")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    rows = []
    print(f"torch {torch.__version__}, {arguments.threads} threads")
    turns.print_head("torch")
    for case in CASES:
        with torch.inference_mode():
            found = measure(arguments, *case)
        for row in found:
            turns.print_row(row)
        rows += found
    turns.write(arguments, rows)


if __name__ == "__main__":
    main()
