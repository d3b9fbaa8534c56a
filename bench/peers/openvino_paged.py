"""openvino_paged.py --pagekv PROGRAM [--threads 2] [--rounds 7] [--context 32768] [-o JSON]

pagekv's attention beside OpenVINO's PagedAttention operation on the CPU, both over pages of random
order: one query, 32 query heads on 8 KV heads of dim 128. OpenVINO's caches of bf16, u8 and u4 stand
beside pagekv's bf16, kv8 and kv4; its 8 and 4 bits have a scale and a zero point in f32 for each dim
of a page's 32 keys and for each value row, which makes 9.25 and 5.25 bits an element. The two take
turns. OpenVINO's answer is compared with float64 attention over the rows it was given first,
pagekv's by `pagekv bench` itself. Shown are the median times and the median of OpenVINO : pagekv
with its quartiles. Exits with 77, "skipped", where openvino is missing.
"""

import statistics
import sys
import time

try:
    import numpy
    import openvino
    from openvino import opset13 as opset
    from openvino._pyopenvino.op import _PagedAttentionExtension as PagedAttention
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import turns

HEADS, KV_HEADS, DIM = 32, 8, 128
PAGE_TOKENS = 32  # the only size of OpenVINO's CPU kernels
SET_BYTES = 512 << 20
# OpenVINO's cache type, pagekv's format, the largest relative error of random rows stored like that
CASES = [("bf16", "bf16", 2e-2), ("u8", "kv8", 3e-2), ("u4", "kv4", 0.3)]


def parameter(name, shape, kind):
    made = opset.parameter(openvino.PartialShape(shape), kind, name)
    made.output(0).get_tensor().set_names({name})
    return made


def none(kind, dimensions=1):
    """What an optional input gets where it is not wanted."""
    return opset.constant(numpy.zeros([0] * dimensions, dtype=kind))


def number(value, kind):
    return opset.constant(numpy.array(value, dtype=kind))


def attention_model():
    """A model that is nothing but the operation; it has 28 inputs, most of them optional."""
    f32, i32 = openvino.Type.f32, openvino.Type.i32
    given = [parameter("q", [-1, HEADS * DIM], f32)]
    given += [parameter(name, [-1, KV_HEADS * DIM], f32) for name in ("k", "v")]
    given += [parameter(name, [-1, KV_HEADS, -1, DIM], openvino.Type.dynamic)
              for name in ("key_cache.0", "value_cache.0")]
    given += [parameter(name, [-1], i32) for name in (
        "past_lens", "subsequence_begins", "block_indices", "block_indices_begins")]
    most = parameter("max_context_len", [], i32)
    inputs = given + [
        number(DIM ** -0.5, "f4"), number(0, "i4"), none("f4"),  # scale, window, slopes of ALiBi
        most,
        none("i4"),                                 # scores to add up
        none("i4"), none("i4", 2), none("f4", 2),   # rotation of the cache
        none("f4"), number(0, "i4"), number(0, "i4"),  # sparse attention
        none("f4", 4),                              # sinks
        number(0, "i4"), none("i4"), none("i4"), none("i4"),  # eviction
        none("i4"), none("u1"), none("i4"),         # types of tokens, bias of queries
    ]
    attention = PagedAttention([node.output(0) for node in inputs])
    for side in "kv":  # the plugin reads the heads of the caches here
        attention.get_rt_info()[f"num_{side}_heads"] = KV_HEADS
        attention.get_rt_info()[f"{side}_head_size"] = DIM
    return openvino.Model([opset.result(attention.output(0))], [*given, most], "attention")


