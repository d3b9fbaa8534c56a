"""docs_test.py code COMPILER | commands DIRECTORY | links: what the documents show is true.

code: every ```cpp block of README.md and docs/ compiles. A block with a main() or with definitions
stands alone; any other is the body of a function, whose parameters a comment just above may name:

    <!-- given: pagekv::Store& store, pagekv::Rows k -->

commands: every `$ pagekv ...` line of a ```console block runs (the command is in DIRECTORY) and
prints on stdout what the block shows; `...` stands for any text, alone on a line for any lines. Commands
that need the demo model are skipped where it is not in the cache. For /tmp they have a folder of their own.
links: relative links, their #anchors, the addresses of [texts] where a document lists addresses at its end, and what
stands in `back quotes`, paths of the tree and tests (`Suite.Name`), exist.
"""

import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import repo

SKIPPED = 77
MODEL = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache",
                     "pagekv", "SmolLM2-135M-Instruct.Q4_1.gguf")
BLOCK = re.compile(r"^(?:<!-- given: (?P<given>.*?) -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)^```$",
                   re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ADDRESS = re.compile(r"^\[([^\][]+)\]: ", re.MULTILINE)
TEXT = re.compile(r"(?:\[[^\][]+\])?\[([^\][]+)\](?![(:])")
TEST = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")
PATH = re.compile(r"`((?:bench|cmake|docs|engine|examples|fuzz|include|scripts|src|tests|tools)/[\w./-]+)`")


def documents():
    return [path for path in repo.files(".md") if len(path.parts) == 1 or path.parts[0] == "docs"]


def blocks(kind):
    """Yields (document, line, parameters given, body) of each fenced block of a kind."""
    for path in documents():
        text = repo.read(path)
        for match in BLOCK.finditer(text):
            if match["kind"] == kind:
                line = text.count("\n", 0, match.start("body")) + 1
                yield path, line, match["given"] or "", match["body"]


# --- code -----------------------------------------------------------------------------------------


def try_compile(compiler, source):
    command = [compiler, f"-I{repo.ROOT / 'include'}", "-std=c++20", "-Wall", "-Wno-unused", "-Werror",
               "-Wunused-result", "-fsyntax-only", "-x", "c++", "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True)


def compile_block(compiler, block):
    path, line, given, body = block
    includes = "".join(re.findall(r"^#include.*\n", body, re.MULTILINE))
    code = re.sub(r"^#include.*\n", "\n", body, flags=re.MULTILINE)
    marker = f'#line {line} "{path}"\n'
    head = includes or "#include <pagekv/pagekv.h>\n#include <span>\n#include <vector>\n"
    alone = f"{head}{marker}{code}"
    as_body = f"{head}void block({given}) {{\n{marker}{code}}}\n"
    errors = []
    for source in [alone] if re.search(r"\bmain\(", code) else [as_body, alone]:
        done = try_compile(compiler, source)
        if done.returncode == 0:
            return None
        errors.append(done.stderr)
    return errors[0]


def check_code(compiler):
    findings = repo.Findings()
    found = list(blocks("cpp"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for block, error in zip(found, pool.map(lambda b: compile_block(compiler, b), found)):
            if error:
                findings.add(block[0], block[1], f"does not compile:\n{error}")
    findings.exit(len(found))


# --- commands -------------------------------------------------------------------------------------


def commands(first_line, body):
    """Yields (line, command, output lines shown) of a console block."""
    lines = body.replace("\\\n", "\\\0").split("\n")[:-1]
    starts = [index for index, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, starts[1:] + [len(lines)]):
        line = first_line + start + "\n".join(lines[:start]).count("\0")
        yield line, lines[start][2:].replace("\\\0", " "), lines[start + 1:end]


def pattern(shown):
    parts = []
    for line in shown:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(re.escape(piece.rstrip()) for piece in line.split("...")) + r"[ ]*\n")
    return re.compile("".join(parts))


def run_command(command, directory, scratch):
    words = shlex.split(command.replace("/tmp/", scratch + "/"))
    words[0] = str(pathlib.Path(directory, words[0]))
    return subprocess.run(words, cwd=repo.ROOT, capture_output=True, text=True, timeout=300)


def check_commands(directory):
    findings = repo.Findings()
    run = skipped = 0
    scratch = tempfile.TemporaryDirectory()
    for path, first_line, _, body in blocks("console"):
        for line, command, shown in commands(first_line, body):
            program = command.split()[0]
            if program.startswith("scripts/") and not (repo.ROOT / program).is_file():
                findings.add(path, line, f"{program} does not exist")
            if program != "pagekv":
                continue
            needs_model = command.split()[1] in ("run", "ppl") or MODEL.name in command
            if needs_model and not MODEL.is_file():
                skipped += 1
                continue
            run += 1
            done = run_command(command, directory, scratch.name)
            if done.returncode:
                findings.add(path, line, f"exit code {done.returncode}\n{done.stderr}")
            elif not pattern(shown).fullmatch(done.stdout if done.stdout.endswith("\n")
                                              else done.stdout + "\n"):
                findings.add(path, line, f"prints something else:\n{done.stdout}")
    if skipped and not findings.lines:
        print(f"{skipped} commands skipped: no {MODEL.name} in the cache (scripts/demo fetches it)")
        sys.exit(SKIPPED)
    findings.exit(run)


# --- links ----------------------------------------------------------------------------------------


def anchors(path):
    """The #names that a web view gives the headings of a document."""
    prose = re.sub(r"^```.*?^```$", "", repo.read(path), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def check_link(path, line, target, findings):
    if re.match(r"[a-z]+:", target):
        return
    name, _, anchor = target.partition("#")
    file = (repo.ROOT / path.parent / name) if name else repo.ROOT / path
    if not file.exists():
        findings.add(path, line, f"links to {target}, which does not exist")
    elif anchor and anchor not in anchors(file):
        findings.add(path, line, f"links to {target}: no such heading")


def test_names():
    """Suite.Name of every test, without what an instantiation adds."""
    macro = re.compile(r"^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", re.MULTILINE)
    return {f"{suite}.{name}" for path in repo.files("_test.cc", under=("tests",))
            for suite, name in macro.findall(repo.read(path))}


def check_addresses(path, findings):
    text = repo.read(path)
    addresses = set(ADDRESS.findall(text))
    for number, line in enumerate(text.splitlines(), 1):
        for name in TEXT.findall(re.sub(r"`[^`]*`", "", line)) if addresses else ():
            if name not in addresses:
                findings.add(path, number, f"gives no address for [{name}]")


def check_links():
    findings = repo.Findings()
    tests = test_names()
    for path in documents():
        check_addresses(path, findings)
        for number, line in enumerate(repo.read(path).splitlines(), 1):
            for target in LINK.findall(line):
                check_link(path, number, target, findings)
            for name in PATH.findall(line):
                if not (repo.ROOT / name).exists():
                    findings.add(path, number, f"names {name}, which does not exist")
            for name in TEST.findall(line):
                if name not in tests:
                    findings.add(path, number, f"names the test {name}, which does not exist")
    findings.exit(len(documents()))


def main(what, *arguments):
    {"code": check_code, "commands": check_commands, "links": check_links}[what](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
