"""Measures whether few rows read a weight faster from memory without asking for its lines before: see
`families.matmul.gemv`."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from math import inf
from time import process_time, thread_time_ns

import numpy as np

from ..compiler import compile_kernel, target_for
from ..execute import Kernel
from ..families.matmul.microkernel import WITHOUT_ASKING
from ..families.matmul.spec import Matmul
from ..families.matmul.tile_choice import ASKED, UNASKED, Measured, TileChoice, Turn, choose_streams
from ..text import parse_spec

ROWS = (1, 4)
WIDTH = 768  # steps and columns
N_WEIGHTS = 28  # that take turns, 66 MB: more than most caches hold
SAMPLE_WEIGHTS = 7  # of a sample: 16 MB
N_TURNS, N_SAMPLES = 3, 6
SECONDS = 0.3  # of processor time, after which nothing is measured; compiling is not counted
HUGE_PAGE = 2 << 20
#: A product with a constant weight.
PROBE = f"""matmul n_dims=1 batch=[] m=n0 n={WIDTH} k={WIDTH} a=0 a_index=[i0,i2] b=1 b_index=[] \
b_layout="panels"
  b0 f32[n0,{WIDTH}]
  b1 f32[{WIDTH // 32},{WIDTH},32]
  b2 f32[n0,{WIDTH}] output
  v0 = acc f32
  v1 = store f32 v0 b2[i0,i1]"""
Run = Callable[[int], None]  # of products by the weights from a number on


def measure(target: str, seconds: float = SECONDS) -> TileChoice:
    """Return the choice for this machine, which runs `target`'s code; no choice if it takes longer."""
    spec = parse_spec(PROBE)
    assert isinstance(spec, Matmul)
    target, weights = target_for(spec, target), _weights()
    runs = {
        str(rows): {
            name: _run(spec, rows, target, schedule, weights)
            for name, schedule in ((ASKED, None), (UNASKED, WITHOUT_ASKING))
        }
        for rows in ROWS
    }
    end = process_time() + seconds
    turns = [{name: _turn(each, end) for name, each in runs.items()} for _ in range(N_TURNS)]
    if process_time() > end:
        return TileChoice()
    return choose_streams({name: Measured(ASKED, [turn[name] for turn in turns]) for name in runs})


def _weights() -> list[np.ndarray]:
    """Return the weights, on huge pages where the system has them, as those of artifacts are."""
    n_bytes = 4 * WIDTH * WIDTH
    memory = mmap.mmap(-1, N_WEIGHTS * n_bytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    start = -whole.ctypes.data % HUGE_PAGE
    numbers = whole[start : start + N_WEIGHTS * n_bytes].view(np.float32)
    numbers[...] = 0.5  # pages that nobody has written are one page of zeros
    return list(numbers.reshape(N_WEIGHTS, WIDTH * WIDTH))


def _run(spec: Matmul, rows: int, target: str, schedule: str | None, weights: list[np.ndarray]) -> Run:
    kernel = Kernel(compile_kernel(spec, (rows,), target, schedule=schedule))
    a, out = np.full((rows, WIDTH), 0.5, np.float32), np.empty((rows, WIDTH), np.float32)
    each = [kernel.launch([a, weight, out], (rows,)) for weight in weights]

    def run(first: int) -> None:
        for number in range(first, first + SAMPLE_WEIGHTS):
            each[number % len(each)]()

    return run


def _turn(runs: dict[str, Run], end: float) -> Turn:
    """Return the least nanoseconds of each, until `end` of the processor's time."""
    least, first = dict.fromkeys(runs, inf), 0
    for _ in range(N_SAMPLES):
        for name, run in runs.items() if process_time() < end else ():
            start = thread_time_ns()
            run(first)
            least[name] = min(least[name], thread_time_ns() - start)
            first += SAMPLE_WEIGHTS
    return least
