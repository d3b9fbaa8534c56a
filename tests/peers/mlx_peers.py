"""Compares affine pages, byte for byte, with mlx.core.quantize on CPU.

  mlx_peers.py --quantize PROGRAM [--groups N] [--seed S]

PROGRAM is the test executable `quantize`. Random rows of many distributions are quantized by both,
for every width, group and type that MLX has: codes, scales and biases must be equal. In f32 the
elements decoded again must be, too; in 16 bits MLX rounds twice, pagekv not at all. Exits with 77,
"skipped", where mlx is missing.
"""

import argparse
import subprocess
import sys

try:
    import mlx.core as mx
    import numpy

    import mlx_rows
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

DIM = mlx_rows.DIM


def few_ulps(random, count):
    """Constants but for the last bits: steps near the smallest there is."""
    values = random.standard_normal((count, 1)) * 10.0 ** random.uniform(-6, 4, (count, 1))
    return values * (1 + random.integers(-3, 4, (count, DIM)) * 2.0 ** random.integers(
        -24, -5, (count, 1)))


def any_exponent(random, count):
    """Mantissas of all exponents whose differences are finite."""
    return random.uniform(-1, 1, (count, DIM)) * 2.0 ** random.integers(-149, 126, (count, DIM))


def grid(random, count):
    """Multiples of a small number: ties everywhere."""
    return random.integers(-32, 33, (count, DIM)) * 2.0 ** random.integers(-20, 8, (count, 1))


def sparse(random, count):
    values = random.standard_normal((count, DIM)) * (random.random((count, DIM)) < 0.05)
    return values * 2.0 ** random.integers(-10, 10, (count, 1))


DISTRIBUTIONS = {
    "normal": lambda random, count: random.standard_normal((count, DIM)),
    "normal of any size": lambda random, count: (
        random.standard_normal((count, DIM)) * 10.0 ** random.uniform(-12, 4, (count, 1))),
    "heavy tails": lambda random, count: random.standard_t(1.2, (count, DIM)),
    "very heavy tails": lambda random, count: numpy.clip(
        random.standard_t(0.5, (count, DIM)), -1e36, 1e36),
    "far from zero": lambda random, count: (
        random.standard_normal((count, DIM)) + random.uniform(-300, 300, (count, 1))),
    "positive": lambda random, count: random.lognormal(0, 3, (count, DIM)),
    "negative": lambda random, count: -random.lognormal(0, 0.1, (count, DIM)),
    "uniform": lambda random, count: random.uniform(-1, 1, (count, DIM)),
    "few ulps": few_ulps,
    "any exponent": any_exponent,
    "grid": grid,
    "sparse": sparse,
}


def ours(program, rows, group, bits, type_name):
    run = subprocess.run([program, str(bits), str(group), type_name, str(DIM)],
                         input=mlx_rows.bytes_of(rows), stdout=subprocess.PIPE, check=True)
    size = 4 if type_name == "f32" else 2
    edges = numpy.cumsum([0, DIM * bits // 8, DIM // group * size, DIM // group * size, 4 * DIM])
    stored = numpy.frombuffer(run.stdout, dtype=numpy.uint8).reshape(rows.shape[0], edges[-1])
    return [stored[:, begin:end] for begin, end in zip(edges, edges[1:])]


def theirs(rows, group, bits, type_name):
    codes, scales, biases = mx.quantize(rows, group_size=group, bits=bits, mode="affine")
    parts = [codes, scales, biases]
    if type_name == "f32":
        parts.append(mx.dequantize(codes, scales, biases, group_size=group, bits=bits,
                                   mode="affine"))
    count = rows.shape[0]
    return [numpy.frombuffer(mlx_rows.bytes_of(part), dtype=numpy.uint8).reshape(count, -1)
            for part in parts]


def compare(program, random, group, bits, type_name, groups):
    """Prints the first difference of each part; returns how many groups were compared, and equal."""
    count = -(-groups // (len(DISTRIBUTIONS) * (DIM // group)))
    equal = True
    for name, make in DISTRIBUTIONS.items():
        rows = mlx_rows.rounded(make(random, count), type_name)
        parts = zip(("codes", "scales", "biases", "decoded"),
                    ours(program, rows, group, bits, type_name),
                    theirs(rows, group, bits, type_name))
        for part, our, their in parts:
            different = numpy.flatnonzero((our != their).any(axis=1))
            if different.size:
                equal = False
                row = different[0]
                print(f"{type_name}, {bits} bits, groups of {group}, {name}: {part} of "
                      f"{different.size} of {count} rows differ\n  row {row}: "
                      f"{mlx_rows.bytes_of(rows[int(row)]).hex()}\n"
                      f"  ours   {our[row].tobytes().hex()}\n  theirs {their[row].tobytes().hex()}")
    return count * len(DISTRIBUTIONS) * (DIM // group), equal


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quantize", required=True)
    parser.add_argument("--groups", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    print(f"mlx {mx.__version__}, seed {arguments.seed}")
    equal = True
    for type_name in mlx_rows.TYPES:
        for bits in mlx_rows.BITS:
            for group in mlx_rows.GROUPS:
                random = numpy.random.default_rng([arguments.seed, bits, group])
                groups, same = compare(arguments.quantize, random, group, bits, type_name,
                                       arguments.groups)
                equal &= same
                print(f"{type_name}, {bits} bits, groups of {group}: {groups} groups "
                      f"{'equal' if same else 'DIFFER'}", flush=True)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
