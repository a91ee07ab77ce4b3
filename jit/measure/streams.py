"""Measures whether few rows read a weight faster from memory without asking for its lines before: see
`families.matmul.gemv`."""

from __future__ import annotations

import mmap
from time import process_time

import numpy as np

from ..compiler import compile_kernel, target_for
from ..execute import Kernel
from ..families.matmul.microkernel import WITHOUT_ASKING
from ..families.matmul.spec import Matmul
from ..families.matmul.tile_choice import ASKED, UNASKED, Measured, TileChoice, choose_streams
from ..text import parse_spec
from .turns import Run, in_sequence, least_times

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
    turns = [
        {name: least_times(each, N_SAMPLES, SAMPLE_WEIGHTS, end) for name, each in runs.items()}
        for _ in range(N_TURNS)
    ]
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
    return in_sequence(each, SAMPLE_WEIGHTS)
