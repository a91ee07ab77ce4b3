"""The installed distribution: one version, a runner that starts, a front door that needs no compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import requires, version
from pathlib import Path

import shapevm
from shapevm.runner import runner_path

ROOT = Path(__file__).parents[2]


def test_one_version() -> None:
    assert shapevm.__version__ == version("shapevm")


def test_compiling_is_an_extra() -> None:
    plain = [line for line in requires("shapevm") or [] if "extra ==" not in line]
    assert {line.split(">")[0] for line in plain} == {"cffi", "click", "numpy", "platformdirs", "rich"}


def test_front_door_imports_neither_torch_nor_llvmlite() -> None:
    code = "import sys, shapevm, shapevm.vm; print([n for n in ('torch', 'llvmlite') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_runner_is_an_executable_of_this_build() -> None:
    path = runner_path()
    assert os.access(path, os.X_OK)
    done = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "shapevm-run" in done.stdout + done.stderr


def test_what_compiling_needs() -> None:
    extra = [line for line in requires("shapevm") or [] if line.endswith('extra == "compile"')]
    assert {line.split(">")[0] for line in extra} == {"llvmlite", "sympy", "torch"}


def test_no_cached_property() -> None:
    """On Python 3.11 it takes a lock, which a forked child may find held for ever."""
    sources = [path for name in ("vm", "jit", "compiler", "shapevm") for path in (ROOT / name).rglob("*.py")]
    assert sources and not [p for p in sources if re.search(r"^\s*@.*cached_property", p.read_text(), re.M)]
