"""Speculative compilation: processes that compile kernels on the machine's other CPUs while the model is
exported.

They compile the kernels that a model like this one probably needs, and leave them in the kernel cache, where
later compilations find them. After that, processes are started only if there are kernels to compile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..settings import settings
from ..vm.native import Lock, Thread
from .compile_process import CompileProcess
from .usual_kernels import usual_kernels

if TYPE_CHECKING:
    from ..jit.spec import KernelSpec
    from ..jit.store import KernelStore

MARK = "usual parts of"  # with a kernel's hash: a process has begun with its usual parts


class EarlyProcess:
    """A process that compiles speculatively, until it is taken for the model's own kernels."""

    def __init__(self, store: KernelStore, usual: Sequence[KernelSpec]) -> None:
        self._process = CompileProcess(is_background=False)
        self._store, self._usual = store, usual
        self._lock = Lock()  # guards what follows, and submissions to the process
        self._is_wanted = False
        self._thread = Thread(self._compile_usual)

    def _compile_usual(self) -> None:
        from ..jit.compile_job import Batch

        batch = Batch(tuple(self._store.job(spec, None, b"") for spec in self._usual))
        with self._lock:
            if self._is_wanted or not self._process.submit(self, batch):
                return
        answer = self._process.wait(self)
        for spec, record in zip(self._usual, answer.records if answer is not None else (), strict=False):
            self._store.foresee(spec, record)

    def settle(self) -> None:
        """Let the process finish its current job, and put its results into the cache."""
        with self._lock:
            self._is_wanted = True
        self._process.stop_batch()
        self._thread.join()

    def taken(self) -> CompileProcess:
        """Return the process once it has finished its current job."""
        self.settle()
        return self._process


_STARTED: WeakKeyDictionary[KernelStore, EarlyProcess] = WeakKeyDictionary()


@contextmanager
def started_early(store: KernelStore, model: Any) -> Iterator[None]:
    """Start a process for the first `process_for` of this store, if there is a CPU for it and the cache lacks
    parts that the model probably needs."""
    if store.cache is not None and n_compile_processes() > 1 and (usual := _begin(store, model)):
        _STARTED[store] = EarlyProcess(store, usual)
    try:
        yield
    finally:
        if store in _STARTED:  # nothing had to be compiled
            process = process_for(store)
            process.close()


def _begin(store: KernelStore, model: Any) -> list[KernelSpec]:
    """Return the kernels that the model probably needs and no process has begun with, and mark them as
    begun."""
    from ..jit.spec import spec_hash

    marks = {f"{MARK} {spec_hash(spec)}": spec for spec in usual_kernels(model)}
    new = [mark for mark in marks if store.remembered(mark) is None]
    for mark in new:
        store.remember(mark, b"begun")
    return [marks[mark] for mark in new]


def n_compile_processes() -> int:
    """Return the number of processes that compile in parallel, including this one."""
    return settings.compile_processes or len(os.sched_getaffinity(0))


def settle_early(store: KernelStore) -> None:
    """Put the results of speculative compilation, if any, into the cache."""
    if (early := _STARTED.get(store)) is not None:
        early.settle()


def has_early_process(store: KernelStore) -> bool:
    """Whether the speculative process is still available."""
    return store in _STARTED


def process_for(store: KernelStore) -> CompileProcess:
    """Return a process to compile with: the speculative one, if it is not taken yet."""
    early = _STARTED.pop(store, None)
    return early.taken() if early is not None else CompileProcess(is_background=False)
