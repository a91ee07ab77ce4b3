"""Hostile artifacts, C hosts and many threads, under sanitizers; the cost of a launch in a replay."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Build = Callable[[str, str], Path]


@pytest.mark.parametrize("seed", ["chain", "lookup", "data"])
def test_mutated_artifacts(build: Build, folder: Path, seed: str) -> None:
    command = [str(build("fuzz", "address")), str(folder / f"{seed}.svm"), "2000", "5"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded, ran, refused = map(
        int, re.match(r"(\d+) loaded \((\d+) ran.*?, (\d+) refused", done.stdout).groups()
    )
    assert loaded + refused == 2000 and ran >= 50  # the seed itself and harmless changes run


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_threads_share_a_program(build: Build, folder: Path, sanitizer: str) -> None:
    command = [str(build("test_threads", sanitizer)), str(folder / "chain.svm"), "2", "4", "1500"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {what.strip(): int(n) for n, what in re.findall(r"(\d+) ([a-z ]+)", done.stdout)}
    assert counts["calls"] == 6000 and counts["wrong"] == 0
    assert counts["plans evicted"] > 0 and counts["installed"] > 0 and counts["failed requests"] > 0


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_a_c_host(build: Build, folder: Path, sanitizer: str) -> None:
    command = [str(build("test_api", sanitizer)), str(folder / "lookup.svm"), str(folder / "data.svm")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_further_launch_is_cheap(build: Build, tmp_path: Path) -> None:
    import artifacts
    from shapevm.vm.writer import write

    np.save(tmp_path / "v.npy", np.ones(16, "<f4"))
    least = {}
    for n in (1, 201):
        write(artifacts.chain(n), tmp_path / "chain.svm")
        inputs = ["--input", f"x={tmp_path / 'v.npy'}", "--input", f"z={tmp_path / 'v.npy'}"]
        command = [
            str(build("runner", "plain")),
            str(tmp_path / "chain.svm"),
            *inputs,
            "--threads",
            "1",
            "--repeat",
            "2000",
        ]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        least[n] = float(re.search(r"min ([\d.]+) ms", printed)[1])
    assert (least[201] - least[1]) / 200 * 1e6 <= 150  # ns


@pytest.mark.parametrize("model", ["weighted", "lookup", "data"])
def test_every_damage_is_refused(
    build: Build, folder: Path, tmp_path: Path, request: pytest.FixtureRequest, model: str
) -> None:
    """Bits flipped and files cut, in memory and while they are mapped. All of them: pytest --all-damages."""
    step = 1 if request.config.getoption("--all-damages") else 251
    tool = build("test_damage", "plain" if step == 1 else "address")
    command = [str(tool), str(folder / f"{model}.svm"), str(step), str(tmp_path / "scratch.svm")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= 18 * (folder / f"{model}.svm").stat().st_size // step


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_programs_are_closed_while_threads_use_them(build: Build, folder: Path, sanitizer: str) -> None:
    n_closes = os.environ.get("SVM_TEST_CLOSES", "150")
    command = [str(build("test_lifetime", sanitizer)), str(folder / "chain.svm"), "2", n_closes]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and re.fullmatch(r".* 0 wrong\n", done.stderr), done.stderr


def test_hosts_that_misuse_the_api_get_errors(build: Build, folder: Path) -> None:
    command = [str(build("test_misuse", "address")), str(folder / "chain.svm")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
