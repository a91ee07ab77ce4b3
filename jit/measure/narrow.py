"""Measures whether several row tiles multiply faster by a narrow weight that each widens as it reads it than
by a copy in f32: see `families.matmul.tile_choice`."""

from __future__ import annotations

from functools import reduce
from time import process_time

import numpy as np

from ...vm.program import SizeRange
from ..compiler import compile_kernel, target_for
from ..execute import Kernel
from ..families.matmul.family import may_be_in_place
from ..families.matmul.grouped import NIBBLE, pack_grouped
from ..families.matmul.matmul import pack_panels
from ..families.matmul.microkernel import IN_PLACE_ENDING
from ..families.matmul.spec import Matmul
from ..families.matmul.tile_choice import (
    COPIED,
    IN_PLACE,
    NARROW,
    Measured,
    TileChoice,
    choose_narrow,
)
from ..text import parse_spec
from .turns import Run, in_sequence, least_times

SECONDS = 0.3  # of processor time for a dtype, after which nothing is measured; compiling is not counted
ROWS = (12, 36)  # of two row tiles of 6 rows, and of six: as few and as many as there is a choice for
WIDTH = 768  # steps and columns
GROUP = 32  # steps of a group of integers of four bits
N_WEIGHTS = 28  # that take turns, so that they come from memory as in a model
SAMPLE_WEIGHTS = 4  # of a sample: 1 ms
N_TURNS, N_SAMPLES = 3, 6
#: A product with a constant weight.
PROBE = """matmul n_dims=1 batch=[] m=n0 n={n} k={k} a=0 a_index=[i0,i2] b=1 b_index=[] b_layout="{layout}"
  b0 f32[n0,{k}]
  b1 {memory}[{shape}]
  b2 f32[n0,{n}] output
  v0 = acc f32
  v1 = store f32 v0 b2[i0,i1]"""


def measure(target: str, seconds: float = SECONDS) -> TileChoice:
    """Return the choice for this machine, which runs `target`'s code; none for a dtype that takes longer."""
    choices = [_of_dtype(dtype, target, seconds) for dtype in NARROW]
    return reduce(lambda found, choice: choice.beside(found), choices)


def _of_dtype(dtype: str, target: str, seconds: float) -> TileChoice:
    packed = packed_zeros(dtype, WIDTH, WIDTH)
    spec = probe(dtype, packed)
    target = target_for(spec, target)
    weights = [packed.copy() for _ in range(N_WEIGHTS)]
    sizes = (SizeRange(min(ROWS), max(ROWS)),)
    if not may_be_in_place(spec, sizes, target):
        return TileChoice()
    ways = {
        name: Kernel(compile_kernel(spec, sizes, target, schedule=schedule))
        for name, schedule in ((COPIED, None), (IN_PLACE, IN_PLACE_ENDING))
    }
    runs = {rows: {name: _run(way, rows, weights) for name, way in ways.items()} for rows in ROWS}
    end = process_time() + seconds
    turns = [
        {rows: least_times(each, N_SAMPLES, SAMPLE_WEIGHTS, end) for rows, each in runs.items()}
        for _ in range(N_TURNS)
    ]
    if process_time() > end:
        return TileChoice()
    return choose_narrow(dtype, {rows: Measured(COPIED, [turn[rows] for turn in turns]) for rows in runs})


def packed_zeros(dtype: str, k: int, n: int) -> np.ndarray:
    """Return a weight of zeros [K, N] of `dtype` as it lies in memory."""
    if dtype == NIBBLE:
        return pack_grouped(np.zeros((k, n), np.int8), np.ones((k // GROUP, n), np.float32))
    return pack_panels(np.zeros((k, n), np.int8 if dtype == "i8" else np.uint16))


def probe(dtype: str, packed: np.ndarray, k: int = WIDTH, n: int = WIDTH) -> Matmul:
    """Return a product of any number of rows with such a weight."""
    is_grouped, shape = dtype == NIBBLE, ",".join(map(str, packed.shape))
    layout, memory = ("grouped", "u8") if is_grouped else ("panels", dtype)
    spec = parse_spec(PROBE.format(n=n, k=k, layout=layout, memory=memory, shape=shape))
    assert isinstance(spec, Matmul)
    return spec


def _run(kernel: Kernel, rows: int, weights: list[np.ndarray]) -> Run:
    a, out = np.full((rows, WIDTH), 0.5, np.float32), np.empty((rows, WIDTH), np.float32)
    return in_sequence([kernel.launch([a, weight, out], (rows,)) for weight in weights], SAMPLE_WEIGHTS)
