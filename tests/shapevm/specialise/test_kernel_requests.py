"""The thread that compiles: failures are told, budgets kept, limits on code hold."""

import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from shapevm.vm.load_options import CacheLimits

import shapevm
from shapevm.program import opening
from shapevm.specialise.kernel_store import open_store
from shapevm.specialise.profitability import START_SECONDS, Budget, starting_pays

LIMIT = 1 << 16


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).random((n, 8), "f")


@pytest.fixture
def failing(monkeypatch):
    """Every compilation fails, and there is no cache that could have what others compiled."""
    from shapevm.jit import compiler

    def compile_kernel(*args, **options):
        raise ValueError("no luck")

    monkeypatch.setattr(compiler, "compile_kernel", compile_kernel)
    with shapevm.settings.scope(cache=False):
        yield


@pytest.fixture
def cached_at_7(artifact):
    """What the disk cache holds for 7 rows."""
    with shapevm.load(artifact, strategy="jit") as exe:
        exe(rows(7))


@pytest.mark.failing_kernels
@pytest.mark.parametrize("wait_seconds", [0, 0.5])  # 0: the budget is lifted before requests are looked at
def test_a_failure_does_not_stop_auto(artifact, cached_at_7, failing, wait_seconds, caplog):
    with shapevm.load(artifact, strategy="auto") as exe:
        first = exe(rows(7))
        for _ in range(6):
            exe(rows(7))
        time.sleep(wait_seconds)
        assert exe.wait_until_specialised()
        entries = exe.stats().entries
        assert {(entry.state, entry.tier, entry.failure) for _, entry in entries} == {
            ("failed", "generic", "ValueError: no luck")
        }
        assert exe.stats().compile_failures == len(entries)
        assert f'shapevm_compile_failures_total{{model="{exe.name}"}} {len(entries)}\n' in exe.metrics()
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == len({kernel for kernel, _ in entries})  # once for each kernel
        assert all("could not be compiled for sizes [7]" in text and "no luck" in text for text in told)
        np.testing.assert_array_equal(exe(rows(7))["sum"], first["sum"])


@pytest.mark.failing_kernels
def test_a_failure_is_told_under_jit(artifact, failing):
    with shapevm.load(artifact, strategy="jit") as exe:
        exe(rows(3))  # in the artifact
        for _ in range(2):
            with pytest.raises(shapevm.Error, match="could not be compiled: ValueError: no luck"):
                exe(rows(7))


def test_gathers_into_outputs_larger_than_the_caches(build):
    n = torch.export.Dim("n", max=100_000)
    exe = build(torch.nn.Embedding(1000, 96), torch.arange(9), dynamic_shapes=({0: n},), strategy="jit")
    ids = torch.arange(50_000) % 1000
    assert torch.equal(exe(ids), exe.using("generic")(ids)) and torch.equal(exe(ids)[:7], exe(ids[:7]))
    pool = torch.nn.MaxPool3d(3, 2, padding=1)
    sizes = {axis: torch.export.Dim(f"size{axis}", min=3, max=200) for axis in (2, 3, 4)}
    exe = build(pool, torch.randn(1, 6, 8, 9, 10), dynamic_shapes=(sizes,), strategy="jit")
    x = torch.randn(1, 6, 128, 128, 128)
    assert torch.equal(exe(x), pool(x))


def test_strategies_of_programs_functions_and_calls(artifact):
    def tiers(n, strategy=None):
        (exe if strategy is None else exe.using(strategy))(rows(n))
        return {entry.tier for _, entry in exe.stats().entries if entry.dims == (n,)}

    with shapevm.load(artifact, strategy="bucket") as exe:
        assert tiers(50) == {"generic"} and exe.specialisation.opened_store is None
        exe.set_strategy("jit", function="main")
        assert tiers(51) == {"exact"} and tiers(52, "bucket") == {"generic"}
        exe.set_strategy(None, function="main")
        assert tiers(53) == {"generic"} and tiers(54, "jit") == {"exact"}
        exe.set_strategy("jit")
        assert tiers(55) == {"exact"}
        with pytest.raises(shapevm.Error, match="strategy 'fast' is unknown"):
            exe.set_strategy("fast", function="main")
        with pytest.raises(shapevm.Error, match="no function 'other'"):
            exe.set_strategy("jit", function="other")


