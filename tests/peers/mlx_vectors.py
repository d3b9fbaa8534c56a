"""Writes tests/codec/mlx_vectors.inc: rows and what mlx.core.quantize makes of them on CPU.

  mlx_vectors.py OUTPUT
"""

import sys

import numpy

import mlx.core as mx
import mlx_rows

HEX_PER_LINE = 96

HEAD = """\
// Rows of {dim} elements and what mlx.core.quantize of mlx {version} makes of them on CPU, as hex of
// their bytes in memory. Written by tests/peers/mlx_vectors.py.
// clang-format off
"""


def rows_of(type_name):
    """Some rows with groups of every kind, exact in the type."""
    random = numpy.random.default_rng(7)
    normal = random.standard_normal
    largest = 60000.0 if type_name == "f16" else 1e37
    denormal = 2.0 ** (-24 if type_name == "f16" else -133)
    alternating = numpy.array([1.0, -1.0] * 16)
    outlier = normal(32)
    outlier[9] = 300.0
    rows = [
        normal(128),
        -10.0 + 0.2 * normal(128),
        numpy.concatenate([numpy.full(32, 1.5), numpy.zeros(32), alternating, outlier]),
        numpy.concatenate([1e-8 * normal(32), denormal * random.integers(-9, 9, 32),
                           largest * random.uniform(-1, 1, 32), random.uniform(0.1, 0.2, 32)]),
        numpy.concatenate([numpy.full(64, -0.3), numpy.zeros(64)]),
        random.standard_t(1.5, 128),
        random.integers(-8, 9, 128) / 4.0,
    ]
    return mlx_rows.rounded(numpy.array(rows), type_name)


def literal(data):
    text = data.hex()
    lines = [text[i:i + HEX_PER_LINE] for i in range(0, len(text), HEX_PER_LINE)]
    return "\n".join(f'"{line}"' for line in lines)


def main():
    out = [HEAD.format(dim=mlx_rows.DIM, version=mx.__version__)]
    out.append("constexpr MlxRows kMlxRows[] = {\n")
    inputs = {name: rows_of(name) for name in mlx_rows.TYPES}
    for name, rows in inputs.items():
        out.append(f"{{DType::{name},\n{literal(mlx_rows.bytes_of(rows))}}},\n")
    out.append("};\n\nconstexpr MlxCase kMlxCases[] = {\n")
    for name, rows in inputs.items():
        for bits in mlx_rows.BITS:
            for group in mlx_rows.GROUPS:
                parts = [b"".join(part) for part in mlx_rows.quantize(rows, group, bits)]
                text = ",\n".join(literal(part) for part in parts)
                out.append(f"{{DType::{name}, {bits}, {group},\n{text}}},\n")
    out.append("};\n// clang-format on\n")
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("".join(out))


if __name__ == "__main__":
    main()
