"""Tests against one mutant, in a process that was forked where PyTorch is imported and shapevm is not."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

SLOWER = 5  # a mutant may make a test so many times as slow, and take
GRACE = 20.0  # seconds more, before it counts as noticed
COLLECTION = 180.0  # seconds until the first test begins, at most


class ChangedSource(importlib.machinery.SourceFileLoader):
    """Compiles the mutant; no bytecode is read or kept."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)


class Replaced(importlib.abc.MetaPathFinder):
    """Finds modules as the others do, but for those whose files are replaced: by source or, for an extension
    module, by another file."""

    def __init__(self, sources: dict[str, bytes], files: dict[str, str]) -> None:
        self._sources, self._files = sources, files

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith("shapevm"):
            return None
        if name in self._files:
            loader = importlib.machinery.ExtensionFileLoader(name, self._files[name])
            return importlib.machinery.ModuleSpec(name, loader, origin=self._files[name])
        others = (f for f in sys.meta_path if f is not self)
        spec = next((s for f in others if (s := f.find_spec(name, path, target))), None)
        if spec is not None and spec.origin and os.path.realpath(spec.origin) in self._sources:
            source = self._sources[os.path.realpath(spec.origin)]
            spec.loader = ChangedSource(name, spec.origin, source)
        return spec


class _Chosen:
    """The tests that are run, in their order; one that takes too long ends the process."""

    def __init__(self, tests: Mapping[str, float]) -> None:
        self._seconds = tests
        self._order = {name: i for i, name in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(known, key=lambda item: self._order[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        signal.setitimer(signal.ITIMER_REAL, SLOWER * self._seconds[item.nodeid] + GRACE)
        return (yield)


def run(
    replaced: Replaced,
    tested: Mapping[str, str],
    tests: Mapping[str, float],
    folder: Path,
    plugins: Sequence[object] = (),
) -> int:
    """Return pytest's exit code after the first of `tests` that fails, or all of them with `plugins`; a
    signal's negative number where a test ended so, or took too long for the seconds that it has. `tested`:
    variables of the environment that tell tests of the runner and of C sources what to use."""
    pid = os.fork()
    if pid == 0:
        _test(replaced, tested, tests, folder, plugins)
    _, status = os.waitpid(pid, 0)
    with suppress(ProcessLookupError):  # what tests have started
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def _test(
    replaced: Replaced,
    tested: Mapping[str, str],
    tests: Mapping[str, float],
    folder: Path,
    plugins: Sequence[object],
) -> None:
    """Never returns."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, COLLECTION)
    os.setsid()
    with open(folder / "output.txt", "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.meta_path.insert(0, replaced)
    code = 1
    try:
        os.environ.update(tested)
        if "TESTED_RUNNER" in tested:
            import shapevm.runner

            shapevm.runner.runner_path = lambda: Path(tested["TESTED_RUNNER"])
        files = sorted({test.split("::")[0] for test in tests})
        options = [
            *([] if plugins else ["-x"]),
            "-q",
            "--drawn=1",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            f"--basetemp={folder}/temporary",
        ]
        code = pytest.main([*options, *files], plugins=[_Chosen(tests), *plugins])
    finally:
        os._exit(code)
