"""Compares pagekv's widened weights, bit for bit, with those of the `gguf` package.

  tensor_peers.py --widen PROGRAM [--model MODEL.gguf]

PROGRAM is the test executable `widen`. A small file with random weights in each readable type is
written and compared, and then the first tensor of each type in the model. Exits with 77, "skipped",
where the package is missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"]


def widened(program, path, name):
    run = subprocess.run([program, path, name], stdout=subprocess.PIPE, check=True)
    return numpy.frombuffer(run.stdout, dtype=numpy.uint32)


def compare(program, path, tensor):
    ours = widened(program, path, tensor.name)
    theirs = gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
    equal = numpy.array_equal(ours, theirs.reshape(-1).view(numpy.uint32))
    print(f"{tensor.name} ({tensor.tensor_type.name}, {ours.size} values): "
          f"{'equal' if equal else 'DIFFERENT'}")
    return equal


def write_all_types(path, seed):
    random = numpy.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "test")
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        values = (random.standard_normal((7, 96)) * random.uniform(1e-3, 1e3)).astype(numpy.float32)
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--widen", required=True)
    parser.add_argument("--model", default=os.environ.get("PAGEKV_MODEL") or os.path.expanduser(
        "~/.cache/pagekv/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--seed", type=int, default=3)
    arguments = parser.parse_args()

    equal = True
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "types.gguf")
        write_all_types(path, arguments.seed)
        for tensor in gguf.GGUFReader(path).tensors:
            equal &= compare(arguments.widen, path, tensor)
    if os.path.exists(arguments.model):
        seen = set()
        for tensor in gguf.GGUFReader(arguments.model).tensors:
            if tensor.tensor_type not in seen:
                seen.add(tensor.tensor_type)
                equal &= compare(arguments.widen, arguments.model, tensor)
    else:
        print(f"no model at {arguments.model}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
