"""compare_llama_cpp.py --pagekv PROGRAM [--threads 2] [--rounds 5] [--prompt-tokens 512] [--tokens 64]

Tokens per second of `pagekv run` beside llama.cpp (llama-cpp-python) on the same machine, model, prompt
and threads: llama.cpp with the file's own Q4_1 weights and with the bf16 weights that pagekv keeps. The
sides take turns; shown are medians and quartiles, and the ratio pagekv : llama.cpp of each round. Needs
tests/peers/requirements.txt. Both must continue the prompt with the same tokens, or nothing is timed.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import llama_cpp

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "peers"))
import gguf_convert  # noqa: E402  (found through the line above)

SENTENCE = "On day {0} the crew of ship {1} wrote in the log that the wind had turned to the north. "


class Peer:
    """One llama.cpp context; run() gives tokens, prefill and decode tokens per second."""

    def __init__(self, path, arguments):
        self.model = llama_cpp.Llama(path, n_ctx=arguments.prompt_tokens + arguments.tokens + 8,
                                     n_batch=512, n_threads=arguments.threads,
                                     n_threads_batch=arguments.threads, verbose=False)

    def run(self, prompt, count):
        self.model.reset()
        start = time.perf_counter()
        self.model.eval(prompt)
        prefilled = time.perf_counter()
        tokens = []
        for _ in range(count):
            tokens.append(self.model.sample(temp=0.0, repeat_penalty=1.0))
            if len(tokens) < count:
                self.model.eval(tokens[-1:])
        decoded = time.perf_counter()
        return (tokens, len(prompt) / (prefilled - start), (count - 1) / (decoded - prefilled))


def refuse_extra_buffers():
    library = llama_cpp.llama_cpp
    default_params = library.llama_model_default_params

    def params():
        made = default_params()
        made.use_extra_bufts = False
        return made

    library.llama_model_default_params = params


def run_pagekv(arguments, text, options=()):
    command = [arguments.pagekv, "run", "-m", arguments.model, "-p", text, "--temp", "0",
               "-n", str(arguments.tokens), "-t", str(arguments.threads), "--json",
               *options]
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    answer, last = [json.loads(line) for line in output.stdout.splitlines()]
    return answer, last["figures"]


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3g} ({low:.3g}-{high:.3g})"


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def prompt_of(peer, tokens):
    text = "".join(SENTENCE.format(i, i * 37 % 101) for i in range(tokens))
    ids = peer.model.tokenize(text.encode(), add_bos=False, special=False)[:tokens]
    return peer.model.detokenize(ids).decode(errors="ignore"), ids


def measure(arguments, peers):
    text, ids = prompt_of(peers["bf16"], arguments.prompt_tokens)
    rates = {name: {"prefill": [], "decode": []} for name in ["pagekv", *peers]}
    for round_number in range(arguments.rounds + 1):
        answer, figures = run_pagekv(arguments, text)
        seen = {"pagekv": (figures["prefill_tokens_per_second"],
                           figures["decode_tokens_per_second"])}
        for name, peer in peers.items():
            tokens, prefill, decode = peer.run(ids, arguments.tokens)
            seen[name] = (prefill, decode)
            if name == "bf16":
                theirs = peer.model.detokenize(tokens).decode(errors="ignore")
                if not theirs.startswith(answer["text"]) and not answer["text"].startswith(theirs):
                    sys.exit(f"different texts:\n{answer['text']!r}\n{theirs!r}")
        if round_number == 0:
            continue  # a warm-up
        for name, (prefill, decode) in seen.items():
            rates[name]["prefill"].append(prefill)
            rates[name]["decode"].append(decode)
    return rates


def report(arguments, rates):
    print(f"{processor()}, {os.cpu_count()} processors; {arguments.threads} threads, prompt "
          f"{arguments.prompt_tokens} tokens, {arguments.tokens} generated, {arguments.rounds} "
          f"rounds; llama-cpp-python {llama_cpp.__version__}"
          f"{', no extra buffers' if arguments.no_extra_buffers else ''}")
    print("| engine, weights | prefill tokens/s | decode tokens/s | pagekv : it, prefill | decode |")
    print("|---|---|---|---|---|")
    names = {"pagekv": "pagekv, bf16", "q4_1": "llama.cpp, Q4_1", "bf16": "llama.cpp, bf16"}
    ours = rates["pagekv"]
    for name, own in rates.items():
        ratios = [spread([a / b for a, b in zip(ours[part], own[part])]) if name != "pagekv"
                  else "" for part in ("prefill", "decode")]
        print(f"| {names[name]} | {spread(own['prefill'])} | {spread(own['decode'])} | "
              f"{ratios[0]} | {ratios[1]} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    parser.add_argument("--pagekv", required=True)
    parser.add_argument("--model", default=str(
        pathlib.Path(cache, "pagekv", "SmolLM2-135M-Instruct.Q4_1.gguf")))
    parser.add_argument("--no-extra-buffers", action="store_true",
                        help="llama.cpp without repacked and AMX buffers, for machines whose "
                             "processor reports AMX and on which llama.cpp then ends with SIGILL")
    for name, value in (("threads", 2), ("rounds", 5), ("prompt-tokens", 512), ("tokens", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = parser.parse_args()
    if arguments.no_extra_buffers:
        refuse_extra_buffers()
    with tempfile.TemporaryDirectory() as folder:
        bf16 = os.path.join(folder, "bf16.gguf")
        gguf_convert.convert(arguments.model, bf16, "bf16")
        peers = {"q4_1": Peer(arguments.model, arguments), "bf16": Peer(bf16, arguments)}
        report(arguments, measure(arguments, peers))


if __name__ == "__main__":
    main()
