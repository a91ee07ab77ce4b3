"""Each engine itself, on this machine, with a worker that is killed in the middle: every row has one result.

`make integrations` installs the engines into an environment of their own and names its Python in
ENGINES_PYTHON; without it, an engine that is installed beside shapevm is tested, the others are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import shapevm

N = 60
PYTHON = os.environ.get("ENGINES_PYTHON", "")
MODULES = {"ray": "ray", "ray_caches": "ray", "serve": "ray", "spark": "pyspark"}
BEAM = {"beam": -9, "beam_processes": 1, "beam_portable": 1}  # exit statuses where a worker is killed
MODULES.update(dict.fromkeys(BEAM, "apache_beam"))


class Sums(torch.nn.Module):
    """Sums of a row, and weights for workers to map."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.zeros(1024, 64))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"running": x.cumsum(1), "sum": x.sum(1) + self.table[x.shape[1]].sum()}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows, length = torch.export.Dim("rows", min=1, max=64), torch.export.Dim("length", min=0, max=64)
    exe = shapevm.compile(Sums(), (torch.zeros(3, 5),), dynamic_shapes=({0: rows, 1: length},))
    place = tmp_path_factory.mktemp("rows") / "sums.svm"
    exe.save(place)
    return place


def is_installed(module: str) -> bool:
    """Whether there is a package, and not only a folder of its name."""
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None


def start(engine: str, path: Path, folder: Path) -> tuple[int, list[dict[str, Any]], str]:
    """Run an engine; return its exit status, the results in the order of their rows, and what it logged."""
    if not PYTHON and not is_installed(MODULES[engine]):
        pytest.skip(f"{MODULES[engine]} is not installed: make integrations")
    if not PYTHON and engine == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime: make integrations")
    script = Path(__file__).with_name("engines.py")
    command = [PYTHON or sys.executable, "-P", script, engine, path, str(N), folder]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, sorted(lines, key=lambda line: line.get("id", N)), done.stderr[-4000:]


def sums(lines: list[dict[str, Any]]) -> list[tuple[int, float]]:
    return [(line["id"], line["sum"]) for line in lines]


EXPECTED = [(i, float(i * (i % 9))) for i in range(N)]


@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_a_killed_worker_loses_and_doubles_no_row(engine: str, path: Path, tmp_path: Path) -> None:
    status, lines, log = start(engine, path, tmp_path)
    assert status == 0, log
    assert sums(lines) == EXPECTED
    assert (tmp_path / "killed").exists()


def test_rows_that_a_killed_replica_had_are_asked_again(path: Path, tmp_path: Path) -> None:
    status, lines, log = start("serve", path, tmp_path)
    assert status == 0, log
    assert sums(lines[:-1]) == EXPECTED
    assert (tmp_path / "killed").exists()
    assert "row 0 lacks input 'x'; it has id, y" in lines[-1]["error"]


@pytest.mark.parametrize("engine", BEAM)
def test_a_killed_pipeline_of_beam_publishes_nothing_and_its_repetition_all(
    engine: str, path: Path, tmp_path: Path
) -> None:
    """Beam's local runners repeat nothing themselves: where a worker dies, the pipeline fails."""
    status, lines, log = start(engine, path, tmp_path)
    assert (status, lines) == (BEAM[engine], []), log
    assert not list(tmp_path.glob("out*")) and (tmp_path / "killed").exists()
    status, lines, log = start(engine, path, tmp_path)
    assert status == 0, log
    assert sums(lines) == EXPECTED
    assert {line["is_elsewhere"] for line in lines} == {engine != "beam"}


def test_a_new_machine_compiles_nothing_and_its_workers_map_one_file(path: Path, tmp_path: Path) -> None:
    status, lines, log = start("ray_caches", path, tmp_path)
    assert status == 0, log
    first, second = ([line for line in lines if line["machine"] == name] for name in "ab")
    assert sums(first) == sums(second) == EXPECTED
    assert max(line["compiled"] for line in first) > 0
    assert {line["compiled"] for line in second} == {0}
    assert min(line["cached"] for line in second) > 0
    assert len({line["pid"] for line in lines}) > 1
    assert {line["mapped"] for line in lines} == {path.stat().st_ino}
