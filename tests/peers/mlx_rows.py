"""What is shared by the comparisons with mlx: rows of every kind, and quantizing them on its CPU."""

import mlx.core as mx
import numpy

BITS = (2, 3, 4, 5, 6, 8)
GROUPS = (32, 64, 128)
TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
DIM = 128  # of a row: every group divides it

mx.set_default_device(mx.cpu)


def rounded(values, type_name):
    """f32 values rounded to a type, as an mlx array; infinities become the largest finite ones."""
    if type_name == "f16":
        values = numpy.clip(values, -65504, 65504)
    return mx.array(numpy.ascontiguousarray(values, dtype=numpy.float32)).astype(TYPES[type_name])


def bytes_of(array):
    """The array's elements in memory, row after row."""
    if array.dtype == mx.bfloat16:
        array = array.view(mx.uint16)
    return numpy.array(array).tobytes()


def quantize(rows, group, bits):
    """Codes, scales and biases of rows, as bytes of each row."""
    parts = mx.quantize(rows, group_size=group, bits=bits, mode="affine")
    mx.eval(parts)
    count = rows.shape[0]
    whole = [bytes_of(part) for part in parts]
    return [[part[i * len(part) // count:(i + 1) * len(part) // count] for i in range(count)]
            for part in whole]
