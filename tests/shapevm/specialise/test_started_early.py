"""Processes that are started before it is known what a model needs: once a cache, and they end."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from shapevm.jit.compile_job import Batch
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.families.attention.usual import usual_attention
from shapevm.jit.families.matmul.usual import usual_product, usual_products
from shapevm.jit.object.cache import DiskCache
from shapevm.jit.spec import to_json
from shapevm.jit.store import KernelStore
from shapevm.vm.objects import serialise_object

import shapevm
from shapevm.specialise.compile_ahead import _STARTED, EarlyProcess, compile_ahead
from shapevm.specialise.compile_process import CompileProcess

USUAL = to_json(usual_product(24, 8, ("bias",)))
X = torch.ones(3, 24)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """What processes are given, all of which must have ended, with a cache that is new."""
    found: list[Any] = []
    made: list[CompileProcess] = []
    submit = CompileProcess.submit

    def noted(self: CompileProcess, job: Any) -> Any:
        made.append(self)
        found.extend(job.jobs if isinstance(job, Batch) else [job])
        return submit(self, job)

    monkeypatch.setattr(CompileProcess, "submit", noted)
    with shapevm.settings.scope(cache=True, cache_dir=str(tmp_path), compile_processes=2):
        yield found
    assert all(process.pid is None for process in made)


def compiled(model: torch.nn.Module) -> shapevm.Executable:
    rows = torch.export.Dim("rows", min=1, max=64)
    return shapevm.compile(model.eval(), (X,), dynamic_shapes=({0: rows},), strategy="generic")


class Attending(torch.nn.Module):
    """A model with attention, which a call does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(24, 8)
        self.heads = torch.nn.MultiheadAttention(24, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def specs(jobs: list[Any]) -> list[str]:
    return [job.spec for job in jobs]


def test_usual_parts_are_compiled_once_for_each_cache(jobs: list[Any]) -> None:
    model = torch.nn.Linear(24, 8)
    assert torch.allclose(compiled(model)(X), model(X), atol=1e-6)
    assert specs(jobs) == [USUAL]
    jobs.clear()
    compiled(torch.nn.Linear(24, 8))
    assert not jobs


def test_a_kernel_that_was_foreseen_is_not_compiled_again(tmp_path: Path) -> None:
    store, spec = KernelStore(DiskCache(tmp_path, None)), usual_product(24, 8, ("bias",))
    early = EarlyProcess(store, [spec])
    early._thread.join()
    early.taken().close()
    assert store.generic(spec)[0].code == compile_kernel(spec, None).code
    assert (store.stats.compiled, store.stats.from_cache) == (0, 1)


def test_a_model_of_another_kind_gets_what_is_missing(jobs: list[Any]) -> None:
    compiled(torch.nn.Linear(24, 8))
    jobs.clear()
    compiled(Attending())
    wanted = [usual_attention(3, 8, "sequence"), usual_attention(3, 8), usual_product(24, 24, ("bias",))]
    assert specs(jobs) == [to_json(spec) for spec in wanted]
    jobs.clear()
    compiled(Attending())
    assert not jobs


def test_one_process_alone_starts_no_other(jobs: list[Any]) -> None:
    with shapevm.settings.scope(compile_processes=1):
        compiled(torch.nn.Linear(24, 8))
    with shapevm.settings.scope(cache=False):
        compiled(torch.nn.Linear(24, 8))
    assert not jobs


def test_the_process_is_the_first_that_compiles(jobs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    start = CompileProcess._start
    monkeypatch.setattr(CompileProcess, "_start", lambda self, job: started.append(self) or start(self, job))
    layers = [torch.nn.Linear(24 + 3 * i, 27 + 3 * i, bias=False) for i in range(9)]
    compiled(torch.nn.Sequential(*(each for layer in layers for each in (layer, torch.nn.Softmax(-1)))))
    foreseen = {to_json(usual_product(n, n + 3, ("bias",))) for n in range(24, 24 + 27, 3)}
    assert len(started) == 1 and set(specs(jobs)) - foreseen


class Refused(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def test_it_ends_where_the_export_is_refused(jobs: list[Any]) -> None:
    with pytest.raises(shapevm.UnsupportedOp):
        compiled(Refused())
    assert specs(jobs) == [to_json(spec) for spec in usual_products()][: len(jobs)]


def test_it_takes_its_share_of_few_kernels(jobs: list[Any], tmp_path: Path) -> None:
    store = KernelStore(DiskCache(tmp_path, None))
    _STARTED[store] = EarlyProcess(store, [])
    specs = [usual_product(24, 8), usual_product(8, 24)]
    compile_ahead(store, {spec: [] for spec in specs})
    assert store not in _STARTED
    assert all(store.generic(spec)[0].code == compile_kernel(spec, None).code for spec in specs)


def test_what_is_taken_early_is_stopped(tmp_path: Path) -> None:
    store = KernelStore(DiskCache(tmp_path, None))
    foreseen = [usual_product(24, 8 * n, ("bias",) * n) for n in range(1, 40)]
    early = EarlyProcess(store, foreseen)
    while early._process.pid is None:
        time.sleep(0.001)
    process = early.taken()
    done = [spec for spec in foreseen if store.cached(spec, None) is not None]
    assert len(done) < len(foreseen) and done == foreseen[: len(done)]
    compile_job = store.job(foreseen[-1], None, b"")
    answer = process.run(compile_job)  # it answers what it is asked next
    assert answer is not None and answer.record == serialise_object(compile_kernel(foreseen[-1], None))
    process.close()
    unused = EarlyProcess(store, [])
    unused.taken().close()
