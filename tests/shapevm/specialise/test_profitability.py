"""Under a budget exact code is compiled where it pays, and what is known of that is kept."""

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
from shapevm.jit.compile_job import Answer

import shapevm
from shapevm.specialise import kernel_requests, profitability
from shapevm.specialise.compile_process import CompileProcess
from shapevm.specialise.profitability import FamilyGain, KernelGain, Point


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).random((n, 8), "f")


def wait_until(holds, seconds=120):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def price(monkeypatch):
    """Runs after which compiling pays, of every kernel: too many at first. A request costs nothing."""
    found = {"runs": 10**9}
    monkeypatch.setattr(profitability.Gains, "pays_after", lambda self, kernel, dims: found["runs"])
    monkeypatch.setattr(profitability, "ASK_NS", 0)
    return found


class Compiled(CompileProcess):
    """Stands for the process: compiles at once, and measures what `times` says by tier."""

    is_usable = False
    times = {"exact": 1000, "generic": 1500}

    def submit(self, job):
        return None


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Code is measured to take as long as this says by tier; no kernel is on disk."""
    times = {"exact": 1000, "generic": 1500}
    monkeypatch.setattr("shapevm.jit.measure.objects.compared_ns", lambda objects, *_, **__: dict(times))
    monkeypatch.setattr(kernel_requests, "PROCESS", Compiled())
    with shapevm.settings.scope(cache_dir=str(tmp_path / "kernels"), compile_budget=1000):
        yield times


def states(exe, n):
    return {entry.state for _, entry in exe.stats().entries if entry.dims == (n,)}


def dynamic(exe):
    """Return the kernels that have sizes."""
    return {kernel for kernel, entry in exe.stats().entries if entry.dims}


# What is known ------------------------------------------------------------------------------------------


def test_kernels_are_declined_from_some_work_on():
    known = KernelGain([Point(100, 1000.0, 1500.0)])
    assert known.declined_from == 0 and known.ratio == 1.5
    known.add(Point(8000, 9000.0, 9000.0))
    assert known.declined_from == 0  # one size may be luck
    known.add(Point(9000, 9500.0, 9520.0))
    assert known.declined_from == 8000 // profitability.NEAR
    known.add(Point(2000, 3000.0, 3500.0))
    assert known.declined_from == 8000 // profitability.NEAR
    known.add(Point(6000, 7000.0, 7000.0))
    assert known.declined_from == 6000 // profitability.NEAR
    assert known.ratio_near(150) == 1.5 and known.ratio_near(10**6) == pytest.approx(1, abs=0.01)


def test_a_family_tells_for_kernels_that_were_not_measured():
    family = FamilyGain()
    assert family.ratio == pytest.approx(profitability.TYPICAL) and not family.is_none
    for i in range(profitability.MIN_KERNELS):
        family.add(f"k{i}", 1.0, 20e6)
    assert family.is_none and family.compile_ns > profitability.COMPILE_NS
    family.add("k9", 1.5, 20e6)
    assert not family.is_none
    for i in range(1000):
        family.add(f"many{i}", 1.2, 20e6)
    assert len(family.ratios) == profitability.MAX_KERNELS and family.ratio == pytest.approx(1.2, abs=0.01)


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b'{"ratios": 5}', b'[[1, "x", 2]]', b"\xff", b"null"])
def test_what_is_remembered_may_be_anything(text):
    assert profitability._points(text) == [] and profitability._family(text).ratios == {}


# Programs -----------------------------------------------------------------------------------------------


def test_it_waits_until_it_pays(artifact, measured, price):
    with shapevm.load(artifact, strategy="auto") as exe:
        for _ in range(50):
            exe(rows(7))
        wait_until(lambda: not exe.machine.stats()["n_pending"])
        assert states(exe, 7) == {"idle"} and exe.stats().compiled == 0  # nor generic code, which it carries
        assert all(n > 10**6 for n in exe.specialisation.pays_after.values())
        assert "compiling pays after" in exe.explain().text()
        assert exe.wait_until_specialised() and states(exe, 7) == {"compiled"}


def test_what_has_paid_first_comes_first(artifact, measured, price, monkeypatch):
    price["runs"], made, rest = 30, [], [1.0]
    finish = kernel_requests.RequestServer._finish
    monkeypatch.setattr(profitability.Budget, "rest", lambda self: rest[0])
    monkeypatch.setattr(
        kernel_requests.RequestServer,
        "_finish",
        lambda self, key, a: (made.append(key[1]), finish(self, key, a)),
    )
    with shapevm.load(artifact, strategy="auto") as exe:
        candidates = exe.specialisation._server.candidates
        for _ in range(100):
            for n, times in ((11, 1), (7, 9), (9, 3)):
                for _ in range(times):
                    exe(rows(n))
            wait_until(lambda: not exe.machine.stats()["n_queued"])
        wait_until(lambda: len(candidates) == 3 * len(dynamic(exe)))
        assert made == []
        rest[0] = 0
        wait_until(lambda: len(made) == 3 * len(dynamic(exe)))
    assert made[0] == (7,) and made[-1] == (11,)


def test_no_gain_no_code(artifact, measured, price):
    """After a few sizes a kernel whose generic code is as fast costs nothing: no request, no compilation."""
    measured["generic"] = 1005
    price["runs"] = 2
    with shapevm.load(artifact, strategy="auto") as exe:
        for n in range(40, 42):
            exe(rows(n))
            while not states(exe, n) <= {"compiled", "declined"}:
                exe(rows(n))
        compiled = exe.stats().compiled
        for n in range(42, 60):
            for _ in range(20):
                exe(rows(n))
            while "queued" in states(exe, n):  # until the compiler's thread has answered
                time.sleep(0.001)
            assert states(exe, n) == {"declined"}
        assert exe.stats().compiled == compiled
        assert exe.machine.stats()["n_pending"] == 0
        assert "not compiled: generic is as fast" in exe.explain().text()
        exe.using("jit")(rows(42))  # who waits for it gets it
        assert states(exe, 42) == {"compiled"}
    with shapevm.load(artifact, strategy="auto") as exe:  # as another process would
        wait_until(lambda: len(exe.specialisation._server.gains.known) == len(exe.machine.kernels))
        for n in range(60, 70):
            for _ in range(20):
                exe(rows(n))
            while "queued" in states(exe, n):  # until the compiler's thread has answered
                time.sleep(0.001)
            assert states(exe, n) == {"declined"}
        assert exe.stats().compiled == 0


def test_what_waits_is_bounded(artifact, measured, price, monkeypatch):
    price["runs"] = 2
    monkeypatch.setattr(kernel_requests, "MAX_WAITING", 6)
    monkeypatch.setattr(profitability.Budget, "rest", lambda self: 1.0)
    with shapevm.load(artifact, strategy="auto") as exe:
        for n in range(20, 60):
            for _ in range(n // 4):
                exe(rows(n))
        wait_until(lambda: exe.machine.stats()["n_queued"] == 0)
        assert len(exe.specialisation._server.candidates) <= 6
        exe.machine.call_as("jit", [rows(33)])  # without a hurry
        assert states(exe, 33) == {"compiled"}


def test_kernels_on_disk_cost_a_request_only(artifact, price, tmp_path):
    with shapevm.settings.scope(cache_dir=str(tmp_path)):
        with shapevm.load(artifact, strategy="jit") as exe:
            exe(rows(7))
        with shapevm.load(artifact, strategy="auto") as exe:
            for _ in range(3):
                exe(rows(7))
            wait_until(lambda: states(exe, 7) == {"compiled"})
            assert exe.stats().compiled == 0


def test_shapes_that_come_three_times_ask_for_nothing(artifact, tmp_path):
    """A kernel of 300 ns and more has to run thousands of times before a look at the cache pays."""
    with (
        shapevm.settings.scope(cache_dir=str(tmp_path)),
        shapevm.load(artifact, strategy="auto") as exe,
    ):
        wait_until(lambda: len(exe.specialisation._server.gains.known) == len(exe.machine.kernels))
        for n in range(4, 90):
            for _ in range(3):
                exe(rows(n))
        assert exe.stats().compiled == exe.stats().from_cache == exe.machine.stats()["n_pending"] == 0
        entries = [entry for _, entry in exe.stats().entries if entry.dims != (n,) and entry.dims]
        assert {entry.tier for entry in entries} == {"generic"}


def test_learning_is_written_down(artifact, measured, price):
    with shapevm.load(artifact, strategy="generic") as exe:
        exe.specialisation.ensure()
        gains = profitability.Gains(exe.specialisation.on_demand.get(), exe.machine)
        kernel = min(k for k, info in enumerate(exe.machine.kernels) if info.n_dims)
        before = gains.price(kernel)
        answer = Answer(b"", 0.04, 0.05, 20_000, 30_000)
        assert kernel in gains.learn(kernel, (64,), answer)
        assert gains.price(kernel) != before and gains.known[kernel].ratio == 1.5
        again = profitability.Gains(exe.specialisation.on_demand.get(), exe.machine)
        assert (
            again.price(kernel) == gains.price(kernel) and again.compile_ns(kernel) > profitability.COMPILE_NS
        )
        kept = exe.specialisation.on_demand.get().remembered(gains._name(kernel))
        assert json.loads(kept)[0][1:] == [20_000, 30_000]


def test_unmeasured_code_teaches_its_price_alone(artifact, measured):
    with shapevm.load(artifact, strategy="generic") as exe:
        exe.specialisation.ensure()
        gains = profitability.Gains(exe.specialisation.on_demand.get(), exe.machine)
        kernel = min(k for k, info in enumerate(exe.machine.kernels) if info.n_dims)
        gains.learn(kernel, (64,), SimpleNamespace(exact_ns=0, generic_ns=0, seconds=0.05))
        assert gains.known[kernel].ratio is None and gains.compile_ns(kernel) > profitability.COMPILE_NS
