"""What the comparisons with other implementations share: options, pagekv's own times, ratios."""

import argparse
import json
import statistics
import subprocess


def parser(doc, rounds):
    made = argparse.ArgumentParser(description=doc,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--pagekv", required=True)
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("-o", "--output", help="the rows as JSON")
    return made


def pagekv_bench(arguments, *options):
    """The rows that `pagekv bench` reports."""
    output = subprocess.run(
        [arguments.pagekv, "bench", "-t", str(arguments.threads), "-o", "json", *options],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return json.loads(output)


def pagekv_attention(arguments, context, queries, formats):
    """Milliseconds of each format."""
    rows = pagekv_bench(arguments, "--attn", "--ctx", str(context), "--queries", str(queries),
                        "--kv", formats, "-r", "3", "--query-type", "bf16")
    return {row["kv"]: row["ms"] for row in rows}


def quartiles(values):
    return statistics.quantiles(values, n=4, method="inclusive")


def compare(case, kv, theirs, ours):
    """The row of one comparison, of the milliseconds of both sides in each round."""
    low, middle, high = quartiles([a / b for a, b in zip(theirs, ours)])
    return {"case": case, "kv": kv, "peer_ms": statistics.median(theirs),
            "pagekv_ms": statistics.median(ours), "ratio": middle, "ratio_low": low,
            "ratio_high": high}


def print_head(peer):
    print(f"\n| case | kv | {peer} ms | pagekv ms | {peer} : pagekv |\n|---|---|---|---|---|",
          flush=True)


def print_row(row):
    print(f"| {row['case']} | {row['kv']} | {row['peer_ms']:.2f} | {row['pagekv_ms']:.2f} | "
          f"{row['ratio']:.2f} ({row['ratio_low']:.2f}-{row['ratio_high']:.2f}) |", flush=True)


def write(arguments, rows):
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
