"""llama_attention.py --pagekv PROGRAM [--threads 2] [--rounds 5] [--depth 4096] [-o JSON]

What a long context adds to a token, in pagekv and in llama.cpp (llama-cpp-python): the time to decode
one at a depth less that at depth 0, which is attention. SmolLM2-135M with the same bf16 weights on both
sides; llama.cpp's caches of f16 (without its flash attention and with it) and of q8_0 (which needs it)
beside pagekv's bf16 and kv8. Both must continue a prompt of that depth with the same words (of 8 bits,
which each rounds its own way, the first few), or nothing is timed. The two take turns; shown are the
medians of the added time and of llama.cpp : pagekv with its quartiles. Exits with 77, "skipped", where
llama-cpp-python or the model is missing.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
try:
    import compare_llama_cpp
    import llama_cpp
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import turns

# name, llama.cpp's cache type, whether with its flash attention, pagekv's format, how many tokens must
# be the same
CASES = [
    ("f16", llama_cpp.GGML_TYPE_F16, False, "bf16", 16),
    ("f16, flash attention", llama_cpp.GGML_TYPE_F16, True, "bf16", 16),
    ("q8_0, flash attention", llama_cpp.GGML_TYPE_Q8_0, True, "kv8", 4),
]
FORMATS = list(dict.fromkeys(case[3] for case in CASES))
REPETITIONS = 3


class Llama:
    """Two contexts of llama.cpp: one to be filled up to a depth, an empty one."""

    def __init__(self, path, kind, flash, arguments):
        def context(tokens):
            return llama_cpp.Llama(
                path, n_ctx=tokens, n_batch=512, n_threads=arguments.threads,
                n_threads_batch=arguments.threads, type_k=kind, type_v=kind, flash_attn=flash,
                verbose=False)
        self.tokens = arguments.tokens
        self.model = context(arguments.depth + arguments.tokens)
        self.empty = context(arguments.tokens)
        self.depth = 0

    def fill(self, prompt, count):
        """Computes the prompt; returns the text that follows."""
        self.model.reset()
        self.model.eval(prompt)
        self.depth = len(prompt)
        tokens = []
        for _ in range(count):
            tokens.append(self.model.sample(temp=0.0, repeat_penalty=1.0))
            self.model.eval(tokens[-1:])
        return self.model.detokenize(tokens).decode(errors="ignore")

    def decode_milliseconds(self, context, depth):
        token = context.token_bos()
        context.n_tokens = depth  # what is behind it goes with the next eval()
        start = time.perf_counter()
        for _ in range(self.tokens):
            context.eval([token])
        return 1e3 * (time.perf_counter() - start) / self.tokens

    def added_milliseconds(self):
        deep, empty = (
            statistics.median(self.decode_milliseconds(*at) for _ in range(REPETITIONS))
            for at in ((self.model, self.depth), (self.empty, 0)))
        return deep - empty


def pagekv_text(arguments, prompt, kv):
    answer, _ = compare_llama_cpp.run_pagekv(arguments, prompt, ["--kv", kv])
    return answer["text"]


def pagekv_added_milliseconds(arguments):
    rows = turns.pagekv_bench(
        arguments, "-m", arguments.model, "-p", "0", "-n", str(arguments.tokens), "-d",
        f"0,{arguments.depth}", "--kv", ",".join(FORMATS), "-r", str(REPETITIONS))
    times = {(row["kv"], row["depth"]): 1e3 / row["tokens_per_second"] for row in rows}
    return {kv: times[kv, arguments.depth] - times[kv, 0] for kv in FORMATS}


def check(arguments, name, peer, kv, same):
    prompt, ids = compare_llama_cpp.prompt_of(peer, arguments.depth)
    theirs = peer.fill(ids, min(same, arguments.tokens))
    ours = pagekv_text(arguments, prompt, kv)
    if not ours.startswith(theirs):
        raise SystemExit(f"{name} and {kv} continue differently:\n{theirs!r}\n{ours!r}")


def measure(arguments, path):
    peers = {}
    for name, kind, flash, kv, same in CASES:
        peers[name] = Llama(path, kind, flash, arguments)
        check(arguments, name, peers[name], kv, same)
    theirs, ours = {name: [] for name in peers}, {kv: [] for kv in FORMATS}
    for _ in range(arguments.rounds):
        for kv, added in pagekv_added_milliseconds(arguments).items():
            ours[kv].append(added)
        for name, peer in peers.items():
            theirs[name].append(peer.added_milliseconds())
    return [turns.compare(f"decode at {arguments.depth:,}, {name}", kv, theirs[name], ours[kv])
            for name, _, _, kv, _ in CASES]


def main():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    parser = turns.parser(__doc__, rounds=5)
    parser.add_argument("--model", default=str(
        pathlib.Path(cache, "pagekv", "SmolLM2-135M-Instruct.Q4_1.gguf")))
    parser.add_argument("--depth", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--no-extra-buffers", action="store_true",
                        help="see compare_llama_cpp.py")
    arguments = parser.parse_args()
    if not os.path.exists(arguments.model):
        print(f"skipped: there is no {arguments.model}")
        sys.exit(77)
    if arguments.no_extra_buffers:
        compare_llama_cpp.refuse_extra_buffers()
    print(f"llama-cpp-python {llama_cpp.__version__}, {arguments.threads} threads")
    with tempfile.TemporaryDirectory() as folder:
        bf16 = os.path.join(folder, "bf16.gguf")
        compare_llama_cpp.gguf_convert.convert(arguments.model, bf16, "bf16")
        rows = measure(arguments, bf16)
    turns.print_head("llama.cpp")
    for row in rows:
        turns.print_row(row)
    turns.write(arguments, rows)


if __name__ == "__main__":
    main()
