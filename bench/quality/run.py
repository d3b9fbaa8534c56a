"""run.py --pagekv PROGRAM -o FOLDER [--only pagekv|llama|report] [--threads 2]

Measures what each format of KV pages costs a model, beside llama.cpp's quantized KV caches, and
writes the table of docs/quality.md and the plot docs/quality.svg. Both engines read the same f32
file, written from --model once; each is compared with itself without quantization, by the same
protocol (llama_cpp_kv.py). Needs requirements.txt, and llama-cpp-python as tile_llama_cpp.py edits
it; without that edit the long contexts take hours and the control compares nothing.

FOLDER keeps a JSON file for each engine, text and context. What is there is not measured again, nor
are formats of pagekv that a file already has: a run that was stopped goes on where it was. Remove
the files after a change that concerns them. The report is written when all are there.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import report

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "peers"))
import gguf_convert  # noqa: E402  (found through the line above)

FORMATS = ["kv8", "kv8:f16:rot", "k8v4", "k=affine:6:64:f16:rot,v=codebook:5:rot", "kv4", "k4v4",
           "codebook:4:rot", "k=codebook:5:rot,v=codebook:3:rot"]
LLAMA_TYPES = ["q8_0", "q5_1", "q4_0"]
TEXTS = {"wikitext2": "wikitext2/wikitext2-test.tokens.txt",
         "austen": "austen/prideprejudice.txt"}
CHUNKS = {512: 45, 2048: 12, 8192: 3}  # at least 20,000 scored tokens each
# llama.cpp by its own loop, row by row, and by tiles: the same text, to see that it is the same.
CONTROL = {"text": "wikitext2", "context": 512, "chunks": 10}


def first_scored(context):
    """Position of a chunk from which on tokens are scored: after 1/8 of it, not llama-perplexity's
    half, since what is not scored is time spent for nothing."""
    return context // 8


def write_whole(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(rows, indent=1) + "\n")
    os.replace(part, path)


def read_rows(path):
    return json.loads(path.read_text()) if path.exists() else []


def run_pagekv(arguments, model, text, context, path):
    rows = read_rows(path)
    missing = [name for name in FORMATS if name not in [row["asked"] for row in rows]]
    if not missing:
        return
    command = [arguments.pagekv, "ppl", "-m", str(model), "-f", str(text), "-c", str(context),
               "--chunks", str(CHUNKS[context]), "--first", str(first_scored(context)),
               "-t", str(arguments.threads), "-o", "json"]
    for name in missing:
        command += ["--kv", name]
    print(f"{path}: {' '.join(missing)}", flush=True)
    start = time.monotonic()
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    seconds = time.monotonic() - start
    found = json.loads(output.stdout)
    for row, asked in zip(found, ["reference", *missing], strict=True):
        row.update(asked=asked, context=context, seconds=seconds)
    write_whole(path, (rows or found[:1]) + found[1:])


def call_llama(arguments, model, text, context, chunks, path, tiled=True):
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    print(f"{path}: {' '.join(LLAMA_TYPES)}", flush=True)
    script = pathlib.Path(__file__).with_name("llama_cpp_kv.py")
    environment = os.environ | ({"PAGEKV_TILED_KV": "1"} if tiled else {})
    subprocess.run([sys.executable, "-B", str(script), str(model), str(text),
                    "--context", str(context), "--chunks", str(chunks),
                    "--first", str(first_scored(context)), "--types", ",".join(LLAMA_TYPES),
                    "--threads", str(arguments.threads), "-o", str(path)],
                   env=environment, check=True)


def run_llama(arguments, model, text, context, path):
    call_llama(arguments, model, text, context, CHUNKS[context], path)


def control_path(folder, tiled):
    return folder / "control" / ("tiles.json" if tiled else "rows.json")


def run_control(arguments, model, folder):
    for tiled in (False, True):
        call_llama(arguments, model, pathlib.Path(arguments.data, TEXTS[CONTROL["text"]]),
                   CONTROL["context"], CONTROL["chunks"], control_path(folder, tiled), tiled)


RUNNERS = {"pagekv": run_pagekv, "llama": run_llama}


def cell_path(folder, engine, text, context):
    return folder / engine / f"{text}-{context}.json"


def measure(arguments, folder):
    model = folder / "model-f32.gguf"
    folder.mkdir(parents=True, exist_ok=True)
    if not model.exists():
        part = folder / "model-f32.part"
        gguf_convert.convert(arguments.model, str(part), "f32")
        os.replace(part, model)
    for context in CHUNKS:
        for text, name in TEXTS.items():
            for engine, runner in RUNNERS.items():
                if arguments.only in (None, engine):
                    runner(arguments, model, pathlib.Path(arguments.data, name), context,
                           cell_path(folder, engine, text, context))
    if arguments.only in (None, "llama"):
        run_control(arguments, model, folder)


def read_cells(folder):
    """The rows of all cells, each with its engine, text and context; None where one is missing."""
    cells = {}
    for context in CHUNKS:
        for text in TEXTS:
            for engine in RUNNERS:
                rows = read_rows(cell_path(folder, engine, text, context))
                if engine == "pagekv":
                    wanted = {row["asked"]: row for row in rows}
                    rows = [wanted[name] for name in ["reference", *FORMATS] if name in wanted]
                if len(rows) != 1 + len(FORMATS if engine == "pagekv" else LLAMA_TYPES):
                    print(f"no report: {cell_path(folder, engine, text, context)} is missing or "
                          "lacks formats")
                    return None
                cells[engine, text, context] = rows
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    parser.add_argument("--pagekv")
    parser.add_argument("--model", default=str(
        pathlib.Path(cache, "pagekv", "SmolLM2-135M-Instruct.Q4_1.gguf")))
    parser.add_argument("--data", default=os.environ.get("PAGEKV_DATA") or str(
        ROOT.parent / "shared" / "data"), help="folder of the texts (default: $PAGEKV_DATA)")
    parser.add_argument("--only", choices=["pagekv", "llama", "report"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    if arguments.only in (None, "pagekv") and not arguments.pagekv:
        parser.error("--pagekv PROGRAM is needed, or --only llama or report")
    if arguments.only != "report":
        measure(arguments, arguments.output)
    cells = read_cells(arguments.output)
    control = [read_rows(control_path(arguments.output, tiled)) for tiled in (False, True)]
    if cells and all(control):
        report.write_table(ROOT / "docs" / "quality.md", cells, control)
        report.draw(ROOT / "docs" / "quality.svg", cells)
    return 0 if (cells and all(control)) or arguments.only in ("pagekv", "llama") else 1


if __name__ == "__main__":
    sys.exit(main())
