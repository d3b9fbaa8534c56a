"""misuse_test.py COMPILER...: mistakes that must not compile, each beside its right form."""

import concurrent.futures
import os
import subprocess
import sys

import repo

FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror",
         "-fsyntax-only", "-x", "c++", "-"]
HEADERS = "#include <utility>\n#include <vector>\n#include <pagekv/pagekv.h>\n"

# What: (parameters of the function around it, the right form, the mistake).
CASES = {
    "ignoring a Status": (
        "pagekv::Step& step, pagekv::Rows rows",
        "if (!step.write(0, rows, rows)) step.drop();",
        "step.write(0, rows, rows);"),
    "ignoring a Result": (
        "pagekv::Step& step",
        "if (!step.commit()) step.drop();",
        "step.commit();"),
    "copying a Sequence": (
        "pagekv::Sequence& sequence",
        "pagekv::Sequence taken = std::move(sequence);",
        "pagekv::Sequence taken = sequence;"),
    "copying a Step": (
        "pagekv::Step& step",
        "pagekv::Step taken = std::move(step);",
        "pagekv::Step taken = step;"),
    "copying a Plan": (
        "pagekv::Plan& plan",
        "pagekv::Plan taken = std::move(plan);",
        "pagekv::Plan taken = plan;"),
    "borrowing from a View that is about to die": (
        "pagekv::Sequence& sequence, const pagekv::View& view, pagekv::QueryRows& query",
        "query.view = view;",
        "query.view = *sequence.publish();"),
    "borrowing from a Sequence that is about to die": (
        "pagekv::Sequence& sequence, pagekv::QueryRows& query",
        "query.view = sequence.ref();",
        "query.view = std::move(sequence).ref();"),
    "writing through Rows": (
        "std::vector<float>& rows, const std::vector<float>& frozen",
        "pagekv::MutableRows::packed(rows.data(), pagekv::DType::f32, 1, 8);",
        "pagekv::MutableRows::packed(frozen.data(), pagekv::DType::f32, 1, 8);"),
    "an implicit codec from a type": (
        "pagekv::Format& format",
        "format.k = pagekv::VectorCodec::dense(pagekv::DType::f32);",
        "format.k = pagekv::DType::f32;"),
}


def function(index, parameters, statement):
    return f"void use_{index}({parameters}) {{\n  {statement}\n}}\n"


def compile_it(compiler, functions):
    command = [compiler, f"-I{repo.ROOT / 'include'}", *FLAGS]
    return subprocess.run(command, input=HEADERS + functions, capture_output=True, text=True)


def main(compilers):
    findings = repo.Findings()
    right = "".join(function(index, parameters, statement)
                    for index, (parameters, statement, _) in enumerate(CASES.values()))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for compiler in compilers:
            all_right = pool.submit(compile_it, compiler, right)
            mistakes = {what: pool.submit(compile_it, compiler, function(0, parameters, wrong))
                        for what, (parameters, _, wrong) in CASES.items()}
            if all_right.result().returncode:
                findings.add(compiler, 0, f"a right form fails\n{all_right.result().stderr}")
            for what, done in mistakes.items():
                if done.result().returncode == 0:
                    findings.add(compiler, 0, f"{what} compiles")
    findings.exit(len(CASES) * len(compilers))


if __name__ == "__main__":
    main(sys.argv[1:])
