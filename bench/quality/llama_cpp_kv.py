"""llama_cpp_kv.py MODEL.gguf TEXT --context N --chunks K -o JSON [--first F] [--types ...]

What llama.cpp's quantized KV caches cost a model, measured as llama-perplexity does. The text's
tokens are cut into chunks of N; each is evaluated in an empty cache. Positions F to N - 2 of a
chunk are scored (F is N/2 if not given): each predicts the next token from what is before it. Its
distribution is compared with that of the same engine with a cache of f16: KL(f16 || type) in
natural logarithms, computed in double. The caches take turns block by block, so no logits are
stored.

-o gets a list of objects, the f16 cache first: kv, bits (per element of the cache), ppl, ppl_err,
mean_kl, mean_kl_err, median_kl, p999_kl, max_kl, same_top (share of positions with the same top
token), rms_dp (of the true token's probability, in per cent points), scored, how it was measured.
"""

import argparse
import concurrent.futures
import ctypes
import importlib.metadata
import json
import math
import os
import re
import sys
import time

import gguf
import llama_cpp
import numpy

# Flash attention, which quantized values need, reads a cache of f32 as f16: the results are equal.
BASE = "f16"
BLOCK = 512  # tokens a call, both llama.cpp's batch and its micro-batch


class Log:
    """Keeps llama.cpp's own messages: they say whether it rotates keys and values."""

    def __init__(self):
        self.text = ""
        self._callback = llama_cpp.llama_log_callback(self._append)
        llama_cpp.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _append(self, level, text, user_data):
        self.text += text.decode(errors="replace")

    def take(self):
        text, self.text = self.text, ""
        return text


class Model:
    """A loaded model, its vocabulary, and the first token where its file asks for one."""

    def __init__(self, path, log):
        params = llama_cpp.llama_model_default_params()
        # Repacked and AMX buffers do not concern f32 weights, but trying them kills the process
        # where the processor has AMX and the system does not permit it.
        params.use_extra_bufts = False
        self.handle = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not self.handle:
            sys.exit(f"{path}: llama.cpp cannot load it\n{log.text}")
        self.vocab = llama_cpp.llama_model_get_vocab(self.handle)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(self.vocab)
        adds = llama_cpp.llama_vocab_get_add_bos(self.vocab)
        self.bos = llama_cpp.llama_vocab_bos(self.vocab) if adds else None

    def tokens(self, text):
        room = len(text) + 8
        ids = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(self.vocab, text, len(text), ids, room, True, False)
        if count < 0:
            sys.exit("llama.cpp cannot tokenize the text")
        return numpy.array(ids[:count], dtype=numpy.int32)


