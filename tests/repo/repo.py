"""What the checks of this folder share: the tree's files, and how findings are reported."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CPP = (".h", ".cc", ".cu", ".cuh")


def files(*suffixes, under=("",)):
    """Paths of the tree's own files, relative to ROOT, sorted."""
    found = []
    for top in under:
        for folder, subfolders, names in os.walk(ROOT / top):
            at = pathlib.Path(folder)
            subfolders[:] = [
                name for name in subfolders
                if not (name.startswith(".") and name != ".ci") and name != "__pycache__"
                and not (at == ROOT and (name.startswith("build") or name == "out"))
            ]
            found += [
                (at / name).relative_to(ROOT) for name in names
                if not suffixes or name.endswith(suffixes)
            ]
    return sorted(found)


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


class Findings:
    """Collects `file:line: what is wrong` and turns them into an exit code."""

    def __init__(self):
        self.lines = []

    def add(self, path, line, text):
        self.lines.append(f"{path}:{line}: {text}")

    def exit(self, checked):
        for line in self.lines:
            print(line)
        print(f"{len(self.lines)} findings, {checked} checked")
        # Nothing to check means that the check itself has lost its subject.
        sys.exit(1 if self.lines or not checked else 0)
