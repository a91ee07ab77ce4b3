"""Measures whether few rows read a weight faster from memory without asking for its lines before: see
`families.matmul.gemv`."""

from __future__ import annotations

import mmap

import numpy as np

from ..compiler import compile_kernel, target_for
from ..execute import Kernel
from ..families.matmul.microkernel import WITHOUT_ASKING
from ..families.matmul.spec import Matmul
from ..families.matmul.tile_choice import ASKED, UNASKED, Measured, TileChoice, choose_streams
from .turns import Run, Sampling, in_sequence, parse_probe, probe_text, turns_of

ROWS = (1, 4)
WIDTH = 768  # steps and columns
N_WEIGHTS = 28  # that take turns, 66 MB: more than most caches hold
SAMPLE_WEIGHTS = 7  # of a sample: 16 MB
N_SAMPLES = 6
SECONDS = 0.3  # of processor time, after which nothing is measured; compiling is not counted
HUGE_PAGE = 2 << 20


def measure(target: str, seconds: float = SECONDS) -> TileChoice:
    """Return the choice for this machine, which runs `target`'s code; no choice if it takes longer."""
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
    return in_sequence(kernel, rows, WIDTH, weights, SAMPLE_WEIGHTS)
