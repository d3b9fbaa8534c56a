"""Style as a failing check: sizes of files and functions, macro names, leftovers."""

import re

import repo

MAX_FILE_LINES = 500
MAX_TEST_FILE_LINES = 800
MAX_FUNCTION_LINES = 70

SOURCE = (*repo.CPP, ".py", ".sh", ".cmake", "CMakeLists.txt")
THIS_FILE = "tests/repo/style_test.py"  # spells out what the others may not say

LEFTOVERS = {
    r"\b(TODO|FIXME|XXX|HACK)\b": "unfinished",
    r"(?<![\w.}])/(home/\w|root/|work/|Users/\w)": "a path of one machine",
    r"\b(issue|ticket|pull request|PR) #?\d+\b": "a tracker's number: give the reason instead",
    r"https?://(\w+\.)*(pypi|debian|ubuntu)\.\w+": "a registry's host name",
    r"\t": "a tab",
    r"[ ]+$": "space at the end of the line",
}
# Macros of a library are everybody's: they carry its name, or Highway's where Highway asks for them.
MACRO = re.compile(r"^\s*#\s*define\s+(?!PAGEKV_|HWY_)(\w+)")

NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>\w*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\''
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL | re.MULTILINE)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b|\bextern$")


def without_noise(text):
    """`text` with comments, literals and preprocessor lines blanked, lines kept."""
    return NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def is_function(header):
    """Whether `header { ... }` at namespace or class scope defines a function."""
    before_parameters = header.split("(")[0]
    return ("(" in header and not SCOPE.search(before_parameters)
            and not re.search(r"[^=!<>]=[^=]", before_parameters))


def functions(text):
    """Yields (first line, lines) of each function defined in `text`, by matching braces."""
    text = without_noise(text)
    open_braces = []  # of each: first line if it opens a function, parentheses around, value
    inside = 0        # how many of them open functions
    parentheses = 0   # open since the innermost brace
    head = 0          # where the text since the last ; { or } begins
    for match in re.finditer(r"[;{}()]", text):
        at, mark = match.start(), match[0]
        if mark in "()":
            parentheses += 1 if mark == "(" else -1
            continue
        if mark == "{":
            header = text[head:at]
            # `f(T x = {})` and `member_{x}` are values; clang-format puts a space before bodies.
            value = parentheses > 0 or text[at - 1].isalnum() or text[at - 1] in "_>"
            first_line = None
            if not value and not inside and is_function(header):
                start = head + len(header) - len(header.lstrip())
                first_line = text.count("\n", 0, start) + 1
                inside += 1
            open_braces.append((first_line, parentheses, value))
            parentheses = 0
        elif mark == "}" and open_braces:
            first_line, parentheses, value = open_braces.pop()
            if first_line is not None:
                inside -= 1
                yield first_line, text.count("\n", 0, at) + 2 - first_line
        else:
            value = parentheses > 0  # the semicolons of a `for`
        if not value:
            head = at + 1


def check_text(path, lines, findings):
    limit = MAX_TEST_FILE_LINES if path.parts[0] == "tests" else MAX_FILE_LINES
    if len(lines) > limit and str(path).endswith(SOURCE):
        findings.add(path, limit, f"{len(lines)} lines, at most {limit}: is there a second subject?")
    if str(path) == THIS_FILE:
        return
    for number, line in enumerate(lines, 1):
        for pattern, what in LEFTOVERS.items():
            if re.search(pattern, line):
                findings.add(path, number, f"{what}: {line.strip()}")


def check_cpp(path, text, findings):
    for first_line, count in functions(text):
        if count > MAX_FUNCTION_LINES:
            findings.add(path, first_line, f"a function of {count} lines, at most {MAX_FUNCTION_LINES}")
    if path.parts[0] in ("include", "src"):
        for number, line in enumerate(text.splitlines(), 1):
            if match := MACRO.match(line):
                findings.add(path, number, f"macro {match[1]}: a library's macros are PAGEKV_")


def main():
    findings = repo.Findings()
    paths = repo.files(*SOURCE, ".md", ".json", ".in", "scripts/demo", "scripts/test", ".ci/run")
    for path in paths:
        text = repo.read(path)
        check_text(path, text.splitlines(), findings)
        if path.suffix in repo.CPP:
            check_cpp(path, text, findings)
    findings.exit(len(paths))


if __name__ == "__main__":
    main()