class Cache:
    """One llama.cpp context whose keys and values have the given type."""

    def __init__(self, model, kind, arguments, log):
        self.model = model
        value = getattr(llama_cpp, f"GGML_TYPE_{kind.upper()}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = arguments.context
        params.n_batch = params.n_ubatch = BLOCK
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = arguments.threads
        params.type_k = params.type_v = value
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        log.take()
        self.handle = llama_cpp.llama_init_from_model(model.handle, params)
        said = log.take()
        if not self.handle:
            sys.exit(f"llama.cpp makes no context with a cache of {kind}\n{said}")
        self.rotation = [int(flag) for flag in re.findall(r"attn_rot_[kv] = (\d)", said)]
        self.batch = llama_cpp.llama_batch_init(BLOCK, 0, 1)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.handle), True)

    def logits(self, ids, first_position, wanted):
        """Appends ids; the logits of the wanted ones, as rows valid until the next call."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i] = token
            batch.pos[i] = first_position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = bool(wanted[i])
        if llama_cpp.llama_decode(self.handle, batch) != 0:
            sys.exit("llama.cpp cannot decode a block")
        rows = int(wanted.sum())
        if rows == 0:
            return numpy.empty((0, self.model.vocab_size), numpy.float32)
        data = llama_cpp.llama_get_logits(self.handle)
        return numpy.ctypeslib.as_array(data, shape=(rows, self.model.vocab_size))


class Scores:
    """The measures of every scored position of one cache."""

    def __init__(self):
        self.kl, self.nll, self.dp, self.same = [], [], [], []

    def summary(self):
        kl, nll, dp = (numpy.array(values) for values in (self.kl, self.nll, self.dp))
        count = len(kl)

        def error(values):
            return float(math.sqrt(values.var() / (count - 1)))

        ppl = math.exp(nll.mean())
        return {"ppl": ppl, "ppl_err": ppl * error(nll), "mean_kl": float(kl.mean()),
                "mean_kl_err": error(kl), "median_kl": float(numpy.median(kl)),
                "p999_kl": float(numpy.quantile(kl, 0.999)), "max_kl": float(kl.max()),
                "same_top": float(numpy.mean(self.same)),
                "rms_dp": float(100 * math.sqrt((dp * dp).mean())), "scored": count}


def log_softmax(logits, scratch):
    """Logarithms of the probabilities of a row of f32 logits, in double; scratch is overwritten."""
    logs = logits.astype(numpy.float64)
    logs -= logs.max()
    numpy.exp(logs, out=scratch)
    logs -= math.log(scratch.sum())
    return logs


def score_rows(rows, targets):
    """Per cache and position: KL from the base, -ln p and change of p of the target, same top."""
    found = [[] for _ in rows]
    scratch = numpy.empty(rows[0].shape[1])
    for row, target in enumerate(targets):
        base = log_softmax(rows[0][row], scratch)
        p = numpy.exp(base)
        top = rows[0][row].argmax()
        for values, logits in zip(found, rows):
            own = base if logits is rows[0] else log_softmax(logits[row], scratch)
            numpy.subtract(base, own, out=scratch)
            values.append((p @ scratch, -own[target], math.exp(own[target]) - p[target],
                           logits[row].argmax() == top))
    return found


def score_block(pool, threads, scores, rows, targets):
    pieces = [piece for piece in numpy.array_split(numpy.arange(len(targets)), threads)
              if len(piece)]
    futures = [pool.submit(score_rows, [matrix[piece[0]:piece[-1] + 1] for matrix in rows],
                           targets[piece]) for piece in pieces]
    for future in futures:
        for cache, values in zip(scores, future.result()):
            for kl, nll, dp, same in values:
                cache.kl.append(kl)
                cache.nll.append(nll)
                cache.dp.append(dp)
                cache.same.append(same)


def measure(arguments, model, caches):
    with open(arguments.text, "rb") as file:
        tokens = model.tokens(file.read())
    length = arguments.context
    first = length // 2 if arguments.first is None else arguments.first
    if len(tokens) < arguments.chunks * length:
        sys.exit(f"{arguments.text}: {len(tokens)} tokens make no {arguments.chunks} chunks")
    scores = [Scores() for _ in caches]
    with concurrent.futures.ThreadPoolExecutor(arguments.threads) as pool:
        for chunk in range(arguments.chunks):
            own = tokens[chunk * length:(chunk + 1) * length].copy()
            if model.bos is not None:
                own[0] = model.bos
            for cache in caches:
                cache.clear()
            for begin in range(0, length, BLOCK):
                positions = numpy.arange(begin, min(begin + BLOCK, length))
                wanted = (positions >= first) & (positions < length - 1)
                rows = [cache.logits(own[positions], begin, wanted) for cache in caches]
                score_block(pool, arguments.threads, scores, rows, own[positions[wanted] + 1])
            mean = ", ".join(f"{numpy.mean(score.kl):.3e}" for score in scores[1:])
            print(f"chunk {chunk + 1}/{arguments.chunks}: mean KL {mean}", file=sys.stderr,
                  flush=True)
    return [score.summary() for score in scores]


def bits(kind):
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind.upper()]]
    return 8 * size / block


def write_whole(path, rows):
    """A reader never sees half of it, and a run that was stopped leaves none."""
    with open(f"{path}.part", "w") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")
    os.replace(f"{path}.part", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--chunks", type=int, required=True)
    parser.add_argument("--first", type=int, help="first position of a chunk that is scored")
    parser.add_argument("--types", default="q8_0,q5_1,q4_0")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("-o", "--output", required=True)
    arguments = parser.parse_args()
    start = time.monotonic()
    log = Log()
    llama_cpp.llama_backend_init()
    model = Model(arguments.model, log)
    kinds = [BASE, *arguments.types.split(",")]
    caches = [Cache(model, kind, arguments, log) for kind in kinds]
    summaries = measure(arguments, model, caches)
    engine = f"llama.cpp (llama-cpp-python {importlib.metadata.version('llama-cpp-python')})"
    rows = [{"kv": kind, "engine": engine, "text": os.path.basename(arguments.text),
             "context": arguments.context, "chunks": arguments.chunks,
             "first": arguments.first, "bits": bits(kind),
             **summary, "base_ppl": summaries[0]["ppl"], "rotation": cache.rotation,
             "threads": arguments.threads, "seconds": round(time.monotonic() - start)}
            for kind, cache, summary in zip(kinds, caches, summaries)]
    write_whole(arguments.output, rows)


if __name__ == "__main__":
    main()
