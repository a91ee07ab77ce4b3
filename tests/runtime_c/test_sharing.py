"""How the threads of the pool share out the tiles of a launch."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[[str, str], Path]
LEAST_BLOCK = 2  # that of runtime_c/base/threads.c


def shared(
    build: Build, n_tiles: int, n_threads: int, n_calls: int = 0
) -> tuple[list[tuple[int, int, bool]], float]:
    """Return the blocks by their begin, (begin, end, whether the caller ran it), and the milliseconds of
    processor time that a caller takes who waits 200 ms for a worker."""
    numbers = [n_tiles, n_threads, *([n_calls] if n_calls else [])]
    command = [str(build("test_sharing", "plain")), *map(str, numbers)]
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
    """Workers hold their blocks until all tiles are taken: beyond each worker's first block all are the
    caller's."""
    blocks, _ = shared(build, 1000, 4)
    others = [end - begin for begin, end, is_own in blocks if not is_own]
    assert len(others) <= 3 and len(blocks) > 12


@pytest.mark.parametrize(("n_threads", "n_calls"), [(2, 2), (2, 9), (4, 4), (4, 5)])
def test_calls_that_take_all_processors_run_alone(build: Build, n_threads: int, n_calls: int) -> None:
    blocks, _ = shared(build, 1000, n_threads, n_calls)
    assert blocks == [(0, 1000, True)]


def test_a_launch_leaves_a_processor_to_each_other_call(build: Build) -> None:
    blocks, _ = shared(build, 1000, 4, 3)
    assert blocks[0][1] == 500 and sum(not is_own for _, _, is_own in blocks) <= 1


def test_a_caller_that_waits_leaves_its_processor_to_the_worker(build: Build) -> None:
    _, cpu_ms = shared(build, 2, 2)
    assert cpu_ms < 100


# Launches of 200 us alone. A thread that loses its processor for 3 ms in the middle of a tile holds its
# launch up as long.
GOOD, HELD_UP = (200, 110), (200, 3100)


def play(build: Build, *groups: tuple[tuple[int, int], int]) -> list[tuple[int, float]]:
    """Return of each group of (microseconds alone, shared) and repeats how many launches were shared, and how
    long all took beside all alone."""
    words = [str(word) for (alone, shared), repeats in groups for word in (alone, shared, repeats)]
    command = [str(build("test_pays", "address")), *words]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [(int(n_shared), float(share)) for n_shared, share in map(str.split, lines)]


def test_launches_that_gain_are_shared(build: Build) -> None:
    assert play(build, (GOOD, 1000)) == [(1000, 0.55)]


def test_a_short_wait_changes_nothing(build: Build) -> None:
    assert [n for n, _ in play(build, (GOOD, 100), ((200, 900), 1), (GOOD, 100))] == [100, 1, 100]


def test_where_threads_lose_their_processor_launches_run_alone(build: Build) -> None:
    """A thread runs for 3 ms, waits for 3 ms, and so on: no slower than one thread, but for 5 %."""
    rounds = play(build, *[(GOOD, 28), (HELD_UP, 1)] * 200)
    time = sum(share * (28 if i % 2 == 0 else 1) for i, (_, share) in enumerate(rounds))
    assert time / (29 * 200) < 1.05
    assert sum(n for n, _ in rounds) < 29 * 200 / 4


def test_sharing_comes_back(build: Build) -> None:
    """A second after the last wait; and the pause is short again once all has gone well for a while."""
    *_, after, _, again = play(
        build, *[(GOOD, 28), (HELD_UP, 1)] * 20, (GOOD, 10000), (HELD_UP, 1), (GOOD, 1000)
    )
    assert after[0] > 8000 and again[0] > 900
