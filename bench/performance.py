"""performance.py --pagekv PROGRAM --kernels PROGRAM [--threads 2] [--repetitions 5] [-o FOLDER]

Runs `pagekv bench --attn` and bench_kernels over what docs/performance.md shows, writes the generated
part of that page and its plots. Needs matplotlib (bench/quality/requirements.txt). With -o the figures
are kept in FOLDER/performance.json; --report writes page and plots from there without measuring,
--again TITLE measures only the sections with that title anew.
"""

import argparse
import json
import pathlib
import subprocess

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot  # noqa: E402  (after the choice of backend)

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
BEGIN = "<!-- from here on written by bench/performance.py -->"
END = "<!-- up to here -->"
BENCH = ["bench", "--attn", "--query-type", "bf16"]
FORMATS = ["bf16", "kv8", "k8v4", "k8v3", "kv4", "k4v4", "kv2"]
# Each value of these options is measured in a run of its own: caches of several runs' size would
# measure the processor's tables of addresses.
APART = ["--ctx", "-t", "--dim", "--heads", "--page", "--batch"]
# The pieces of a format in bench_kernels: of scores, and of values, each "bits/group".
PIECES = {"kv8": ("8/128", "8/128"), "k8v4": ("8/32", "codebook_4/64"), "k8v3": ("8/32", "codebook_3/64"),
          "kv4": ("4/128", "4/128"), "k4v4": ("4/32", "codebook_4/64"), "kv2": ("2/128", "2/128")}
IN_L2 = 16  # spans, as bench_kernels counts them
COLORS = ["#222222", "#1f6fb2", "#2b9c7a", "#7ab648", "#c2521b", "#d98c1f", "#8a4fa3"]


def sections(threads):
    """(title, what it says, arguments of pagekv bench, columns)"""
    both = f"1,{threads}" if threads > 1 else "1"
    every = ",".join(FORMATS)
    few = "bf16,kv8,kv4"
    time = ["kv", "bits", "ctx", "threads", "ms", "probe", "scattered", "share", "cycles"]
    return [
        ("Decode, nothing in cache", "One query. The page's main table.",
         ["--ctx", "1k,8k,32k,128k", "--kv", every, "-t", both], time),
        ("Decode, one layer again and again", "What of it stays in cache depends on its size.",
         ["--ctx", "256,1k,8k", "--kv", "bf16,kv8,kv4,k4v4,kv2", "-t", "1", "--warm"], time),
        ("Many sequences", "One query each.",
         ["--ctx", "2k", "--batch", "16", "--kv", few, "-t", str(threads)],
         ["kv", "batch", *time[2:]]),
        ("More sequences", "",
         ["--ctx", "512", "--batch", "64", "--kv", few, "-t", str(threads)],
         ["kv", "batch", *time[2:]]),
        ("Sizes of pages", "At 32k, cold.",
         ["--ctx", "32k", "--page", "16,64,256", "--kv", few, "-t", str(threads)],
         ["kv", "page", *time[4:]]),
        ("Head dims", "At 32k, cold, 32 query heads on 8 KV heads.",
         ["--ctx", "32k", "--dim", "64,80,96,128,256", "--kv", few, "-t", str(threads)],
         ["kv", "dim", *time[4:]]),
        ("Queries that share a KV head", "At 32k, cold, dim 128, 8 KV heads.",
         ["--ctx", "32k", "--heads", "8/8,24/8,32/8,64/8,128/8", "--kv", few, "-t", str(threads)],
         ["kv", "heads", *time[4:]]),
        ("Prefill: 512 queries on 8k", "",
         ["--ctx", "8k", "--queries", "512", "--kv", "bf16,kv8,kv4,k8v4", "-t", str(threads),
          "--arithmetic", "fast,exact"],
         ["kv", "arithmetic", "ms", "threads"]),
        *[(f"Instruction set {target}", "", ["--ctx", "8k", "--kv", few, "-t", "1", "--target", target],
           time) for target in ("AVX3", "AVX2", "SSE4")],
    ]


