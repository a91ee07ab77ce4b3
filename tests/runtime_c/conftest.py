"""The C programs of runtime_c, built by a bare compiler line, and the artifacts that they run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
RUNTIME = Path(__file__).parents[2] / "runtime_c"
_ORIGINAL, _, _CHANGED = os.environ.get("TESTED_SOURCE", "").partition("=")


def source(path: Path) -> str:
    """Return the path of a C source: another one's where `TESTED_SOURCE` is "this path=another one"."""
    return _CHANGED if str(path) == _ORIGINAL else str(path)


ROOMS = ("base", "values", "program", "run")
LIBRARY = [source(path) for room in ROOMS for path in sorted((RUNTIME / room).glob("*.c"))]
RUNNER = [source(path) for path in sorted((RUNTIME / "runner").glob("*.c"))]
INCLUDE = [f"-I{RUNTIME}", f"-I{RUNTIME / 'include'}", *([f"-I{Path(_ORIGINAL).parent}"] if _CHANGED else [])]
FLAGS = {
    "plain": ["-O2"],
    "address": [
        "-O1",
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-fno-omit-frame-pointer",
    ],
    "thread": ["-O1", "-g", "-fsanitize=thread"],
}


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return a function (program, flags' name) -> executable; the runner is that of `TESTED_RUNNER`, if this
    is set, whatever the flags."""
    folder = tmp_path_factory.mktemp("bin")

    @cache
    def make(program: str, flags: str) -> Path:
        if program == "runner" and "TESTED_RUNNER" in os.environ:
            return Path(os.environ["TESTED_RUNNER"])
        out = folder / f"{program}-{flags}"
        command = [
            "cc",
            "-Wall",
            "-Wextra",
            *FLAGS[flags],
            "-pthread",
            *INCLUDE,
            *LIBRARY,
            *(RUNNER if program == "runner" else [str(RUNTIME / "tools" / f"{program}.c")]),
        ]
        done = subprocess.run([*command, "-o", str(out), "-lm"], capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return out

    return make


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with chain.svm, lookup.svm, data.svm, weighted.svm, list.svm and rows.svm."""
    import artifacts
    from shapevm.vm.writer import write

    folder = tmp_path_factory.mktemp("artifacts")
    write(artifacts.chain(2, (8,)), folder / "chain.svm")
    write(artifacts.with_code(artifacts.LOOKUP), folder / "lookup.svm")
    write(artifacts.with_code(artifacts.DATA), folder / "data.svm")
    write(artifacts.with_code(artifacts.LIST), folder / "list.svm")
    write(artifacts.with_code(artifacts.ROWS), folder / "rows.svm")
    write(artifacts.weighted(100), folder / "weighted.svm")
    return folder
