"""Reads snapshots with the safetensors package and NumPy alone, as docs/snapshots.md says.

  snapshot_peers.py --rows PROGRAM --tables codebook_tables.h

PROGRAM is the test executable `snapshot_rows`: it saves a file of every kind of format and, beside
it, what gather() gives. The rows decoded here must be those, bit for bit. Exits with 77, "skipped",
where safetensors is missing.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import numpy
    import safetensors
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

F32 = numpy.float32
CENTROIDS = re.compile(r"kCodebook(\d) = \{(.*?)\}", re.DOTALL)
KNOWN = {"format": "pagekv snapshot", "version": "1", "rotation": "signed-hadamard threefry-0-42",
         "codebooks": "lloyd-max normal 1"}


def read_tensors(path):
    """Metadata, and the tensors by name. NumPy has no bf16: such tensors are widened to f32."""
    tensors = {}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        begin = file.tell()
        file.seek(0)
        data = file.read()
    with safetensors.safe_open(path, framework="numpy") as opened:
        metadata = opened.metadata()
        for name in opened.keys():
            if header[name]["dtype"] != "BF16":
                tensors[name] = opened.get_tensor(name)
                continue
            first, last = (begin + offset for offset in header[name]["data_offsets"])
            halves = numpy.frombuffer(data[first:last], dtype="<u2").astype(numpy.uint32)
            tensors[name] = (halves << 16).view(F32).reshape(header[name]["shape"])
    return metadata, tensors


def parse_codec(text):
    """Kind, bits, elements of a group (or "head"), rotated?"""
    parts = text.split(":")
    rotated = "rot" in parts
    if parts[0] not in ("affine", "codebook"):
        return parts[0], 0, 0, rotated
    return parts[0], int(parts[1]), parts[2], rotated


def sides(format_text):
    if not format_text.startswith("k="):
        return format_text, format_text
    keys, values = format_text.split(",")
    return keys.removeprefix("k="), values.removeprefix("v=")


def unpack(codes, bits, dim):
    """Element i has bits [i * bits, (i + 1) * bits) of its row, little-endian."""
    stream = numpy.unpackbits(codes, axis=-1, bitorder="little")[..., :dim * bits]
    weights = 1 << numpy.arange(bits)
    return (stream.reshape(*codes.shape[:-1], dim, bits) * weights).sum(axis=-1)


def threefry(first, second):
    """Threefry-2x32 of 20 rounds under the key (0, 42)."""
    keys = [0, 42, 0 ^ 42 ^ 0x1bd11bda]
    mask = 0xffffffff
    x, y = (first + keys[0]) & mask, (second + keys[1]) & mask
    for group in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = (x + y) & mask
            y = ((y << turn | y >> (32 - turn)) & mask) ^ x
        x = (x + keys[(group + 1) % 3]) & mask
        y = (y + keys[(group + 2) % 3] + group + 1) & mask
    return x, y


def signs(dim):
    half = dim // 2
    words = [threefry(i, i + half) for i in range(half)]
    return numpy.array([-1 if word >> 31 else 1
                        for side in (0, 1) for word in (pair[side] for pair in words)], dtype=F32)


def unrotate(rows):
    """Butterflies, strides 1, 2, 4, ... in blocks of a power of two; the norm; then the signs."""
    dim = rows.shape[-1]
    block = dim & -dim
    stride = 1
    while stride < block:
        pairs = rows.reshape(*rows.shape[:-1], dim // (2 * stride), 2, stride)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        rows = numpy.stack([a + b, a - b], axis=-2).reshape(rows.shape)
        stride *= 2
    return rows * F32(1 / numpy.sqrt(numpy.float64(block))) * signs(dim)


def decode(tensors, name, codec, dim, centroids):
    """[kv head, row, dim] of one side of a layer."""
    kind, bits, group, rotated = parse_codec(codec)
    if kind not in ("affine", "codebook"):
        rows = tensors[name].astype(F32)
    else:
        group = dim if group == "head" else int(group)
        codes = unpack(tensors[name + ".codes"], bits, dim)
        scales = numpy.repeat(tensors[name + ".scales"].astype(F32), group, axis=-1)
        if kind == "affine":
            biases = numpy.repeat(tensors[name + ".biases"].astype(F32), group, axis=-1)
            rows = codes.astype(F32) * scales + biases
        else:
            rows = centroids[bits][codes] * scales
    return unrotate(rows) if rotated else rows


def check_file(path, centroids):
    """What is wrong with a file, and how many elements were compared."""
    metadata, tensors = read_tensors(path)
    wrong = [f"{key} is {metadata.get(key)}" for key, value in KNOWN.items()
             if metadata.get(key) != value]
    rows = int(metadata["tokens"])
    if not numpy.array_equal(tensors["tokens"], numpy.arange(1000, 1000 + len(tensors["tokens"]))):
        wrong.append("tokens")
    layers = json.loads(metadata["layers"])
    gathered = numpy.fromfile(path.with_suffix(".f32"), dtype=F32)
    at = 0
    for number, layer in enumerate(layers):
        stored = layer["donor"] if layer["donor"] >= 0 else number
        kept = rows - layers[stored]["first"]
        for side, codec in zip("kv", sides(layers[stored]["format"])):
            dim = layer["key_dim" if side == "k" else "value_dim"]
            count = kept * layer["kv_heads"] * dim
            expected = gathered[at:at + count].reshape(kept, layer["kv_heads"], dim)
            at += count
            found = decode(tensors, f"layers.{stored}.{side}", codec, dim, centroids)
            found = numpy.ascontiguousarray(found.transpose(1, 0, 2), dtype=F32)
            different = int((found.view("u4") != expected.view("u4")).sum())
            if different:
                wrong.append(f"{different} of {count} elements of layers.{number}.{side}, {codec}, "
                             f"by {numpy.abs(found - expected).max()} at most")
    if at != len(gathered):
        wrong.append(f"{len(gathered)} elements gathered, {at} in the file")
    return wrong, at


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", required=True)
    parser.add_argument("--tables", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    centroids = {int(bits): numpy.array([float(number.rstrip("f")) for number in
                                         re.findall(r"[-\d.]+f", table)], dtype=F32)
                 for bits, table in CENTROIDS.findall(arguments.tables.read_text())}
    print(f"safetensors {safetensors.__version__}, numpy {numpy.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([arguments.rows, folder], check=True)
        files = sorted(pathlib.Path(folder).glob("*.safetensors"))
        failed = not files
        for path in files:
            wrong, count = check_file(path, centroids)
            failed |= bool(wrong)
            print(f"{path.stem}: " + ("; ".join(wrong) if wrong else f"{count} elements equal"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