def apart(more):
    """`more` with one value of each option that is measured apart."""
    for at, option in enumerate(more):
        if option in APART and "," in more[at + 1]:
            for value in more[at + 1].split(","):
                yield from apart([*more[:at + 1], value, *more[at + 2:]])
            return
    yield more


def bench(arguments, more):
    rows = []
    for each in apart(more):
        output = subprocess.run(
            [arguments.pagekv, *BENCH, "-r", str(arguments.repetitions), *each, "-o", "json"],
            stdout=subprocess.PIPE, check=True).stdout
        rows += json.loads(output)
    return rows


def kernels(arguments):
    """Cycles a token of each piece, by its name in bench_kernels: medians."""
    output = subprocess.run(
        [arguments.kernels, "--benchmark_format=json", "--benchmark_repetitions=5",
         "--benchmark_report_aggregates_only=true"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return {each["run_name"]: each["cycles"] for each in json.loads(output)["benchmarks"]
            if each.get("aggregate_name") == "median"}


def bounds(rows, pieces):
    """Against what bounds one thread: the bytes at the speed of the read, or the pieces' cycles."""
    lines = [["kv", "measured", "bytes at the speed of the read", "pieces", "share of the larger"],
             ["---"] * 5]
    for row in rows:
        if row["threads"] != 1 or row["ctx"] != 32768 or row["kv"] not in PIECES:
            continue
        scores, values = PIECES[row["kv"]]
        book, _, width = values.rpartition("_")
        book = f"{book}_" if book else ""
        names = [f"score_codes/{scores}/{IN_L2}", "softmax",
                 *[f"values_codes/{book}{piece}/{width}/{IN_L2}" for piece in ("prepare", "weigh", "add")]]
        own = sum(pieces[name] for name in names)
        read = row["cycles"] * row["gbps"] / row["probe_gbps"]
        lines.append([row["kv"], f"{row['cycles']:.0f}", f"{read:.0f}", f"{own:.0f}",
                      f"{100 * max(own, read) / row['cycles']:.0f} %"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


SHOWN = {
    "bits": lambda row: f"{row['bits']:.4g}",
    "ctx": lambda row: f"{row['ctx']:,}",
    "ms": lambda row: f"{row['ms']:.3g} ({row['ms_min']:.3g}-{row['ms_max']:.3g})",
    "probe": lambda row: f"{row['probe_gbps']:.1f}",
    "scattered": lambda row: f"{row['scattered_gbps']:.1f}",
    "share": lambda row: (f"{100 * row['share']:.0f} % "
                          f"({100 * row['share_min']:.0f}-{100 * row['share_max']:.0f})"),
    "cycles": lambda row: f"{row['cycles']:.0f}",
}
HEADS = {"probe": "read GB/s", "scattered": "scattered", "share": "share of the read",
         "ms": "ms a layer"}


def table(rows, columns):
    lines = [[HEADS.get(column, column) for column in columns], ["---"] * len(columns)]
    lines += [[SHOWN.get(column, lambda row, name=column: str(row[name]))(row)
               for column in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def ratios(rows, threads):
    """Decode times beside bf16's of the same context and threads."""
    times = {(row["kv"], row["ctx"], row["threads"]): row["ms"] for row in rows}
    contexts = sorted({row["ctx"] for row in rows})
    lines = [["kv", "bits", *(f"{context:,}" for context in contexts)]]
    lines.append(["---"] * len(lines[0]))
    for kv in FORMATS[1:]:
        bits = next(row["bits"] for row in rows if row["kv"] == kv)
        lines.append([kv, f"{bits:.4g}"] + [
            f"{times[kv, context, threads] / times['bf16', context, threads]:.2f}"
            for context in contexts])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def generated(data, arguments):
    found, machine = data["sections"], data["machine"]
    decode = found[0]["rows"]
    parts = [f"{machine}, device `{decode[0]['device']}`, {arguments.threads} threads at most, "
             f"{arguments.repetitions} repetitions; medians, with the least and the largest.\n",
             "![Decode time against context, with the line of the read's speed](performance.svg)\n",
             f"### Beside bf16, {arguments.threads} threads\n",
             "Decode time over that of bf16 pages, nothing in cache:\n",
             ratios(decode, arguments.threads),
             "### Beside what bounds it, 1 thread\n",
             "At 32k, cycles of a token of one KV head. What is read takes so long at the speed of the "
             "read; the pieces are those of `bench_kernels` (scores, softmax, codes into quads, weights, "
             "sums) with their data in the second cache. The larger one bounds a thread that overlaps "
             "both without loss:\n",
             bounds(decode, data["kernels"])]
    for section in found:
        text = f"{section['text']} " if section["text"] else ""
        if len(list(apart(section["arguments"]))) > 1:
            text += "Formats in turn, the rest in runs of its own. "
        parts += [f"### {section['title']}\n",
                  f"{text}`pagekv {' '.join([*BENCH, *section['arguments']])}`\n",
                  table(section["rows"], section["columns"])]
    return "\n".join(parts)


def write_page(text):
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def draw(rows, threads):
    rows = [row for row in rows if row["threads"] == threads]
    with pyplot.rc_context({"svg.hashsalt": "pagekv", "svg.fonttype": "path", "font.size": 9}):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
        for kv, color in zip(FORMATS, COLORS):
            own = sorted((row for row in rows if row["kv"] == kv), key=lambda row: row["ctx"])
            contexts = [row["ctx"] for row in own]
            times = [row["ms"] for row in own]
            spread = [[row["ms"] - row["ms_min"] for row in own],
                      [row["ms_max"] - row["ms"] for row in own]]
            left.errorbar(contexts, times, yerr=spread, color=color, marker="o", markersize=4,
                          capsize=2, linewidth=1.2, label=f"{kv}, {own[0]['bits']:.4g} bits")
            right.plot(contexts, [100 * row["share"] for row in own], color=color, marker="o",
                       markersize=4, linewidth=1.2)
        exact = sorted((row for row in rows if row["kv"] == "bf16"), key=lambda row: row["ctx"])
        for name, style in (("probe_gbps", "--"), ("scattered_gbps", ":")):
            label = {"probe_gbps": "bf16 at the speed of the read",
                     "scattered_gbps": "bf16 at that of the scattered read"}[name]
            left.plot([row["ctx"] for row in exact],
                      [row["gbps"] * row["ms"] / row[name] for row in exact], style,
                      color="#999999", linewidth=1, label=label)
        right.plot([row["ctx"] for row in exact],
                   [100 * row["scattered_gbps"] / row["probe_gbps"] for row in exact], ":",
                   color="#999999", linewidth=1)
        left.set_yscale("log")
        left.set_ylabel(f"ms a layer, {threads} threads")
        right.set_ylabel("stored bytes over the time, per cent of the read")
        right.set_ylim(0, 105)
        left.legend(fontsize=8, frameon=False)
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_xticks([row["ctx"] for row in exact],
                            [f"{row['ctx'] // 1024}k" for row in exact])
            axes.minorticks_off()
            axes.set_xlabel("tokens in the cache")
            axes.grid(color="#dddddd", linewidth=0.6)
            axes.set_axisbelow(True)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
        figure.savefig(ROOT / "docs" / "performance.svg", format="svg",
                       metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return "unknown processor"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagekv")
    parser.add_argument("--kernels")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--again", action="append", default=[])
    arguments = parser.parse_args()
    kept = arguments.output / "performance.json" if arguments.output else None
    data = {"machine": machine(), "sections": []}
    if arguments.report or arguments.again:
        data = json.loads(kept.read_text())
    done = {section["title"]: section for section in data["sections"]}
    data["sections"] = []
    for title, text, more, columns in sections(arguments.threads):
        section = done.get(title)
        if section is None or title in arguments.again:
            print(title, flush=True)
            section = {"title": title, "text": text, "arguments": more, "columns": columns,
                       "rows": bench(arguments, more)}
        data["sections"].append(section)
    if "kernels" not in data or "kernels" in arguments.again:
        data["kernels"] = kernels(arguments)
    if kept:
        arguments.output.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(data, indent=1) + "\n")
    write_page(generated(data, arguments))
    draw(data["sections"][0]["rows"], arguments.threads)


if __name__ == "__main__":
    main()
