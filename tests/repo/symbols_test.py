"""symbols_test.py LIBRARY: the shared library exports names in namespace pagekv, and no others."""

import re
import subprocess
import sys

import repo

# `pagekv::v0::f()`, and what compilers make beside a class: its vtable and type information.
OURS = re.compile(r"((vtable|typeinfo|typeinfo name|VTT|guard variable) for )?pagekv::v\d+::")
INTERNAL = re.compile(r"pagekv::v\d+::internal::")


def main(library):
    findings = repo.Findings()
    done = subprocess.run(["nm", "--dynamic", "--demangle", "--defined-only", library],
                          capture_output=True, text=True, check=True)
    names = [line.split(maxsplit=2)[2] for line in done.stdout.splitlines()]
    for name in names:
        # A public function may take or return an internal type; it may not be one's member.
        if not OURS.match(name) or INTERNAL.match(name):
            findings.add(library, 0, f"exports {name}")
    findings.exit(len(names))


if __name__ == "__main__":
    main(*sys.argv[1:])
