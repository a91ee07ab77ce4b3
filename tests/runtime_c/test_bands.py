"""Bands of random chains: all that a step may read is right, in rings that have room for it."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize(("flags", "n_chains"), [("address", 5000), ("thread", 1000)])
def test_random_chains_in_bands(build: Callable[[str, str], Path], flags: str, n_chains: int) -> None:
    seed = str(secrets.randbits(32))
    command = [str(build("fuzz_bands", flags)), str(n_chains), seed]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (seed, done.stderr)
    _, in_bands, failed = (int(part.split()[0]) for part in done.stdout.split(", "))
    assert in_bands > n_chains // 2 and failed > n_chains // 100, (seed, done.stdout)