class OpenVino:
    def __init__(self, kind, context, threads):
        self.compiled = openvino.Core().compile_model(attention_model(), "CPU", {
            "KEY_CACHE_PRECISION": kind, "VALUE_CACHE_PRECISION": kind,
            "INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": threads})
        self.request = self.compiled.create_infer_request()
        self.context = context
        random = numpy.random.default_rng(1)
        self.pages = random.permutation(context // PAGE_TOKENS).astype("i4")
        self.q = random.standard_normal((1, HEADS * DIM), dtype="f4")
        self.k, self.v = (random.standard_normal((context, KV_HEADS * DIM), dtype="f4")
                          for _ in range(2))
        self.layers = [self.make_layer()]
        layer_bytes = sum(cache.byte_size for cache in self.layers[0])
        # So many layers in turn that no processor's cache holds them.
        self.layers += [self.make_layer() for _ in range(SET_BYTES // layer_bytes)]
        self.bits = 8 * layer_bytes / (2 * context * KV_HEADS * DIM)

    def make_layer(self):
        layer = []
        for name in ("key_cache.0", "value_cache.0"):
            given = self.compiled.input(name)
            shape = [len(self.pages), *(size.get_length() for size in given.partial_shape[1:])]
            layer.append(openvino.Tensor(given.element_type, openvino.Shape(shape)))
        self.fill(layer)
        return layer

    def fill(self, layer, pages_at_once=64):
        """All rows but the last, as many short prompts of a page each: attention costs little."""
        for first in range(0, len(self.pages), pages_at_once):
            pages = self.pages[first:first + pages_at_once]
            start = first * PAGE_TOKENS
            end = min(start + len(pages) * PAGE_TOKENS, self.context - 1)
            begins = [*range(0, end - start, PAGE_TOKENS), end - start]
            self.set_inputs(layer, numpy.zeros((end - start, HEADS * DIM), "f4"),
                            slice(start, end), [0] * len(pages), begins, pages,
                            range(len(pages) + 1))
            self.request.infer()

    def set_inputs(self, layer, q, rows, past, begins, pages, page_begins):
        longest = max(before + end - begin for before, begin, end in zip(past, begins, begins[1:]))
        for name, value, kind in (
                ("q", q, "f4"), ("k", self.k[rows], "f4"), ("v", self.v[rows], "f4"),
                ("past_lens", past, "i4"), ("subsequence_begins", begins, "i4"),
                ("block_indices", pages, "i4"), ("block_indices_begins", page_begins, "i4"),
                ("max_context_len", longest, "i4")):
            self.request.set_tensor(name, openvino.Tensor(numpy.array(value, dtype=kind)))
        self.set_layer(layer)

    def set_layer(self, layer):
        for name, cache in zip(("key_cache.0", "value_cache.0"), layer):
            self.request.set_tensor(name, cache)

    def set_query(self):
        """The last token's: its row is written, then all are attended."""
        last = self.context - 1
        self.set_inputs(self.layers[0], self.q, slice(last, last + 1), [last], [0, 1], self.pages,
                        [0, len(self.pages)])

    def error(self):
        """Relative L2 against float64."""
        self.set_query()
        self.request.infer()
        got = self.request.get_output_tensor(0).data.reshape(KV_HEADS, -1, DIM).astype("f8")
        q = self.q.reshape(KV_HEADS, -1, DIM)
        wrong = whole = 0.0
        for head in range(KV_HEADS):
            k, v = (rows.reshape(-1, KV_HEADS, DIM)[:, head].astype("f8")
                    for rows in (self.k, self.v))
            logits = q[head] @ k.T / DIM ** 0.5
            weights = numpy.exp(logits - logits.max(axis=1, keepdims=True))
            want = weights @ v / weights.sum(axis=1, keepdims=True)
            wrong += ((got[head] - want) ** 2).sum()
            whole += (want ** 2).sum()
        return (wrong / whole) ** 0.5

    def milliseconds(self):
        self.set_query()
        start = time.perf_counter()
        for layer in self.layers:
            self.set_layer(layer)
            self.request.infer()
        return 1e3 * (time.perf_counter() - start) / len(self.layers)


def measure(arguments, kind, kv, most_error):
    peer = OpenVino(kind, arguments.context, arguments.threads)
    error = peer.error()
    if not error < most_error:
        raise SystemExit(f"{kind}: OpenVINO is {error:.1e} from float64")
    peer.milliseconds()
    theirs, ours = [], []
    for _ in range(arguments.rounds):
        theirs.append(statistics.median(peer.milliseconds() for _ in range(3)))
        ours.append(turns.pagekv_attention(arguments, arguments.context, 1, kv)[kv])
    case = f"decode at {arguments.context:,}, {kind} ({peer.bits:.4g} bits)"
    return {**turns.compare(case, kv, theirs, ours), "peer_error": error}


def main():
    parser = turns.parser(__doc__, rounds=7)
    parser.add_argument("--context", type=int, default=32768)
    arguments = parser.parse_args()
    if arguments.context % PAGE_TOKENS:
        parser.error(f"--context is a multiple of {PAGE_TOKENS}")
    print(f"OpenVINO {openvino.__version__}, {arguments.threads} threads")
    turns.print_head("OpenVINO")
    rows = []
    for case in CASES:
        rows.append(measure(arguments, *case))
        turns.print_row(rows[-1])
    turns.write(arguments, rows)


if __name__ == "__main__":
    main()
