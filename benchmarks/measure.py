"""Timing that holds on noisy machines: alternate the contestants, take medians, report ratios."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from shapevm.jit.llvm.target import host_target

SHORT = "--short" in sys.argv  # a try of a benchmark, for those that know a shorter form
Run = Callable[[], object]


@dataclass(frozen=True)
class Figure:
    """One line of the report: what was measured, the figure with its unit, and the goal where there is
    one."""

    what: str
    figure: str
    goal: str = ""


def seconds(run: Run) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def interleaved(runs: dict[str, Run], rounds: int, warmup: int = 3) -> dict[str, list[float]]:
    """Return seconds per round of each contestant, measured in turn: a b c a b c ..."""
    for run in runs.values():
        for _ in range(warmup):
            run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(seconds(run))
    return times


def median(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def ratio(times: dict[str, list[float]], a: str, b: str) -> float:
    """Return the median over rounds of (seconds of a) / (seconds of b)."""
    return median([x / y for x, y in zip(times[a], times[b], strict=True)])


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` (0..1) of `values` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def per_call(run: Run, calls: int = 2000, rounds: int = 9) -> float:
    """Return the median seconds per call of a quick function, whose results are dropped at once."""

    def many() -> None:
        for _ in repeat(None, calls):
            run()

    many()
    return median([seconds(many) / calls for _ in range(rounds)])


def cpu_facts() -> dict[str, str]:
    """Return what the system says of its first CPU: name, family, model."""
    first = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    return {key.strip(): value.strip() for key, value in (line.split(":", 1) for line in first)}


def processor() -> str:
    """Return the kind of processor that figures hold for: its name and family, and shapevm's target."""
    facts = cpu_facts()
    return f"{facts['model name']}, family {facts['cpu family']} ({host_target()})"


def machine() -> str:
    """Return the CPU's name, its cores, and the kernel."""
    cpus = len(os.sched_getaffinity(0))
    return f"{cpu_facts()['model name']}, {cpus} CPUs, {platform.system()} {platform.release()}"
