"""Kernels compiled side by side by several processes: the same code, whatever becomes of the processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import torch
from shapevm.jit.compile_job import Answer
from shapevm.jit.store import KernelStore

import shapevm
from shapevm.specialise.compile_process import CompileProcess

X = torch.randn(3, 16)


class Layers(torch.nn.Module):
    """Layers of different widths: a kernel for each, and more."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16 + 3 * i, 19 + 3 * i) for i in range(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x)).softmax(-1)
        return x


@pytest.fixture(autouse=True)
def without_cache() -> Iterator[None]:
    with shapevm.settings.scope(cache=False):
        yield


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What processes are given to compile."""
    found: list[Any] = []
    run = CompileProcess.run

    def noted(self: CompileProcess, job: Any) -> Any:
        found.append(job)
        return run(self, job)

    monkeypatch.setattr(CompileProcess, "run", noted)
    return found


SIZES = (3, 5, 6, 7, 11)


def made(n_processes: int) -> shapevm.Executable:
    rows = torch.export.Dim("rows", min=1, max=64)
    sizes = [{"rows": n} for n in SIZES]
    with shapevm.settings.scope(compile_processes=n_processes):
        return shapevm.compile(
            Layers().eval(), (X,), dynamic_shapes=({0: rows},), strategy="bucket",
            options=shapevm.Options(sizes=sizes),
        )  # fmt: skip


def test_processes_compile_what_one_would(
    jobs: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process is slow, so that the others have some of all there is to do."""
    one = made(1)
    assert not jobs
    record = KernelStore.record

    def slow(store: KernelStore, *arguments: Any) -> bytes:
        sleep(0.3)
        return record(store, *arguments)

    monkeypatch.setattr(KernelStore, "record", slow)
    three = made(3)
    dims = {job.dims for job in jobs}
    assert None in dims and dims & {(n,) for n in SIZES}
    for name, exe in (("one", one), ("three", three)):
        exe.save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "three").read_bytes()
    assert one.stats().compiled == three.stats().compiled and torch.equal(one(X), three(X))
    store = three.specialisation.opened_store
    assert store is not None and not store._ahead


def test_processes_that_fail_leave_the_work_to_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = made(1)(X)
    for answer in (None, Answer(failure="it has ended")):
        monkeypatch.setattr(CompileProcess, "run", lambda self, job, answer=answer: answer)
        assert torch.equal(made(4)(X), expected)


AGAIN = """
import torch, shapevm
from shapevm.jit import compiler

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        return self.layer(self.conv(x).flatten(2).transpose(1, 2)).mean(1)

calls, compile_kernel = [], compiler.compile_kernel
compiler.compile_kernel = lambda *a, **k: calls.append(a) or compile_kernel(*a, **k)
batch = torch.export.Dim("batch", min=1, max=64)
x = torch.ones(3, 3, 4, 4)
exe = shapevm.compile(Model().eval(), (x,), dynamic_shapes=({0: batch},), strategy="generic")
print(exe.stats().compiled, len(calls), exe.stats().from_cache)
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "SHAPEVM_CACHE": "1", "SHAPEVM_CACHE_DIR": str(tmp_path)}
    environment["SHAPEVM_COMPILE_PROCESSES"] = "1"
    counts = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", AGAIN], check=True, capture_output=True, text=True, env=environment
        )
        counts.append(tuple(map(int, done.stdout.split())))
    (n_compiled, n_calls, _), warm = counts
    assert n_compiled == n_calls >= 4
    assert warm == (0, 0, n_compiled)


def test_what_is_in_the_cache_is_not_compiled(jobs: list[Any], tmp_path: Path) -> None:
    with shapevm.settings.scope(cache=True, cache_dir=str(tmp_path)):
        first = made(2)
        assert jobs and first.stats().compiled
        jobs.clear()
        again = made(2)
    assert not jobs and again.stats().compiled == 0 and again.stats().from_cache == first.stats().compiled
