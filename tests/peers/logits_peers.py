"""Compares pagekv's logits with llama.cpp's on the same weights, position by position.

  logits_peers.py --logits PROGRAM --tokenize PROGRAM [--model MODEL.gguf]

PROGRAMs are the test executables of those names. The model's weights are written once as f32, rounded
to bf16 before, so that both engines multiply the same numbers in f32; llama.cpp keeps f32 keys and
values. Texts of different kinds, one of 2,048 tokens among them, must have equal token ids; over all
their positions the top token must agree on 99.5 % and the mean KL divergence stay below 1e-4. Exits with
77, "skipped", where the packages or the model are missing.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import llama_cpp
    import numpy

    import gguf_convert
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TEXTS = {
    "prose": "It was a bright cold day in April, and the clocks were striking. The old man walked "
             "slowly down to the harbour, where the boats lay on the sand, and thought of the sea.",
    "code": "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n"
            "    return a\n\nprint([fibonacci(i) for i in range(20)])\n",
    "german": "Die Straßenbahn fährt über die Brücke, während am Ufer die Möwen kreischen.",
    "chinese": "今天天气很好，我们去公园散步吧。路上遇到了一位老朋友。",
    "russian": "Москва — столица России. Зимой здесь холодно, а летом тепло и солнечно.",
    "emoji": "We won 🎉🎉! 👩‍👩‍👧‍👦 came along 🏳️‍🌈, and everybody had 🍕 and 🍦 😂👍🏽",
    "numbers": "3.14159 * 2 = 6.28318; in 2024 there were 1,234,567 of them (12.5 %), not 0x7fff.",
    "chat": "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\nBecause",
    "spaces": "   indented\n\n\n\ttabs\t\tand   runs of    spaces\r\nand a last line   ",
}
LONG_TOKENS = 2048
SENTENCE = "On day {0} the crew of ship {1} wrote in the log that the wind had turned to {2}. "


def long_text():
    winds = ["north", "east", "south", "west", "the north-west", "a calm"]
    return "".join(SENTENCE.format(i, i * 37 % 101, winds[i % 6]) for i in range(160))


def our_ids(program, model, text):
    data = text.encode()
    run = subprocess.run([program, model], input=b"%d\n%s" % (len(data), data),
                         stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)


def our_logits(program, model, all_ids):
    lines = "".join(" ".join(map(str, ids)) + "\n" for ids in all_ids)
    run = subprocess.run([program, model], input=lines.encode(), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, check=True)
    vocabulary = int(run.stderr.split()[0])
    return numpy.frombuffer(run.stdout, dtype=numpy.float32).reshape(-1, vocabulary)


def log_softmax(logits):
    shifted = logits.astype(numpy.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(axis=-1, keepdims=True))


def compare_positions(ours, theirs):
    """Per position: whether the top token agrees, and KL(theirs || ours)."""
    log_p, log_q = log_softmax(theirs), log_softmax(ours)
    same_top = ours.argmax(axis=-1) == theirs.argmax(axis=-1)
    return same_top, (numpy.exp(log_p) * (log_p - log_q)).sum(axis=-1)


def check(arguments, model, f32_model):
    threads = os.cpu_count()
    peer = llama_cpp.Llama(f32_model, n_ctx=LONG_TOKENS + 64, n_batch=512, n_threads=threads,
                           n_threads_batch=threads, logits_all=True, flash_attn=False,
                           type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
                           verbose=False)
    texts = dict(TEXTS, long=long_text())
    good, positions, agreed, divergence = True, 0, 0, 0.0
    for name, text in texts.items():
        ids = our_ids(arguments.tokenize, model, text)
        expected = peer.tokenize(text.encode(), add_bos=False, special=False)
        same_ids = ids == expected
        ids = ids[:LONG_TOKENS]
        ours = our_logits(arguments.logits, f32_model, [ids])
        peer.reset()
        peer.eval(ids)
        same_top, kl = compare_positions(ours, peer.scores[:len(ids)])
        positions += len(ids)
        agreed += int(same_top.sum())
        divergence += float(kl.sum())
        good = good and same_ids
        print(f"{name:8} {len(ids):5} tokens, ids {'equal' if same_ids else 'DIFFERENT'}, "
              f"same top {same_top.mean():.4f}, mean KL {kl.mean():.2e}, max {kl.max():.2e}")
    share, mean = agreed / positions, divergence / positions
    print(f"all      {positions:5} positions, same top {share:.4f}, mean KL {mean:.2e}")
    return good and positions >= 500 and share >= 0.995 and mean < 1e-4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--logits", required=True)
    parser.add_argument("--tokenize", required=True)
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    parser.add_argument("--model", default=os.environ.get("PAGEKV_MODEL") or str(
        pathlib.Path(cache, "pagekv", "SmolLM2-135M-Instruct.Q4_1.gguf")))
    arguments = parser.parse_args()
    if not os.path.exists(arguments.model):
        print(f"skipped: no model at {arguments.model}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        f32_model = os.path.join(folder, "f32.gguf")
        gguf_convert.convert(arguments.model, f32_model, "f32")
        return 0 if check(arguments, arguments.model, f32_model) else 1


if __name__ == "__main__":
    sys.exit(main())
