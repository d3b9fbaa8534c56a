"""The arrows between folders: who may include whom (docs/architecture.md)."""

import re

import repo

# Folder of the tree: the folders whose headers its files may include. Tests and fuzzers may include
# anything, so they do not appear.
ALLOWED = {
    "include": {"include"},
    "src/core": {"include", "src/core", "src/codec"},
    "src/codec": {"include", "src/core", "src/codec"},
    "src/cpu": {"include", "src/core", "src/codec", "src/cpu"},
    "src/cuda": {"include", "src/core", "src/codec", "src/cuda"},
    "src/io": {"include", "src/core", "src/codec", "src/io"},
    "engine": {"include", "engine"},
    "tools": {"include", "engine", "bench", "tools"},
    "examples": {"include", "examples"},
    "bench": {"include", "engine", "bench"},
    "bench/kernels": {"include", "src/core", "src/codec", "src/cpu", "bench"},
}
INCLUDE_ROOTS = ("include", "src", "")  # what quoted includes are relative to, after their own folder
VECTOR_CODE = {"src/cpu", "engine"}     # may use Highway

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def folder_of(path):
    parts = path.parts
    if parts[0] == "src" or parts[:2] == ("bench", "kernels"):
        return "/".join(parts[:2])
    return parts[0]


def resolve(path, name):
    """The file of the tree that `#include "name"` in `path` means, or None."""
    for base in (path.parent, *INCLUDE_ROOTS):
        candidate = (repo.ROOT / base / name).resolve()
        if candidate.is_file() and candidate.is_relative_to(repo.ROOT):
            return candidate.relative_to(repo.ROOT)
    return None


def check(path, findings):
    folder = folder_of(path)
    for number, line in enumerate(repo.read(path).splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, name = match[1] == '"', match[2]
        if name.startswith("hwy/"):
            if folder not in VECTOR_CODE:
                findings.add(path, number, f"{folder} may not use Highway")
            continue
        target = resolve(path, name)
        if target is None and quoted:
            findings.add(path, number, f'"{name}" is not a file of the tree; use <> for others')
        elif target is not None and folder_of(target) not in ALLOWED[folder]:
            findings.add(path, number, f"{folder} may not include {target}")


def main():
    findings = repo.Findings()
    paths = repo.files(*repo.CPP, under=ALLOWED)
    for path in paths:
        check(path, findings)
    for path in repo.files(*repo.CPP, under=("src",)):
        if folder_of(path) not in ALLOWED:
            findings.add(path, 1, f"{folder_of(path)} has no arrows yet: add it to this test")
    findings.exit(len(paths))


if __name__ == "__main__":
    main()
