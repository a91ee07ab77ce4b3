"""Streams of shapes: `auto` against the better of `generic` and `jit`, and the first calls of new shapes.

Each run has a process of its own, so that nothing is compiled before it, and what works in the background
slows its own run alone. The strategies take turns.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import SHORT, Figure, median, percentile

KINDS = {
    "few": "4 lengths, again and again",
    "many": "140 lengths, at random",
    "new": "each length four times, then never again",
}
STRATEGIES = ("auto", "generic", "jit")
FEW, MANY = (17, 40, 63, 128), range(8, 148)
N_CALLS, N_ROUNDS = (120, 1) if SHORT else (600, 9)
N_JIT_ROUNDS = 3  # its runs take up to three times as long as the others', far more than runs differ
N_AGAIN = 3  # calls of a new length that follow the first

RUN = """
import json, os, sys, time
path, strategy, cores, calls = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
import numpy as np, shapevm
shapevm.set_threads(cores)
with shapevm.load(path, strategy=strategy) as exe:
    times = []
    for length in [1, *calls]:  # the first reads the weights
        ids = np.ones((1, length), np.int64)
        start = time.perf_counter()
        exe.run({"input_ids": ids, "attention_mask": ids})
        times.append(time.perf_counter() - start)
    print(json.dumps({"times": times[1:], "compiled": exe.stats().compiled}))
"""


def calls_of(kind: str) -> list[int]:
    """Return the lengths of a stream, the same at every call."""
    rng = random.Random(kind)
    if kind == "new":
        n = N_CALLS // (1 + N_AGAIN)
        return [length for length in rng.sample(range(4, 4 + n), n) for _ in range(1 + N_AGAIN)]
    return rng.choices(FEW if kind == "few" else MANY, k=N_CALLS)


def run(artifact: Path, strategy: str, cores: int, kind: str, cache: Path) -> dict[str, Any]:
    """Return the seconds of a stream's calls and the number of kernels that were compiled for it."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(artifact), strategy, str(cores), json.dumps(calls_of(kind))],
        env={**os.environ, "SHAPEVM_CACHE_DIR": str(cache)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rounds(artifact: Path, cores: int, kind: str, is_warm: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the runs of a stream by strategy, in turn. With a warm cache, earlier processes have run it."""
    found: dict[str, list[dict[str, Any]]] = {strategy: [] for strategy in STRATEGIES}
    with tempfile.TemporaryDirectory() as name:
        for strategy in ("jit", "auto") if is_warm else ():
            run(artifact, strategy, cores, kind, Path(name, "warm"))
        for i in range(N_ROUNDS):
            turns = STRATEGIES if i < N_JIT_ROUNDS else STRATEGIES[:2]
            for strategy in turns[i % len(turns) :] + turns[: i % len(turns)]:
                cache = Path(name, "warm" if is_warm else f"{strategy}{i}")
                found[strategy].append(run(artifact, strategy, cores, kind, cache))
    return found


def first_against_warm(runs: list[dict[str, Any]]) -> float:
    """Return the 95th percentile, over new lengths, of the first call's time in those of the calls behind it,
    the median of all rounds."""
    step = 1 + N_AGAIN
    shares = []
    for found in runs:
        times = found["times"]
        firsts = range(0, len(times), step)
        shares.append(percentile([times[i] / median(times[i + 1 : i + step]) for i in firsts], 0.95))
    return median(shares)


def figures() -> list[Figure]:
    """Return all figures."""
    import shapevm

    sys.path.append(str(Path(__file__).parent.parent / "examples"))
    from encoder import SentenceEncoder, dynamic_shapes, example_inputs

    made = []
    with tempfile.TemporaryDirectory() as name:
        artifact = Path(name, "minilm.svm")
        options = {"kwargs": example_inputs(), "dynamic_shapes": dynamic_shapes(), "strategy": "generic"}
        with shapevm.compile(SentenceEncoder().eval(), **options) as exe:
            exe.save(artifact)
        for cores in (1, 2):
            for kind in KINDS:
                for is_warm in (False, True):
                    made += stream_figures(artifact, cores, kind, is_warm)
    return made


def stream_figures(artifact: Path, cores: int, kind: str, is_warm: bool) -> list[Figure]:
    """Return the figures of one stream."""
    found = rounds(artifact, cores, kind, is_warm)
    seconds = {strategy: median([sum(r["times"]) for r in runs]) for strategy, runs in found.items()}
    ratio = seconds["auto"] / min(seconds["generic"], seconds["jit"])
    compiled = max(r["compiled"] for r in found["auto"])
    where = f"{KINDS[kind]}; {'warm' if is_warm else 'cold'} cache, {cores} core{'s' if cores > 1 else ''}"
    shown = ", ".join(f"{strategy} {s:.2f} s" for strategy, s in seconds.items())
    what = f"{N_CALLS} calls of {where}: auto / the better of generic and jit (kernels that auto compiled)"
    made = [Figure(what, f"{ratio:.3f}: {shown} ({compiled})", "at most 1.03")]
    if kind == "new":
        shares = {s: first_against_warm(found[s]) for s in ("auto", "generic")}
        what = f"first call / warm call, {where}: 95th percentile of auto (generic)"
        made.append(Figure(what, f"{shares['auto']:.2f} ({shares['generic']:.2f})", "at most 1.2"))
    return made
