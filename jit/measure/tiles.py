"""Measures which register tile multiplies fastest on this machine: see `families.matmul.tile_choice`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..compiler import compile_kernel, target_for
from ..execute import Kernel
from ..families.matmul.matmul import choose_schedule
from ..families.matmul.problem import unread_sizes
from ..families.matmul.schedules import SCHEDULES, fits_registers
from ..families.matmul.spec import Matmul
from ..families.matmul.tile_choice import CLASSES, Measured, TileChoice, choose
from ..llvm.abi import PARAMS
from ..llvm.function import Function
from ..llvm.target import find_target
from .turns import Run, Sampling, in_sequence, line_aligned, parse_probe, probe_text, turns_of

SECONDS = 0.4  # of processor time, after which nothing is measured; compiling takes about as much again
N_SAMPLES = 12  # of a round, in each of which all tiles are measured in sequence
N_WEIGHTS = 40  # that take turns, so that they come from memory as in a model
SAMPLE_ROWS = 128  # of a sample's products together, at least one product: 0.2 ms
WIDTH = 384  # steps and columns
PROBE = probe_text(WIDTH, WIDTH)


def measure(target: str, seconds: float = SECONDS) -> TileChoice:
    """Return the choice for this machine, which runs `target`'s code; no choice if it takes longer."""
    spec = parse_probe(PROBE)
    row = find_target(target := target_for(spec, target))
    f = Function("kernel", PARAMS, row.n_vector_registers * row.vector_bytes, row.extension)
    weights = list(line_aligned(N_WEIGHTS * WIDTH * WIDTH).reshape(N_WEIGHTS, WIDTH * WIDTH))
    runs = {}
    for name, of in CLASSES.items():
        tiles = [tile for tile in SCHEDULES if fits_registers(f, tile)]
        if len(tiles) > 1:
            runs[name] = {tile: _run(spec, of.probe, target, tile, weights) for tile in tiles}
    stride = SAMPLE_ROWS // min(of.probe for of in CLASSES.values())
    turns = turns_of(runs, Sampling(N_SAMPLES, stride), seconds)
    if turns is None:
        return TileChoice()
    own = {name: choose_schedule(f, spec, CLASSES[name].probe) for name in runs}
    measured = {name: Measured(own[name], of) for name, of in turns.items()}
    (any_rows,) = unread_sizes(spec, None)
    for_any = [tile for tile in SCHEDULES if not SCHEDULES[tile].keeps_totals]  # tall ones compile long
    return choose(measured, choose_schedule(f, spec, any_rows), for_any)


def _run(spec: Matmul, rows: int, target: str, tile: str, weights: Sequence[np.ndarray]) -> Run:
    """Return a function that multiplies `rows` rows by some weights in sequence."""
    kernel = Kernel(compile_kernel(spec, (rows,), target, schedule=tile))
    return in_sequence(kernel, rows, WIDTH, weights, max(SAMPLE_ROWS // rows, 1))
