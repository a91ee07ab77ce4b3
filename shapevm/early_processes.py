"""Processes that compile kernels, started before it is known which: while the model is exported, on the
machine's other CPUs.

Where the kernel cache is new, they compile the parts that most models' products need in the meantime, and
leave them there. Later compilations find those, and start processes when they have kernels to compile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from .compile_process import CompileProcess
from .settings import settings

if TYPE_CHECKING:
    from .jit.store import KernelStore

MARK = "usual parts"  # what a cache remembers once somebody has begun with them


class EarlyProcess:
    """A process that does what any model may need, until it is taken for what this one needs."""

    def __init__(self, store: KernelStore) -> None:
        self._process = CompileProcess(is_background=False)
        self._is_wanted = False
        self._thread = threading.Thread(target=self._compile_usual, args=(store,), daemon=True)
        self._thread.start()

    def _compile_usual(self, store: KernelStore) -> None:
        from .jit.families.matmul.usual import usual_products

        for spec in usual_products():
            if self._is_wanted or self._process.run(store.job(spec, None, b"")) is None:
                return

    def taken(self) -> CompileProcess:
        """Return the process once it has done what it is at."""
        self._is_wanted = True
        self._thread.join()
        return self._process


_STARTED: WeakKeyDictionary[KernelStore, EarlyProcess] = WeakKeyDictionary()


@contextmanager
def started_early(store: KernelStore) -> Iterator[None]:
    """Have a process ready for the first `process_for` of this store, where there is a CPU for it and the
    cache is new."""
    if store.cache is not None and n_compile_processes() > 1 and store.remembered(MARK) is None:
        store.remember(MARK, b"begun")
        _STARTED[store] = EarlyProcess(store)
    try:
        yield
    finally:
        if store in _STARTED:  # nothing had to be compiled
            process = process_for(store)
            process.close()


def n_compile_processes() -> int:
    """Return how many processes compile side by side, this one included."""
    return settings.compile_processes or len(os.sched_getaffinity(0))


def process_for(store: KernelStore) -> CompileProcess:
    """Return a process to compile with: the one that was started early, if nobody has it yet."""
    early = _STARTED.pop(store, None)
    return early.taken() if early is not None else CompileProcess(is_background=False)
