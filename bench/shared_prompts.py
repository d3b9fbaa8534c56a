"""shared_prompts.py --pagekv PROGRAM [--threads 2] [--rounds 3] [--requests 16] [--shared 2000]

Time to read the prompts of requests that arrive together and share a long beginning, beside as many that
share nothing: `pagekv run --lines --json -n 1` on text of this repository, in turns. Prints the seconds of
prompt passes, the ratio of the time for a prompt token, and the pages in use. The first token of a prompt must be the same
in both company and alone, or nothing is printed.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LETTERS_PER_TOKEN = 3.3  # about, of these texts


def text_of_repository():
    pieces = [path.read_text() for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])]
    return " ".join(" ".join(pieces).split())


def run(arguments, prompts):
    command = [arguments.pagekv, "run", "-f", "-", "--lines", "--json", "-n", "1", "--temp", "0", "-t",
               str(arguments.threads), "--parallel", str(len(prompts))]
    done = subprocess.run(command, input="\n".join(prompts), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    figures = lines.pop()["figures"]
    seconds = figures["prefill_tokens"] / figures["prefill_tokens_per_second"]
    return [line["tokens"] for line in lines], seconds, figures, [line["prompt_tokens"] for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pagekv", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--shared", type=int, default=2000, help="tokens, about")
    arguments = parser.parse_args()

    text = text_of_repository()
    length = int(arguments.shared * LETTERS_PER_TOKEN)
    starts = range(0, len(text) - length, (len(text) - length) // arguments.requests)
    apart = [text[start:start + length] for start in starts][:arguments.requests]
    alike = [f"{apart[0]} {number}: and then" for number in range(arguments.requests)]

    alone = run(arguments, alike[-1:])[0][0]
    ratios = []
    for _ in range(arguments.rounds):
        tokens, shared_seconds, shared, shared_lengths = run(arguments, alike)
        if tokens[-1] != alone:
            sys.exit("a prompt's first token depends on its company")
        _, apart_seconds, separate, apart_lengths = run(arguments, apart)
        ratios.append(shared_seconds / sum(shared_lengths) / (apart_seconds / sum(apart_lengths)))
        print(f"{arguments.requests} prompts of {min(shared_lengths)} to {max(shared_lengths)} tokens that begin alike: "
              f"{shared_seconds:.2f} s, {shared['pages_used']} pages; of {min(apart_lengths)} to {max(apart_lengths)} "
              f"tokens that share nothing: {apart_seconds:.2f} s, {separate['pages_used']} pages", flush=True)
    print(f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), "
          f"{arguments.threads} threads, {shared['device']}, pages of {shared['page_tokens']} tokens")


if __name__ == "__main__":
    main()
