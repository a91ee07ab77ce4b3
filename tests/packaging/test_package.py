"""The installed distribution: one version, a runner that starts, a front door that needs no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import requires, version

import shapevm
from shapevm.runner import runner_path


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