def test_the_code_limit_evicts(artifact, monkeypatch):
    options = opening.machine_options
    caches = CacheLimits(code_bytes_max=LIMIT)
    monkeypatch.setattr(opening, "machine_options", lambda *a: replace(options(*a), caches=caches))
    with shapevm.load(artifact, strategy="jit") as exe:
        for n in range(1, 101):
            exe(rows(n))
        assert exe.stats().code_bytes <= LIMIT
        evicted = exe.machine.stats()["code_evicted"]
        expected = shapevm.load(artifact, strategy="generic")
        for n in range(1, 101):
            np.testing.assert_array_equal(exe(rows(n))["sum"], expected(rows(n))["sum"])
        assert exe.stats().code_bytes <= LIMIT and exe.machine.stats()["code_evicted"] >= evicted > 0


def test_the_plan_limit(artifact):
    with shapevm.settings.scope(plans=5), shapevm.load(artifact, strategy="generic") as exe:
        for n in range(1, 50):
            exe(rows(n))
        assert exe.stats().plans == 5


def test_budget():
    budget = Budget(0.5, burst=0.1)
    budget.spend(0.1)
    assert budget.rest() == pytest.approx(0, abs=0.01)
    budget.spend(0.1)
    assert budget.rest() == pytest.approx(0.2, abs=0.02)
    unlimited = Budget(None)
    unlimited.spend(100)
    assert unlimited.rest() == 0


def test_waiting_lifts_the_budget(artifact):
    with (
        shapevm.settings.scope(compile_budget=1, cache=False),
        shapevm.load(artifact, strategy="auto") as exe,
    ):
        for n in range(10, 20):
            for _ in range(3):
                exe(rows(n))
        assert not exe.wait_until_specialised(timeout=0)
        assert exe.wait_until_specialised()  # within a minute; the budget would grant 60 ms of that
        assert exe.stats().tier() == "exact"


def test_stores(tmp_path):
    with shapevm.settings.scope(cache_dir=str(tmp_path), cache_mib=3, target="x86-64-v3"):
        store = open_store()
        assert store.target == "x86-64-v3"
        assert (store.cache.directory, store.cache.max_bytes) == (tmp_path, 3 << 20)
        assert open_store("aarch64").target == "aarch64"
    with shapevm.settings.scope(cache=False):
        assert open_store().cache is None
    refused = pytest.raises(shapevm.ArgumentError, match="target='z80' must be one of")
    with refused, shapevm.settings.scope(target="z80"):
        open_store()


@pytest.mark.parametrize(
    ("seconds_run", "seconds_waiting", "starts"),
    [
        (0.0, 100.0, False),  # it may be over before the process has started
        (START_SECONDS * 0.9, 100.0, False),
        (START_SECONDS, START_SECONDS, True),
        (START_SECONDS * 2, START_SECONDS * 0.5, False),  # answering the calls costs less than starting
        (START_SECONDS * 5, START_SECONDS * 0.5, True),
        (START_SECONDS * 10, 0.0, True),  # whoever has run for long will probably run on
    ],
)
def test_when_a_process_is_started(seconds_run: float, seconds_waiting: float, starts: bool) -> None:
    assert starting_pays(seconds_run, seconds_waiting) is starts


def test_the_interpreter_waits_for_a_thread_that_frees_a_program(artifact):
    """The thread may be the last that holds its program: it is not left to free tensors while the
    interpreter ends."""
    done = subprocess.run([sys.executable, "-c", FREES, artifact], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "main ends, freed", "")


FREES = """
import sys, time, weakref
import shapevm
from shapevm.specialise import kernel_requests

exe = shapevm.load(sys.argv[1], strategy="auto")
server = next(iter(kernel_requests._SERVERS))
# No weakref.finalize: its own atexit function, which runs before, would switch it off.
freed = weakref.ref(server, lambda _: (time.sleep(0.3), print(", freed", end="", flush=True)))
server.stop()
del server, exe
print("main ends", end="", flush=True)
"""
