"""headers_test.py COMPILER...: each public header compiles alone, and twice, without a warning."""

import concurrent.futures
import os
import subprocess
import sys

import repo

FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-fsyntax-only", "-x", "c++", "-"]


def compile_alone(compiler, header):
    name = header.relative_to("include")
    source = f'#include "{name}"\n#include "{name}"\n'
    command = [compiler, f"-I{repo.ROOT / 'include'}", *FLAGS]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    return compiler, header, done


def main(compilers):
    findings = repo.Findings()
    jobs = [(compiler, header) for header in repo.files(".h", under=("include",))
            for compiler in compilers]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for compiler, header, done in pool.map(lambda job: compile_alone(*job), jobs):
            if done.returncode:
                findings.add(header, 1, f"does not compile alone by {compiler}\n{done.stderr}")
    findings.exit(len(jobs))


if __name__ == "__main__":
    main(sys.argv[1:])
