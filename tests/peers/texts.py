"""Texts of many kinds for comparing tokenizers: hand-written ones and random ones from a seed."""

import random

HAND_WRITTEN = [
    "", " ", "  ", "\n", "\r\n", "\t", "a", " a", "a ", "  a", "a  b", "a\n\nb", "a \n b", "\n\n\n",
    "Hello, world!", "The quick brown fox jumps over the lazy dog.",
    "I'm sure they're here, we'll see; he'd've said it's John's, don't you think?",
    "I'M SURE THEY'RE HERE, WE'LL SEE; HE'D SAY IT'S JOHN'S", "'s't're've'm'll'd", "' s", "''s",
    "don\u2019t \u2018quote\u2019 \u201cdouble\u201d \u2014 dash\u2026",
    "0", "12", "123", "1234567890", "3.14159", "1,000,000.00", "0x1F", "1e-9", "v2.0.1-rc3",
    "2024-02-30T12:34:56Z", "a1b2c3", "1a", " 1", "  12", "x 1 y", "\u00b2\u00b3\u00b9 \u00bd \u2167",
    "\u0661\u0662\u0663 \u0967\u0968\u0969", "+1 (555) 010-9999", "50% off $9.99 \u20ac10 \u00a35",
    "def f(x):\n    return x ** 2\n\n\nprint(f(3))\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i];  // total\n}\n",
    "#include <vector>\nstd::vector<int> v{1, 2, 3};", "SELECT * FROM t WHERE a >= 10 AND b <> 'x';",
    "<html><body class=\"a b\">&nbsp;</body></html>", '{"key": [1, 2.5, null, true], "k2": "v"}',
    "https://example.org/a/b?c=d&e=%20f#g", "user@example.com", "C:\\path\\to\\file.txt",
    "snake_case camelCase PascalCase kebab-case SCREAMING_CASE", "a_b_c __init__ ___",
    "!@#$%^&*()_+-=[]{}|;':\",./<>?`~", "!!!", "???!!!...", "......", "------", "====", "#### a",
    "caf\u00e9 na\u00efve \u00fcber Stra\u00dfe \u0153uvre", "cafe\u0301 (combining)",
    "\u0417\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439, \u043c\u0438\u0440!",
    "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u6211\u4eec\u53bb\u516c\u56ed\u3002",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3001\u30ab\u30bf\u30ab\u30ca\u3002",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "Ti\u1ebfng Vi\u1ec7t r\u1ea5t th\u00fa v\u1ecb", "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0",
    "\U0001f600", "\U0001f600\U0001f601 \U0001f602", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea flag", "\U0001f44d\U0001f3fd thumbs", "\u2764\ufe0f heart",
    "a\u00a0b", "a\u2003b\u2009c", "a\u3000b", "a\u200bb", "\ufeffbom", "a\u2028b\u2029c", "a\u0085b",
    "a\u180eb", "\u180e", "tab\tand\t\ttabs", "trailing   ", "   leading", " \t \n \r\n mixed \t",
    "line one\nline two\r\nline three\rline four", "    four\n        eight\n", "\n a", "\n  a\n", "a\n ",
    "\u221e \u2211 \u222b \u2202 \u2260 \u2264", "\U0001d538\U0001d539 math", "\u2460\u2461 circled",
    "\u01c5 titlecase \u02b0 modifier", "\u0130stanbul \u0131 i", "\ufb01 ligature", "\u200e\u200f bidi",
    "<|im_start|>user\nhi<|im_end|>\n", "<|endoftext|>", "a<|im_end|>b", "<|im_start", "|im_start|>",
    "<|im_start|><|im_start|>", "<repo_name>x<file_sep>y", "<<|im_end|>>",
]

# With characters whose bytes SmolLM2's vocabulary lacks.
UNKNOWN_BYTES = ["\x04", "a\x04b", "!\x04!", "x\x1d\x1dy", " \x06 ", "\U00050000z", "\U000f0000"]

PIECES = [
    "the", "and", "token", "Paged", "cache", "'s", "'ll", "n't", "42", "7", "3.5", "\n", "\n\n", " ",
    "  ", "\t", "    ", ".", ",", "!", "(", ")", "{", "}", "==", "->", "_", "-", "\u00e9", "\u00df",
    "\u4e2d", "\u6587", "\u043f\u0440\u0438", "\u0639", "\u0e01", "\U0001f600", "\u200d", "\u00a0", "\u3000",
    "x", "Y", "zz", "QQ", "#", "//", "\"", "'", "`", "@", "\\", "\u2014", "\u00bd",
]


def random_texts(count, seed):
    rng = random.Random(seed)
    return ["".join(rng.choices(PIECES, k=rng.randint(1, 24))) for _ in range(count)]


def all_texts(seed):
    long_ones = ["a" * 1000, "ab" * 700, " " * 513, "\n" * 257, "1" * 300, "!" * 400, "\u4e2d" * 300]
    return HAND_WRITTEN + long_ones + random_texts(400, seed)
