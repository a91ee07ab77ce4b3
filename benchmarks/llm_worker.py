"""A language model that measures itself: `llm_worker.py shapevm|llama.cpp FILE THREADS`.

Each line of its input names a measurement with arguments as JSON; it answers with a line of seconds. Tokens
are random, so that no text ends early, and each prompt is new unless it should be known.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

CACHE, TOGETHER = 8192, 8
#: Adds `n` tokens to a prompt; returns the seconds to the first of them, and those of all others.
Complete = Callable[[Sequence[int], int], tuple[float, float]]


def shapevm_of(path: str, threads: int) -> tuple[Complete, int]:
    import shapevm
    from shapevm import llm

    shapevm.set_threads(threads)
    model = llm.load(path) if path.endswith(".svm") else llm.from_pretrained(path, cache_tokens=CACHE)
    how = llm.Sampling

    def complete(prompt: Sequence[int], n: int) -> tuple[float, float]:
        start, first = time.perf_counter(), 0.0
        for token in model.engine.submit(prompt, how(max_new_tokens=n)):
            first = first or time.perf_counter() - start
            assert token >= 0
        return first, time.perf_counter() - start - first

    return complete, model.engine.limits.vocabulary


def llama_of(path: str, threads: int) -> tuple[Complete, int]:
    import gguf
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = path, CACHE, TOGETHER
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.verbosity, params.kv_unified, params.cache_ram_mib = 0, True, 0
    params.swa_full = True  # without it no beginning of a model with windows is known again
    server = xllamacpp.Server(params)
    (table,) = [each for each in gguf.GGUFReader(path).tensors if each.name == "token_embd.weight"]

    def complete(prompt: Sequence[int], n: int) -> tuple[float, float]:
        body = {
            "prompt": list(prompt), "n_predict": n, "temperature": 0, "ignore_eos": True,
            "cache_prompt": True,
        }  # fmt: skip
        found = server.handle_completions(body)
        times = (json.loads(found) if isinstance(found, str | bytes) else found)["timings"]
        assert times["predicted_n"] == n, times
        return times["prompt_ms"] / 1e3, times["predicted_ms"] / 1e3

    return complete, int(table.shape[1])


class Measurements:
    """Each returns seconds."""

    def __init__(self, complete: Complete, vocabulary: int) -> None:
        self.complete, self.vocabulary = complete, vocabulary

    def _prompt(self, n: int) -> list[int]:
        return [random.randrange(100, self.vocabulary - 100) for _ in range(n)]

    def decode(self, n: int) -> float:
        """A token of one sequence."""
        return self.complete(self._prompt(16), n + 1)[1] / n

    def prefill(self, n: int) -> float:
        """The first token after a prompt of `n`."""
        return self.complete(self._prompt(n), 1)[0]

    def cached(self, n: int, known: int) -> float:
        """The same, if its first tokens were in another prompt."""
        begin = self._prompt(known)
        self.complete([*begin, *self._prompt(n - known)], 1)
        return self.complete([*begin, *self._prompt(n - known)], 1)[0]

    def one_by_one(self, n: int) -> float:
        """Sequences of `n` new tokens, one after the other."""
        start = time.perf_counter()
        for _ in range(TOGETHER):
            self.complete(self._prompt(16), n)
        return time.perf_counter() - start

    def together(self, n: int) -> float:
        """The same at once."""
        prompts = [self._prompt(16) for _ in range(TOGETHER)]
        start = time.perf_counter()
        with ThreadPoolExecutor(TOGETHER) as pool:
            list(pool.map(lambda prompt: self.complete(prompt, n), prompts))
        return time.perf_counter() - start

    def peak(self) -> float:
        """The most resident memory so far, in bytes."""
        with open("/proc/self/status") as status:
            (line,) = [line for line in status if line.startswith("VmHWM")]
        return float(line.split()[1]) * 1024


def main() -> None:
    name, path, threads = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints
    opened: Any = {"shapevm": shapevm_of, "llama.cpp": llama_of}[name](path, int(threads))
    measured = Measurements(*opened)
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        what, arguments = json.loads(line)
        print(json.dumps(getattr(measured, what)(*arguments)), file=out, flush=True)
    out.flush()
    os._exit(0)  # servers have threads


if __name__ == "__main__":
    main()
