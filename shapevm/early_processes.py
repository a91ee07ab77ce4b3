"""Processes that compile kernels, started before it is known which: while the model is exported, on the
machine's other CPUs.

They compile what a model like this one needs in the meantime, and leave it in the kernel cache.
Later compilations find those, and start processes when they have kernels to compile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .compile_process import CompileProcess
from .settings import settings
from .usual_kernels import usual_kernels

if TYPE_CHECKING:
    from .jit.spec import KernelSpec
    from .jit.store import KernelStore

MARK = "usual parts of"  # what a cache remembers, with a kernel's hash, once somebody has begun with them


class EarlyProcess:
    """A process that does what any model may need, until it is taken for what this one needs."""

    def __init__(self, store: KernelStore, usual: Sequence[KernelSpec]) -> None:
        self._process = CompileProcess(is_background=False)
        self._store, self._usual = store, usual
        self._lock = threading.Lock()  # of what follows, and of giving the process something to do
        self._is_wanted = False
        self._thread = threading.Thread(target=self._compile_usual, daemon=True)
        self._thread.start()

    def _compile_usual(self) -> None:
        from .jit.compile_job import Batch

        batch = Batch(tuple(self._store.job(spec, None, b"") for spec in self._usual))
        with self._lock:
            if self._is_wanted or not self._process.submit(self, batch):
                return
        answer = self._process.wait(self)
        for spec, record in zip(self._usual, answer.records if answer is not None else (), strict=False):
            self._store.foresee(spec, record)

    def settle(self) -> None:
        """Let the process end what it is at, and put what it has done into the cache."""
        with self._lock:
            self._is_wanted = True
        self._process.stop_batch()
        self._thread.join()

    def taken(self) -> CompileProcess:
        """Return the process once it has done what it is at."""
        self.settle()
        return self._process


_STARTED: WeakKeyDictionary[KernelStore, EarlyProcess] = WeakKeyDictionary()


@contextmanager
def started_early(store: KernelStore, model: Any) -> Iterator[None]:
    """Have a process ready for the first `process_for` of this store, where there is a CPU for it and the
    cache has not all parts that the model probably needs."""
    if store.cache is not None and n_compile_processes() > 1 and (usual := _begin(store, model)):
        _STARTED[store] = EarlyProcess(store, usual)
    try:
        yield
    finally:
        if store in _STARTED:  # nothing had to be compiled
            process = process_for(store)
            process.close()


def _begin(store: KernelStore, model: Any) -> list[KernelSpec]:
    """Return the kernels that the model probably needs and nobody has begun with, and remember that somebody
    has."""
    from .jit.spec import spec_hash

    marks = {f"{MARK} {spec_hash(spec)}": spec for spec in usual_kernels(model)}
    new = [mark for mark in marks if store.remembered(mark) is None]
    for mark in new:
        store.remember(mark, b"begun")
    return [marks[mark] for mark in new]


def n_compile_processes() -> int:
    """Return how many processes compile side by side, this one included."""
    return settings.compile_processes or len(os.sched_getaffinity(0))


def settle_early(store: KernelStore) -> None:
    """Have what was compiled early in the cache, if anything was."""
    if (early := _STARTED.get(store)) is not None:
        early.settle()


def has_early_process(store: KernelStore) -> bool:
    """Whether the process that was started early is still to be had."""
    return store in _STARTED


def process_for(store: KernelStore) -> CompileProcess:
    """Return a process to compile with: the one that was started early, if nobody has it yet."""
    early = _STARTED.pop(store, None)
    return early.taken() if early is not None else CompileProcess(is_background=False)
