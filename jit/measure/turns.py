"""Alternating measurements of products by weights from memory: the common part of all measurements of
`families.matmul.tile_choice`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf
from time import process_time, thread_time_ns
from typing import NamedTuple, TypeVar

import numpy as np

from ..execute import Kernel
from ..families.matmul.schedules import PANEL
from ..families.matmul.spec import Matmul
from ..families.matmul.tile_choice import Turn
from ..llvm.prefetch import LINE_BYTES
from ..text import parse_spec

N_TURNS = 3  # each over all classes, so that a slow spell of the machine is no more than a turn
#: A product with a constant weight.
PROBE = """matmul n_dims=1 batch=[] m=n0 n={n} k={k} a=0 a_index=[i0,i2] b=1 b_index=[] b_layout="{layout}"
  b0 f32[n0,{k}]
  b1 {dtype}[{shape}]
  b2 f32[n0,{n}] output
  v0 = acc f32
  v1 = store f32 v0 b2[i0,i1]"""
Name = TypeVar("Name", bound=Hashable)
Run = Callable[[int], None]  # of products by the weights from a number on


class Sampling(NamedTuple):
    """The samples of a round, and the distance in weights between their starts."""

    n: int
    stride: int


def probe_text(k: int, n: int, dtype: str = "f32", layout: str = "panels", shape: Sequence[int] = ()) -> str:
    """Return the text of a product of any number of rows by a constant weight of `k` steps and `n` columns.
    `shape`: of the weight's buffer, () for panels."""
    sizes = ",".join(map(str, shape or (-(-n // PANEL), k, PANEL)))
    return PROBE.format(n=n, k=k, layout=layout, dtype=dtype, shape=sizes)


def parse_probe(text: str) -> Matmul:
    """Return the product that such a text says."""
    spec = parse_spec(text)
    assert isinstance(spec, Matmul)
    return spec


def line_aligned(count: int) -> np.ndarray:
    """Return an f32 array of halves (0.5) aligned to a cache line, like a program's arrays."""
    memory = np.full(count + LINE_BYTES // 4, 0.5, np.float32)
    start = -memory.ctypes.data % LINE_BYTES // 4
    return memory[start : start + count]


def in_sequence(kernel: Kernel, rows: int, width: int, weights: Sequence[np.ndarray], count: int) -> Run:
    """Return a function that multiplies `rows` rows by `count` weights in sequence."""
    a, out = (line_aligned(rows * width).reshape(rows, width) for _ in range(2))
    each = [kernel.launch([a, weight, out], (rows,)) for weight in weights]

    def run(first: int) -> None:
        for number in range(first, first + count):
            each[number % len(each)]()

    return run


def turns_of(
    runs: Mapping[Name, Mapping[str, Run]], sampling: Sampling, seconds: float
) -> dict[Name, list[Turn]] | None:
    """Return the rounds of each class of contestants; None if they exceed the limit of CPU seconds."""
    end = process_time() + seconds
    turns = [{name: _least_times(each, sampling, end) for name, each in runs.items()} for _ in range(N_TURNS)]
    return None if process_time() > end else {name: [turn[name] for turn in turns] for name in runs}


def _least_times(runs: Mapping[str, Run], sampling: Sampling, end: float) -> Turn:
    """Return the least nanoseconds of each, until `end` of the processor's time."""
    least, first = dict.fromkeys(runs, inf), 0
    for _ in range(sampling.n):
        for name, run in runs.items() if process_time() < end else ():
            start = thread_time_ns()
            run(first)
            least[name] = min(least[name], thread_time_ns() - start)
            first += sampling.stride
    return least
