"""Work shared out among threads."""

from __future__ import annotations

import os
import threading

import pytest
from shapevm.vm.shares import in_shares


@pytest.mark.parametrize("n_cpus", [1, 2, 7])
@pytest.mark.parametrize("n", [0, 1, 2, 13, 1000])
@pytest.mark.parametrize("least", [1, 5])
def test_shares_are_all_of_it_once(n: int, n_cpus: int, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(n_cpus))
    shares: list[tuple[int, int]] = []
    in_shares(n, lambda begin, end: shares.append((begin, end)), least)
    assert [i for begin, end in sorted(shares) for i in range(begin, end)] == list(range(n))
    assert len(shares) <= n_cpus and (len(shares) == 1 or min(b - a for a, b in shares) >= least)


def test_shares_are_worked_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other to begin."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2))
    both = threading.Barrier(2, timeout=60)
    in_shares(2, lambda begin, end: both.wait() and None)


def test_an_error_is_raised_once_all_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    ended = []

    def work(begin: int, end: int) -> None:
        ended.append(begin)
        if begin:
            raise ValueError(f"share {begin}")

    with pytest.raises(ValueError, match="share 1"):
        in_shares(3, work)
    assert sorted(ended) == [0, 1, 2]
