"""Least times of contestants that take turns: what all measurements of `families.matmul.tile_choice` do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import process_time, thread_time_ns

from ..families.matmul.tile_choice import Turn

Run = Callable[[int], None]  # of products by the weights from a number on


def in_sequence(each: Sequence[Callable[[], object]], count: int) -> Run:
    """Return what launches `count` products one after the other, each by the next weight."""

    def run(first: int) -> None:
        for number in range(first, first + count):
            each[number % len(each)]()

    return run


def least_times(runs: Mapping[str, Run], n_samples: int, stride: int, end: float) -> Turn:
    """Return the least nanoseconds of each of `n_samples`, until `end` of the processor's time. A sample
    begins `stride` weights behind the one before."""
    least, first = dict.fromkeys(runs, inf), 0
    for _ in range(n_samples):
        for name, run in runs.items() if process_time() < end else ():
            start = thread_time_ns()
            run(first)
            least[name] = min(least[name], thread_time_ns() - start)
            first += stride
    return least
