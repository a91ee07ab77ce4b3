"""How the threads of the pool share out the tiles of a launch."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[[str, str], Path]
LEAST_BLOCK = 8  # that of runtime_c/base/threads.c


def shared(build: Build, n_tiles: int, n_threads: int) -> tuple[list[tuple[int, int, bool]], float]:
    """Return the blocks by their begin, (begin, end, whether the caller ran it), and the milliseconds of
    processor time that a caller takes who waits 200 ms for a worker."""
    command = [str(build("test_sharing", "plain")), str(n_tiles), str(n_threads)]
    *lines, last = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=60
    ).stdout.splitlines()
    blocks = sorted((int(begin), int(end), own == "1") for begin, end, own in map(str.split, lines))
    return blocks, float(last.split()[1])


@pytest.mark.parametrize(("n_tiles", "n_threads"), [(2, 2), (12, 2), (33, 2), (1000, 2), (1000, 4), (5, 8)])
def test_blocks_are_shares_of_what_is_left(build: Build, n_tiles: int, n_threads: int) -> None:
    blocks, _ = shared(build, n_tiles, n_threads)
    assert [begin for begin, _, _ in blocks] == [0, *(end for _, end, _ in blocks[:-1])]
    assert blocks[-1][1] == n_tiles
    for begin, end, _ in blocks:
        left = n_tiles - begin
        share = max(left // n_threads, min(LEAST_BLOCK, -(-n_tiles // n_threads)))
        assert end - begin == min(share, left)


def test_a_slow_worker_leaves_its_tiles_to_the_caller(build: Build) -> None:
    """Workers take 300 ms for a block, the caller 1 ms: beyond each worker's first block all are its
    own."""
    blocks, _ = shared(build, 1000, 4)
    others = [end - begin for begin, end, is_own in blocks if not is_own]
    assert len(others) <= 3 and len(blocks) > 12


def test_a_caller_that_waits_leaves_its_processor_to_the_worker(build: Build) -> None:
    _, cpu_ms = shared(build, 2, 2)
    assert cpu_ms < 100
