"""tile_llama_cpp.py SOURCES

Lets llama.cpp's CPU attention read quantized caches by tiles, where a variable asks for it.

llama.cpp has two loops for many queries: one by tiles, which takes caches of f16 and f32 only, and
one row by row, which takes all. At 8,192 tokens the second needs hours for what the first does in
minutes. This edits an unpacked llama-cpp-python before it is installed: with PAGEKV_TILED_KV set in
the environment, the loop by tiles takes quantized caches too. It widens each row by ggml's own
to_float, and does not round the query as the row loop does, which if anything favours llama.cpp.
Without the variable nothing is changed.
"""

import pathlib
import sys

OPS = "vendor/llama.cpp/ggml/src/ggml-cpu/ops.cpp"
LOOP = "static void ggml_compute_forward_flash_attn_ext_tiled("
BRANCH = "if (kv_type == GGML_TYPE_F16) {"
CHOICE = "bool use_tiled ="
TYPES = "kv_is_f32_or_f16"
MARK = "pagekv_tiled_kv"

HELPER = f"""static bool {MARK}(ggml_type type) {{
    static const bool wanted = getenv("PAGEKV_TILED_KV") != nullptr;
    return wanted && ggml_is_quantized(type);
}}

"""
KEYS = """if (ggml_is_quantized(kv_type)) {
    float widened[1024];
    GGML_ASSERT(DK <= 1024);
    ggml_get_type_traits(kv_type)->to_float(k_data, widened, DK);
    for (int64_t dk = 0; dk < DK; dk++) K_f32[dk * KV_TILE_SZ + tk] = widened[dk];
} else """
VALUES = """if (ggml_is_quantized(kv_type)) {
    ggml_get_type_traits(kv_type)->to_float(v_data, V32 + tk * DV, DV);
} else """


def edit(source):
    """The source with the loop by tiles open to quantized caches, or an exit if it is not as known."""
    if MARK in source:
        return source
    before, loop, after = source.partition(LOOP)
    parts = after.split(BRANCH)
    if not loop or len(parts) < 3 or after.count(CHOICE) != 1:
        sys.exit(f"{OPS}: not the version this edits (see tests/peers/requirements.txt)")
    keys, values, rest = parts[0], parts[1], BRANCH.join(parts[2:])
    if "k_data" not in keys or "v_data" not in values:
        sys.exit(f"{OPS}: the loop by tiles reads keys and values in another order")
    rest, choice, types = rest.partition(CHOICE)
    types = types.replace(TYPES, f"({TYPES} || {MARK}(k->type))", 1)
    return "".join([before, HELPER, loop, keys, KEYS, BRANCH, values, VALUES, BRANCH, rest, choice,
                    types])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = pathlib.Path(sys.argv[1], OPS)
    path.write_text(edit(path.read_text()))


if __name__ == "__main__":
    main()
