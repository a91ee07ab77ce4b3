"""Measures whether gemv reads a weight from memory faster without prefetches (see `families.matmul.gemv`),
and whether layout changes of images are faster without them (see `families.nest.asking`)."""

from __future__ import annotations

import mmap
from math import prod

import numpy as np

from ..compiler import compile_kernel, target_for
from ..execute import Kernel
from ..families.matmul.schedules import WITHOUT_ASKING
from ..families.matmul.spec import Matmul
from ..families.matmul.tile_choice import (
    ASKED,
    UNASKED,
    Measured,
    TileChoice,
    choose_layouts,
    choose_streams,
)
from ..families.nest import asking
from ..families.nest.asking import LAYOUTS
from ..text import parse_spec
from .turns import Run, Sampling, in_sequence, line_aligned, parse_probe, probe_text, turns_of

ROWS = (1, 4)
WIDTH = 768  # steps and columns
N_WEIGHTS = 28  # that take turns, 66 MB: more than most caches hold
SAMPLE_WEIGHTS = 7  # of a sample: 16 MB
N_SAMPLES = 6
IMAGE = (64, 56 * 56)  # channels and pixels, 800 KB
N_CHANGES = 24  # of the layout, in a turn
LAYOUT_PROBE = """nest n_dims=0 domain=[{columns},{rows}]
  b0 f32[{rows},{columns}]
  b1 f32[{columns},{rows}] output
  v0 = load f32 b0[i1,i0]
  v1 = store f32 v0 b1[i0,i1]"""
SECONDS = 0.3  # of processor time, after which nothing is measured; compiling is not counted
HUGE_PAGE = 2 << 20


def measure(target: str, seconds: float = SECONDS) -> TileChoice:
    """Return the choice for this machine, which runs `target`'s code, within the time limit."""
    return _of_weights(target, seconds).beside(_of_layouts(target, seconds))


def _of_weights(target: str, seconds: float) -> TileChoice:
    """Return the choice for few rows."""
    spec = parse_probe(probe_text(WIDTH, WIDTH))
    target, weights = target_for(spec, target), _weights()
    runs = {
        str(rows): {
            name: _run(spec, rows, target, schedule, weights)
            for name, schedule in ((ASKED, None), (UNASKED, WITHOUT_ASKING))
        }
        for rows in ROWS
    }
    turns = turns_of(runs, Sampling(N_SAMPLES, SAMPLE_WEIGHTS), seconds)
    if turns is None:
        return TileChoice()
    return choose_streams({name: Measured(ASKED, of) for name, of in turns.items()})


def _of_layouts(target: str, seconds: float) -> TileChoice:
    """Return the choice for layout changes: both ways between channels first and last."""
    image, result = line_aligned(prod(IMAGE)), line_aligned(prod(IMAGE))
    runs = {
        f"{LAYOUTS} of {rows} x {columns}": {
            name: _layout_change(
                image.reshape(rows, columns), result.reshape(columns, rows), target, schedule
            )
            for name, schedule in ((ASKED, None), (UNASKED, asking.WITHOUT_ASKING))
        }
        for rows, columns in (IMAGE, IMAGE[::-1])
    }
    turns = turns_of(runs, Sampling(N_CHANGES, 1), seconds)
    if turns is None:
        return TileChoice()
    return choose_layouts({name: Measured(ASKED, of) for name, of in turns.items()})


def _layout_change(image: np.ndarray, result: np.ndarray, target: str, schedule: str | None) -> Run:
    spec = parse_spec(LAYOUT_PROBE.format(rows=len(image), columns=len(result)))
    kernel = Kernel(compile_kernel(spec, (), target_for(spec, target), schedule=schedule))
    change = kernel.launch([image, result], ())
    return lambda first: change()


def _weights() -> list[np.ndarray]:
    """Return the weights, on huge pages where the system has them, as those of artifacts are."""
    n_bytes = 4 * WIDTH * WIDTH
    memory = mmap.mmap(-1, N_WEIGHTS * n_bytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    start = -whole.ctypes.data % HUGE_PAGE
    numbers = whole[start : start + N_WEIGHTS * n_bytes].view(np.float32)
    numbers[...] = 0.5  # unwritten pages all map to one page of zeros
    return list(numbers.reshape(N_WEIGHTS, WIDTH * WIDTH))


def _run(spec: Matmul, rows: int, target: str, schedule: str | None, weights: list[np.ndarray]) -> Run:
    kernel = Kernel(compile_kernel(spec, (rows,), target, schedule=schedule))
    return in_sequence(kernel, rows, WIDTH, weights, SAMPLE_WEIGHTS)
