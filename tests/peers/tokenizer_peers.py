"""Compares pagekv's token ids with those of two independent implementations.

  tokenizer_peers.py --tokenize PROGRAM [--model SMOLLM2.gguf] [--gpt2 FOLDER] [--seed N]

PROGRAM is the test executable `tokenize`. Witnesses: Hugging Face `tokenizers`, given the vocabulary and
merges of the same GGUF file, and llama.cpp through `llama-cpp-python`, which reads the file itself. With
--gpt2 (a folder with encoder.json and vocab.bpe) a small file is written for each pre-tokenizer that
pagekv knows, so that each is compared on a full vocabulary. Exits with 77, "skipped", where a witness or
every input is missing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

try:
    import gguf
    import llama_cpp
    import tokenizers
    from tokenizers import models, pre_tokenizers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import texts

CONTROL = 3

GPT2 = r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# As published with the models: contractions in either case, numbers of one or up to three digits.
MODERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(expression):
    return [pre_tokenizers.Split(tokenizers.Regex(expression), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


HF_PRETOKENIZERS = {
    "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)],
    "smollm": [pre_tokenizers.Digits(individual_digits=True),
               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)],
    "llama-bpe": split(MODERN % "{1,3}"),
    "qwen2": split(MODERN % ""),
}


def hugging_face(path):
    """Two tokenizers from the file's metadata: one that knows its control tokens and one that does not."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    pre = fields["tokenizer.ggml.pre"].contents()

    def make(special):
        vocabulary = {token: i for i, token in enumerate(tokens)}
        out = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre == "llama-bpe"))
        out.pre_tokenizer = pre_tokenizers.Sequence(HF_PRETOKENIZERS[pre])
        if special:
            out.add_special_tokens([t for t, kind in zip(tokens, types) if kind == CONTROL])
        return out

    return {special: make(special) for special in (False, True)}


def pagekv(program, path, strings, special):
    data = b"".join(b"%d\n%s" % (len(s.encode()), s.encode()) for s in strings)
    command = [program, path] + (["--special"] if special else [])
    run = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def write_gpt2_file(folder, pre, path):
    """A GGUF file without tensors: GPT-2's vocabulary under the name of another pre-tokenizer."""
    with open(os.path.join(folder, "encoder.json"), encoding="utf-8") as file:
        vocabulary = json.load(file)
    with open(os.path.join(folder, "vocab.bpe"), encoding="utf-8") as file:
        merges = [line for line in file.read().split("\n")[1:] if line]
    tokens = sorted(vocabulary, key=vocabulary.get)
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if t == "<|endoftext|>" else 1 for t in tokens])
    writer.add_token_merges(merges)
    for add in (writer.add_bos_token_id, writer.add_eos_token_id):
        add(vocabulary["<|endoftext|>"])
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def compare(program, path, strings, label, with_llama_cpp=True):
    witness_hf = hugging_face(path)
    witness_cpp = llama_cpp.Llama(path, vocab_only=True, verbose=False) if with_llama_cpp else None
    differences = 0
    for special in (False, True):
        ours = pagekv(program, path, strings, special)
        assert len(ours) == len(strings)
        for text, ids in zip(strings, ours):
            theirs = {"tokenizers": witness_hf[special].encode(text, add_special_tokens=False).ids}
            if witness_cpp and text:  # llama.cpp refuses to tokenize nothing
                theirs["llama.cpp"] = witness_cpp.tokenize(text.encode(), add_bos=False,
                                                           special=special)
            for name, expected in theirs.items():
                if ids != expected:
                    differences += 1
                    print(f"{label}, special={special}, {text[:60]!r}\n  ours {ids[:40]}\n"
                          f"  {name} {expected[:40]}")
    print(f"{label}: {len(strings)} texts, with and without control tokens, "
          f"{2 if witness_cpp else 1} witnesses: {differences} differences")
    return differences


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenize", required=True)
    parser.add_argument("--model", default=os.environ.get("PAGEKV_MODEL") or os.path.expanduser(
        "~/.cache/pagekv/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--gpt2", default="")
    parser.add_argument("--seed", type=int, default=20240607)
    arguments = parser.parse_args()
    strings = texts.all_texts(arguments.seed)
    print(f"{len(strings)} texts, seed {arguments.seed}")

    differences = compared = 0
    if os.path.exists(arguments.model):
        differences += compare(arguments.tokenize, arguments.model, strings, "SmolLM2")
        # llama.cpp merges no neighbours of a dropped byte; we follow the reference, which does.
        differences += compare(arguments.tokenize, arguments.model, texts.UNKNOWN_BYTES,
                               "SmolLM2, dropped bytes", with_llama_cpp=False)
        compared += 1
    if os.path.isdir(arguments.gpt2):
        for pre in HF_PRETOKENIZERS:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "gpt2.gguf")
                write_gpt2_file(arguments.gpt2, pre, path)
                differences += compare(arguments.tokenize, path, strings, f"GPT-2 vocabulary, {pre}")
                compared += 1
    if compared == 0:
        print(f"skipped: no {arguments.model}, and no --gpt2")
        return 77
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
