"""Under a budget exact code is compiled where it pays, what is worth most first."""

import time

import numpy as np
import pytest

import shapevm
from shapevm import gain, specialise


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).random((n, 8), "f")


def wait_until(holds, seconds=120):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def price(monkeypatch):
    """What compiling is expected to take, in nanoseconds: too much at first."""
    found = {"ns": 1e15}
    monkeypatch.setattr(gain.Gains, "compile_ns", lambda self, kernel: found["ns"])
    return found


@pytest.fixture
def measured(monkeypatch):
    """Code is measured to take as long as this says by tier; no kernel is on disk."""
    times = {gain.EXACT: 1000.0, gain.GENERIC: 1500.0}
    monkeypatch.setattr(
        gain, "measured_ns", lambda o, dims: times[gain.EXACT if o.exact_dims else gain.GENERIC]
    )
    with shapevm.settings.scope(cache=False, compile_budget=1000):
        yield times


def states(exe, n):
    return {entry.state for _, entry in exe.stats().entries if entry.dims == (n,)}


def test_it_waits_until_it_pays(artifact, measured, price):
    with shapevm.load(artifact, strategy="auto") as exe:
        for _ in range(50):
            exe(rows(7))
        wait_until(lambda: len(exe.pays_after) == len({kernel for kernel, _ in exe.stats().entries}))
        assert states(exe, 7) == {"compiling"} and exe.stats().compiled <= 2  # generic code, for its cost
        assert all(n > 10**6 for n in exe.pays_after.values())
        assert "compiling pays after" in exe.explain().text()
        assert exe.wait_until_specialised() and states(exe, 7) == {"compiled"}


def test_what_is_worth_most_comes_first(artifact, measured, price, monkeypatch):
    made = []
    compile_one = specialise.Specialiser._compile
    monkeypatch.setattr(
        specialise.Specialiser, "_compile", lambda self, *key: (made.append(key[1]), compile_one(self, *key))
    )
    with shapevm.load(artifact, strategy="auto") as exe:
        for n, count in ((11, 4), (7, 60), (9, 20)):
            for _ in range(count):
                exe(rows(n))
        n_waiting = 3 * len({k for k, _ in exe.stats().entries})
        wait_until(lambda: len(exe.pays_after) == n_waiting)
        time.sleep(3 * specialise.LOOK_SECONDS)
        assert made == []
        price["ns"] = 1.0
        wait_until(lambda: len(made) == n_waiting)
    assert made[0] == (7,) and made[-1] == (11,)


def test_no_gain_no_code(artifact, measured, price):
    measured[gain.GENERIC] = 1005.0
    price["ns"] = 1e-3
    with shapevm.load(artifact, strategy="auto") as exe:
        for n in range(40, 43):
            while not states(exe, n) <= {"compiled", "declined"} or not states(exe, n):
                exe(rows(n))
        assert states(exe, 42) == {"declined"} and states(exe, 40) == {"compiled"}
        assert "not compiled: generic is as fast" in exe.explain().text()
        exe.using("jit")(rows(42))  # who waits for it gets it
        assert states(exe, 42) == {"compiled"}


def test_what_waits_is_bounded(artifact, measured, price, monkeypatch):
    monkeypatch.setattr(specialise, "MAX_WAITING", 6)
    with shapevm.load(artifact, strategy="auto") as exe:
        for n in range(20, 60):
            for _ in range(n // 4):
                exe(rows(n))
        wait_until(lambda: exe.machine.stats()["n_queued"] == 0)
        assert len(exe.pays_after) <= 6
        exe.machine.call_as("jit", [rows(33)])  # without a hurry
        assert states(exe, 33) == {"compiled"}


def test_kernels_on_disk_need_not_pay(artifact, price, tmp_path):
    with shapevm.settings.scope(cache_dir=str(tmp_path)):
        with shapevm.load(artifact, strategy="jit") as exe:
            exe(rows(7))
        with shapevm.load(artifact, strategy="auto") as exe:
            for _ in range(3):
                exe(rows(7))
            wait_until(lambda: states(exe, 7) == {"compiled"})
            assert exe.stats().compiled == 0
