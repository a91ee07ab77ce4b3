"""Which tests a run leaves out: shares of rows of cases, of slow tests, of all, drawn by the run's seed.

`python -m tests.drawing REPORT.xml...` writes `slow.txt` anew by reports of runs (pytest's `--junitxml`)."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Iterable
from math import ceil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

SLOW_TESTS = Path(__file__).parent / "slow.txt"
SLOW = 2.0  # seconds of one case on two cores


def function_of(nodeid: str) -> str:
    """Return a test's path and name without its parameters."""
    return nodeid.split("[")[0]


def slow_tests() -> dict[str, float]:
    """Return the seconds that one case takes of each test in `slow.txt`."""
    lines = (line.split() for line in SLOW_TESTS.read_text().splitlines() if not line.startswith("#"))
    return {name: float(seconds) for seconds, name in lines}


def left_out(items: list[Any], options: Any) -> list[Any]:
    """Return the tests that a run with pytest's `options` does not run, in the order of `items`."""
    out: set[Any] = set()
    rows = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("drawn"):
            rows[function_of(item.nodeid), max(options.drawn, mark.kwargs.get("least", 0))].append(item)
    for (name, share), cases in rows.items():
        out.update(_all_but(share, cases, f"{options.seed} {name}"))
    slow = slow_tests()
    pool = [item for item in items if item not in out and function_of(item.nodeid) in slow]
    out.update(_all_but(options.slow, pool, f"{options.seed} slow"))
    kept = [item for item in items if item not in out]
    out.update(_all_but(options.sample, kept, str(options.seed)))
    return [item for item in items if item in out]


def _all_but(share: float, items: list[Any], seed: str) -> list[Any]:
    return random.Random(seed).sample(items, len(items) - ceil(share * len(items)))


def slow_lines(reports: Iterable[Path]) -> list[str]:
    """Return the lines of `slow.txt` by JUnit reports of runs: what one case of a test took on average."""
    seconds = defaultdict(list)
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            path = case.get("classname", "").replace(".", "/") + ".py"
            seconds[f"{path}::{function_of(case.get('name', ''))}"].append(float(case.get("time", 0)))
    means = {name: sum(taken) / len(taken) for name, taken in seconds.items()}
    return [f"{mean:.0f} {name}" for name, mean in sorted(means.items()) if mean >= SLOW]


if __name__ == "__main__":
    lines = slow_lines(Path(report) for report in sys.argv[1:])
    SLOW_TESTS.write_text("\n".join(["# seconds of one case, test", *lines, ""]))
