"""Which test runs which line of the C runtime: a build of it that counts its lines, and a pytest plugin that
reads the counters after each test. The runner's processes count too."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from .c_build import CBuild
from .child import Replaced, run
from .coverage_map import C_LINES, FOLDER, ROOT

#: Writes the counters of the module's lines to files, and sets them to 0.
_DUMP = b"""
void __gcov_dump(void);
void __gcov_reset(void);
__attribute__((visibility("default"))) void mutation_counters_dump(void) { __gcov_dump(); __gcov_reset(); }
"""
_MODULE = "shapevm.vm._runtime"
MAX_SECONDS = 600.0  # of a test


class Collector:
    """Notes, test by test, which lines of C run, in `folder` with the objects of a counting build."""

    def __init__(self, module: str, folder: Path) -> None:
        self._module, self._folder = module, folder
        self._lines: dict[str, dict[int, list[str]]] = {}
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._clear()
        begin = time.monotonic()
        done = yield
        self._seconds[item.nodeid] = time.monotonic() - begin
        self._dump()
        self._note(item.nodeid)
        return done

    def pytest_unconfigure(self) -> None:
        C_LINES.write_text(json.dumps(self._lines))
        (FOLDER / "seconds.c.json").write_text(json.dumps(self._seconds))

    def _counters(self) -> list[Path]:
        return sorted(self._folder.glob("*.gcda"))

    def _dump(self) -> None:
        ctypes.CDLL(self._module).mutation_counters_dump()

    def _clear(self) -> None:
        self._dump()
        for path in self._counters():
            path.unlink()

    def _note(self, test: str) -> None:
        found = self._counters()
        if not found:
            return
        done = subprocess.run(
            ["gcov", "-j", "-t", *map(str, found)], cwd=self._folder, capture_output=True, check=True
        )
        for text in done.stdout.splitlines():
            data = json.loads(text)
            for file in data["files"]:
                path = os.path.relpath(Path(data["current_working_directory"], file["file"]).resolve(), ROOT)
                rows = self._lines.setdefault(path, {})
                for line in file["lines"]:
                    if line["count"]:
                        rows.setdefault(line["line_number"], []).append(test)


def collect(tests: Sequence[str], folder: Path) -> int | None:
    """Run these tests once on a counting build, writing the map; return pytest's exit code."""
    build = CBuild(folder, ["--coverage"])
    module, runner = build.linked(build.with_source("mutation_counters.c", _DUMP))
    replaced = Replaced({}, {_MODULE: module})
    limits = dict.fromkeys(tests, MAX_SECONDS)
    return run(replaced, {"TESTED_RUNNER": runner}, limits, folder, [Collector(module, folder)])
