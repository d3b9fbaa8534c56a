"""The checks of this folder find what they are for: each gets samples it must pass and must refuse."""

import pathlib
import unittest

import arrows_test
import docs_test
import repo
import style_test

CODE = """\
namespace a { struct B { int f() const { return 1; } B(int x) : y_{x} { } };
template <typename T>
T g(T a = {}, int b = 1) {
  for (int i = 0; i < b; ++i) { use("}", '{', 1'000); }
  return [&] { return a; }();
}
bool operator==(const B& a, const B& b) {
  return true;  // {
}
const int table[] = {f(1), f(2)};
#define X { \\
  {
TEST(Foo, Bar) {
  call({.x = 1, .f = [&] { g(); }});
}
}
"""


class Style(unittest.TestCase):
    def test_functions_are_found_and_measured(self):
        self.assertEqual(list(style_test.functions(CODE)), [(1, 1), (1, 1), (2, 5), (7, 3), (13, 3)])

    def findings(self, path, text):
        findings = repo.Findings()
        style_test.check_text(pathlib.Path(path), text.splitlines(), findings)
        style_test.check_cpp(pathlib.Path(path), text, findings)
        return len(findings.lines)

    def test_limits(self):
        line = "  f();\n"
        self.assertEqual(self.findings("src/a.cc", "void f() {\n" + 68 * line + "}\n"), 0)
        self.assertEqual(self.findings("src/a.cc", "void f() {\n" + 69 * line + "}\n"), 1)
        self.assertEqual(self.findings("src/a.cc", 500 * "\n"), 0)
        self.assertEqual(self.findings("src/a.cc", 501 * "\n"), 1)
        self.assertEqual(self.findings("tests/a.cc", 501 * "\n"), 0)

    def test_leftovers_and_macros(self):
        self.assertEqual(self.findings("src/a.h", "// TO" "DO later\n"), 1)
        self.assertEqual(self.findings("src/a.h", "// see /ho" "me/me/x\n"), 1)
        self.assertEqual(self.findings("src/a.h", "#define MAX(a) a\n"), 1)
        self.assertEqual(self.findings("src/a.h", "#define PAGEKV_MAX(a) a\n"), 0)


class Arrows(unittest.TestCase):
    def test_folders(self):
        self.assertEqual(arrows_test.folder_of(pathlib.Path("src/core/pool.cc")), "src/core")
        self.assertEqual(arrows_test.folder_of(pathlib.Path("engine/model.cc")), "engine")

    def test_includes_resolve_as_the_compiler_does(self):
        here = pathlib.Path("src/core/pool.cc")
        for name, target in {"core/ids.h": "src/core/ids.h", "ids.h": "src/core/ids.h",
                             "../core/ids.h": "src/core/ids.h", "pagekv/view.h": "include/pagekv/view.h",
                             "engine/model.h": "engine/model.h"}.items():
            self.assertEqual(arrows_test.resolve(here, name), pathlib.Path(target))
        self.assertIsNone(arrows_test.resolve(here, "vector"))


class Documents(unittest.TestCase):
    def test_console_blocks_are_split_into_commands(self):
        body = "$ pagekv a \\\n  b\nout\n$ pagekv c\n"
        found = [(line, command.split(), shown) for line, command, shown in docs_test.commands(5, body)]
        self.assertEqual(found, [(5, ["pagekv", "a", "b"], ["out"]), (8, ["pagekv", "c"], [])])

    def test_output_patterns(self):
        shown = docs_test.pattern(["first", "...", "took ... ms"])
        self.assertTrue(shown.fullmatch("first\nx\ny\ntook 17 ms\n"))
        self.assertTrue(shown.fullmatch("first\ntook 1 ms\n"))
        self.assertFalse(shown.fullmatch("first\ntook 17 s\n"))
        self.assertFalse(shown.fullmatch("second\ntook 17 ms\n"))


if __name__ == "__main__":
    unittest.main()
