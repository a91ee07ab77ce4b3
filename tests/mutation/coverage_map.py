"""Which test runs which line of the source, and how long it takes: a pytest plugin that collects it, and the
map read back. `python -m tests.mutation --collect` runs the tests under it, once."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "mutation"
C_LINES = FOLDER / "c_lines.json"
SOURCES = ("jit", "compiler/passes", "compiler/lower")
LONGEST = 20.0  # seconds: slower tests kill no mutants


class Collector:
    """Notes, test by test, what runs. Each process of a run writes a file of its own."""

    def __init__(self) -> None:
        import coverage

        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self.seconds: dict[str, float] = {}
        self.path = FOLDER / f"seconds.{name}.json"
        sources = [str(ROOT / part) for part in SOURCES]
        self.measured = coverage.Coverage(str(FOLDER / f"lines.{name}"), include=[f"{s}/*" for s in sources])
        self.measured.erase()
        self.measured.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.measured.switch_context(item.nodeid)
        begin = time.monotonic()
        done = yield
        self.seconds[item.nodeid] = time.monotonic() - begin
        self.measured.switch_context("")
        return done

    def pytest_unconfigure(self) -> None:
        self.measured.stop()
        self.measured.save()
        self.path.write_text(json.dumps(self.seconds))


def pytest_configure(config: Any) -> None:
    """Collect in the processes that run tests."""
    if os.environ.get("PYTEST_XDIST_WORKER") or not config.getoption("numprocesses", None):
        FOLDER.mkdir(parents=True, exist_ok=True)
        config.pluginmanager.register(Collector())


@dataclass(frozen=True)
class CoverageMap:
    """`seconds` of each test; by file and line, the tests that run it."""

    seconds: dict[str, float]
    lines: dict[str, dict[int, list[str]]]

    @classmethod
    def read(cls) -> CoverageMap:
        """Return what was collected. Raises FileNotFoundError where nothing was."""
        import coverage

        seconds: dict[str, float] = {}
        lines: dict[str, dict[int, list[str]]] = {}
        for path in FOLDER.glob("seconds.*.json"):
            seconds |= json.loads(path.read_text())
        for path in FOLDER.glob("lines.*"):
            data = coverage.CoverageData(str(path))
            data.read()
            for file in data.measured_files():
                known = lines.setdefault(str(Path(file).resolve().relative_to(ROOT)), {})
                for line, tests in data.contexts_by_lineno(file).items():
                    known.setdefault(line, []).extend(filter(None, tests))
        if not seconds:
            raise FileNotFoundError(f"{FOLDER} has no map: run `python -m tests.mutation --collect`")
        for file, known in json.loads(C_LINES.read_text()).items() if C_LINES.exists() else ():
            lines[file] = {int(line): tests for line, tests in known.items()}
        return cls(seconds, lines)

    def tests_of(self, file: str, line: int, budget: float) -> dict[str, float]:
        """Return the tests that run a line and the seconds of each, in the order in which they are worth
        running, as many as take `budget` seconds together. Those that run any line of a module stand for a
        line that runs when it is imported."""
        lines = self.lines.get(file, {})
        found = lines.get(line, [])
        if not found and file.endswith(".py"):
            found = sorted({test for tests in lines.values() for test in tests})
        return self.cheapest(found, budget)

    def cheapest(self, tests: Iterable[str], budget: float) -> dict[str, float]:
        """Return the fastest case of every test function, then the second of each, and so on, as many as take
        `budget` seconds together: cases of one function notice much the same."""
        known = {test: self.seconds.get(test, LONGEST) for test in tests}
        n_cases: Counter[str] = Counter()
        ranks = {}
        for test in sorted(known, key=lambda name: (known[name], name)):
            function = test.partition("[")[0]
            ranks[test] = n_cases[function]
            n_cases[function] += 1
        chosen: dict[str, float] = {}
        for test in sorted(known, key=lambda name: (ranks[name], known[name])):
            if known[test] < min(budget, LONGEST):
                chosen[test] = known[test]
                budget -= known[test]
        return chosen
