"""gguf_convert.py SOURCE.gguf TARGET.gguf f32|bf16: the same model with unquantised weights.

Matrices are dequantised and rounded to bf16, as pagekv keeps them, then written as f32 or bf16; vectors
and all metadata are kept. Two engines given the target multiply the same numbers.
"""

import sys

import gguf
import numpy


def round_to_bf16(values):
    """f32 values rounded to nearest even to what bf16 can hold, still as f32."""
    bits = numpy.ascontiguousarray(values, dtype=numpy.float32).view(numpy.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & numpy.uint32(0xFFFF0000)
    return rounded.view(numpy.float32)


def copy_metadata(reader, writer):
    own = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture",
           "general.file_type", "general.quantization_version"}
    for field in reader.fields.values():
        if field.name in own:
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub_type)


def convert(source, target, kind):
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    copy_metadata(reader, writer)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        shape = [int(size) for size in reversed(tensor.shape)]
        values = values.reshape(shape)
        if len(shape) == 1:
            writer.add_tensor(tensor.name, values.astype(numpy.float32))
            continue
        values = round_to_bf16(values)
        if kind == "f32":
            writer.add_tensor(tensor.name, values)
        else:
            halves = (values.view(numpy.uint32) >> 16).astype(numpy.uint16)
            writer.add_tensor(tensor.name, halves.view(numpy.uint8),
                              raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in ("f32", "bf16"):
        sys.exit(__doc__)
    convert(*sys.argv[1:])
