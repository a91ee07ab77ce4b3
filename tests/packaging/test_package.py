"""The installed distribution: one version, a runner that starts, a front door that needs no compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires, version
from pathlib import Path

import pytest

import shapevm
from shapevm.cli.tested_versions import TESTED, Versions
from shapevm.runner import runner_path

ROOT = Path(__file__).parents[2]


def test_one_version() -> None:
    assert shapevm.__version__ == version("shapevm")


def test_the_oldest_versions_tested_are_those_that_are_claimed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    claims = [*project["dependencies"], *extras["compile"], f"python{project['requires-python']}"]
    assert dict(claim.split(">=") for claim in claims) == {name: row.oldest for name, row in TESTED.items()}
    assert set(extras["nn"]) & set(extras["compile"]) == {c for c in extras["compile"] if "torch" not in c}


def test_the_page_of_versions() -> None:
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \|$", (ROOT / "docs/install.md").read_text(), re.M)
    assert {(name.lower(), oldest, newest) for name, oldest, newest in rows} == {
        (name, row.oldest, row.newest) for name, row in TESTED.items()
    }


@pytest.mark.parametrize(
    ("version", "is_too_old", "is_too_new"),
    [
        ("2.11.9", True, False),
        ("2.12.0+cpu", False, False),
        ("2.14.9", False, False),
        ("2.15", False, True),
    ],
)
def test_what_lies_outside_the_tested_versions(version: str, is_too_old: bool, is_too_new: bool) -> None:
    tested = Versions("2.12.0", "2.14.1")
    assert (tested.is_too_old(version), tested.is_too_new(version)) == (is_too_old, is_too_new)


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
