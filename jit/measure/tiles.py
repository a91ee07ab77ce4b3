"""Measures which register tile multiplies fastest on this machine: see `families.matmul.tile_choice`."""

from __future__ import annotations

from time import process_time

import numpy as np

from ..compiler import compile_kernel, target_for
from ..execute import Kernel
from ..families.matmul.matmul import choose_schedule, fitting_schedules
from ..families.matmul.microkernel import fits_registers
from ..families.matmul.problem import may_use_tiles, unread_sizes
from ..families.matmul.spec import Matmul
from ..families.matmul.tile_choice import CLASSES, Measured, TileChoice, choose
from ..llvm.abi import PARAMS
from ..llvm.function import Function
from ..llvm.target import find_target
from ..text import parse_spec
from .turns import Run, in_sequence, least_times

SECONDS = 0.3  # of processor time, after which nothing is measured; compiling takes about as much again
N_TURNS = 3  # each over all classes, so that a slow spell of the machine is no more than a turn
N_SAMPLES = 12  # of a turn; in each all tiles come one after the other
N_WEIGHTS = 40  # that take turns, so that they come from memory as in a model
SAMPLE_ROWS = 128  # of a sample's products together, at least one product: 0.2 ms
WIDTH = 384  # steps and columns
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
    row = find_target(target := target_for(spec, target))
    f = Function("kernel", PARAMS, row.n_vector_registers * row.vector_bytes, row.extension)
    weights = np.full((N_WEIGHTS, WIDTH * WIDTH), 0.5, np.float32)
    runs = {}
    for name, of in CLASSES.items():
        on_tiles = may_use_tiles(f, spec, of.probe)
        tiles = [tile for tile in fitting_schedules(on_tiles) if fits_registers(f, tile)]
        if len(tiles) > 1 and not on_tiles:
            runs[name] = {tile: _run(spec, of.probe, target, tile, weights) for tile in tiles}
    end = process_time() + seconds
    stride = SAMPLE_ROWS // min(of.probe for of in CLASSES.values())
    turns = [
        {name: least_times(of_class, N_SAMPLES, stride, end) for name, of_class in runs.items()}
        for _ in range(N_TURNS)
    ]
    if process_time() > end:
        return TileChoice()
    own = {name: choose_schedule(f, spec, CLASSES[name].probe) for name in runs}
    measured = {name: Measured(own[name], [turn[name] for turn in turns]) for name in runs}
    (any_rows,) = unread_sizes(spec, None)
    fitting = fitting_schedules(may_use_tiles(f, spec, any_rows))
    return choose(measured, choose_schedule(f, spec, any_rows), fitting)


def _run(spec: Matmul, rows: int, target: str, tile: str, weights: np.ndarray) -> Run:
    """Return what multiplies `rows` rows by some weights, one after the other."""
    kernel = Kernel(compile_kernel(spec, (rows,), target, schedule=tile))
    a, out = np.full((rows, WIDTH), 0.5, np.float32), np.empty((rows, WIDTH), np.float32)
    each = [kernel.launch([a, weight, out], (rows,)) for weight in weights]
    return in_sequence(each, max(SAMPLE_ROWS // rows, 1))
