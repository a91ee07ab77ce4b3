"""A program that PyInstaller has frozen compiles kernels, on a thread, and finds them again."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shapevm import jit

PYTHON = os.environ.get("HOSTS_PYTHON", "")
PROGRAM = Path(__file__).with_name("frozen_program.py")
pytestmark = pytest.mark.skipif(not PYTHON, reason="needs PyInstaller: make hosts")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frozen")
    command = [PYTHON, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", str(PROGRAM)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return folder / "dist/frozen_program/frozen_program"


def run(program: Path, path: Path, cache: Path) -> dict[str, Any]:
    own = {"SHAPEVM_CACHE_DIR": str(cache), "SHAPEVM_COMPILE_BUDGET": "1000", "PATH": "/nowhere"}
    done = subprocess.run([program, path], env=own, capture_output=True, text=True, cwd=cache.parent)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def test_a_frozen_program(frozen: Path, path: Path, tmp_path: Path) -> None:
    first = run(frozen, path, tmp_path / "cache")
    assert first["helper"] is None  # it cannot start an interpreter
    assert all(first["exact"].values()) and not first["cached"]["jit"]
    modules = {module.name for module in pkgutil.walk_packages(jit.__path__, "shapevm.jit.")}
    assert first["modules"].keys() == modules | {"shapevm.jit"}
    assert all(n_bytes != 32 for n_bytes in first["modules"].values())  # random ones
    assert first["runner"]
    assert run(frozen, path, tmp_path / "cache")["cached"]["jit"]
