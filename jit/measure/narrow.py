"""Measures whether several row tiles are faster when each widens a narrow weight as it reads it than with a
copy in f32: see `families.matmul.tile_choice`."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ...vm.program import SizeRange
from ..compiler import compile_kernel, target_for
from ..execute import Kernel
from ..families.matmul.family import may_be_in_place
from ..families.matmul.grouped import NIBBLE, pack_grouped
from ..families.matmul.layouts import GROUPED, pack_panels
from ..families.matmul.schedules import IN_PLACE_ENDING
from ..families.matmul.spec import Matmul
from ..families.matmul.tile_choice import (
    COPIED,
    IN_PLACE,
    NARROW,
    Measured,
    TileChoice,
    choose_narrow,
)
from .turns import Sampling, in_sequence, parse_probe, probe_text, turns_of

SECONDS = 0.3  # of processor time for a dtype, after which nothing is measured; compiling is not counted
ROWS = (12, 36)  # of two row tiles of 6 rows, and of six: as few and as many as there is a choice for
WIDTH = 768  # steps and columns
GROUP = 32  # steps of a group of integers of four bits
N_WEIGHTS = 28  # that take turns, so that they come from memory as in a model
SAMPLE_WEIGHTS = 4  # of a sample: 1 ms
N_SAMPLES = 6


def measure(target: str, seconds: float = SECONDS) -> TileChoice:
    """Return the choice for this machine, which runs `target`'s code; none for a dtype that takes longer."""
    choices = [_of_dtype(dtype, target, seconds) for dtype in NARROW]
    return reduce(lambda found, choice: choice.beside(found), choices)


def _of_dtype(dtype: str, target: str, seconds: float) -> TileChoice:
    packed = packed_zeros(dtype, WIDTH, WIDTH)
    spec = probe(dtype, packed)
    target = target_for(spec, target)
    sizes = (SizeRange(min(ROWS), max(ROWS)),)
    if not may_be_in_place(spec, sizes, target):
        return TileChoice()
    weights = [packed.copy() for _ in range(N_WEIGHTS)]
    ways = {
        name: Kernel(compile_kernel(spec, sizes, target, schedule=schedule))
        for name, schedule in ((COPIED, None), (IN_PLACE, IN_PLACE_ENDING))
    }
    runs = {
        rows: {name: in_sequence(way, rows, WIDTH, weights, SAMPLE_WEIGHTS) for name, way in ways.items()}
        for rows in ROWS
    }
    turns = turns_of(runs, Sampling(N_SAMPLES, SAMPLE_WEIGHTS), seconds)
    if turns is None:
        return TileChoice()
    return choose_narrow(dtype, {rows: Measured(COPIED, of) for rows, of in turns.items()})


def packed_zeros(dtype: str, k: int, n: int) -> np.ndarray:
    """Return a weight of zeros [K, N] of `dtype` in its memory layout."""
    if dtype == NIBBLE:
        return pack_grouped(np.zeros((k, n), np.int8), np.ones((k // GROUP, n), np.float32))
    return pack_panels(np.zeros((k, n), np.int8 if dtype == "i8" else np.uint16))


def probe(dtype: str, packed: np.ndarray, k: int = WIDTH, n: int = WIDTH) -> Matmul:
    """Return a product of any number of rows with such a weight."""
    layout, memory = (GROUPED, "u8") if dtype == NIBBLE else ("panels", dtype)
    return parse_probe(probe_text(k, n, memory, layout, packed.shape))
