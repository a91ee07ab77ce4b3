"""The arena of a context as an allocator: runtime_c/tools/test_arena.c."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize("flags", ["plain", "address"])
def test_allocations_in_an_arena(build: Callable[[str, str], Path], flags: str) -> None:
    done = subprocess.run([build("test_arena", flags)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
