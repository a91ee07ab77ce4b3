"""The kernels of a program compiled side by side: by this process and one more for each further CPU.

The first of the others may start while the model is exported (`started_early`): until its kernels are known,
it compiles those that such a model probably needs into the cache, where later compilations find them.

LLVM's own lock lets one thread compile at a time, so threads would gain nothing. The store keeps the code
until it is requested; errors here are left to the requester.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ..settings import settings
from ..vm.native import Lock, Thread
from .compile_process import CompileProcess

if TYPE_CHECKING:
    from ..jit.spec import KernelSpec
    from ..jit.store import KernelStore
    from ..vm.program import KernelKey

MIN_KERNELS = 4  # per process: starting one takes as long as compiling three
MARK = "usual parts of"  # with a kernel's hash: a process has begun with its usual parts

Task = tuple["KernelSpec", "KernelKey", str]  # a kernel, its sizes or ranges (None: any), the target


def n_compile_processes() -> int:
    """Return the number of processes that compile in parallel, including this one."""
    return settings.compile_processes or len(os.sched_getaffinity(0))


# Before the kernels are known -----------------------------------------------------------------------------


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
            future = None if self._is_wanted else self._process.submit(batch)
        answer = future.wait() if future is not None else None
        for spec, record in zip(self._usual, answer.records if answer is not None else (), strict=False):
            self._store.foresee(spec, record)

    def taken(self) -> CompileProcess:
        """Return the process once it has finished its current job and its results are in the cache."""
        with self._lock:
            self._is_wanted = True
        self._process.stop_batch()
        self._thread.join()
        return self._process


_STARTED: WeakKeyDictionary[KernelStore, EarlyProcess] = WeakKeyDictionary()


@contextmanager
def started_early(store: KernelStore, usual: Callable[[], Sequence[KernelSpec]]) -> Iterator[None]:
    """Start a process for the next `compile_ahead` of this store, if there is a CPU for it and the cache
    lacks kernels of those that the model probably needs, `usual()`."""
    if store.cache is not None and n_compile_processes() > 1 and (new := _begin(store, usual())):
        _STARTED[store] = EarlyProcess(store, new)
    try:
        yield
    finally:
        if (early := _STARTED.pop(store, None)) is not None:  # nothing had to be compiled
            early.taken().close()


def _begin(store: KernelStore, usual: Sequence[KernelSpec]) -> list[KernelSpec]:
    """Return the kernels that no process has begun with, and mark them as begun."""
    from ..jit.spec import spec_hash

    marks = {f"{MARK} {spec_hash(spec)}": spec for spec in usual}
    new = [mark for mark in marks if store.remembered(mark) is None]
    for mark in new:
        store.remember(mark, b"begun")
    return [marks[mark] for mark in new]


# The kernels of a program ---------------------------------------------------------------------------------


def compile_ahead(
    store: KernelStore,
    wanted: Mapping[KernelSpec, Sequence[tuple[int, ...]]],
    notify: Callable[[int, int], None] = lambda done, total: None,
    is_portable: bool = True,
) -> None:
    """Compile generic code of each spec, and exact code for these sizes, if enough kernels have to be
    compiled. This thread calls `notify(done, total)` now and then. `is_portable`: see
    `KernelStore.generic`."""
    early = _STARTED.get(store)
    processes = [early.taken()] if early is not None else []
    tasks = [task for task in _tasks(store, wanted, is_portable) if not _is_cached(store, *task)]
    n_paying = max(len(tasks) // MIN_KERNELS, min(len(tasks), 2) if processes else 0)
    n_processes = min(n_compile_processes(), n_paying)
    processes += [CompileProcess(is_background=False) for _ in range(len(processes) + 1, n_processes)]
    shares = _Shares(tasks, max(n_processes, 1))
    threads: list[Thread] = []
    _STARTED.pop(store, None)  # from here on, this function ends the process
    try:
        if n_processes > 1:
            threads += [Thread(_serve, each, store, shares, i) for i, each in enumerate(processes, 1)]
            while (task := shares.take(0)) is not None:
                notify(len(tasks) - shares.n_left - 1, len(tasks))
                store.keep_ahead(*task, store.record(*task))
            for thread in threads:
                thread.join()
    finally:
        shares.clear()
        for process in processes:
            process.end()


def _tasks(
    store: KernelStore, wanted: Mapping[KernelSpec, Sequence[tuple[int, ...]]], is_portable: bool
) -> Iterator[Task]:
    for spec, sizes in wanted.items():
        targets = store.targets(spec, is_portable)
        yield from ((spec, None, target) for target in targets)
        yield from ((spec, dims, targets[0]) for dims in sizes)


def _is_cached(store: KernelStore, spec: KernelSpec, dims: KernelKey, target: str) -> bool:
    record = store.cached(spec, dims, target)
    if record is not None:
        store.keep_ahead(spec, dims, target, record)  # it was read: it is not read again
    return record is not None


class _Shares:
    """The work of each process. Kernels of one family and target, which have parts in common, are in one
    share, so that few parts are compiled twice; an idle process takes the last kernel of the longest share.
    Kernels that take a few milliseconds come last, where they balance the load."""

    def __init__(self, tasks: Sequence[Task], n: int) -> None:
        quick = [task for task in tasks if task[0].family == "nest"]
        large = sorted((t for t in tasks if t[0].family != "nest"), key=lambda t: (t[0].family, t[2]))
        ends = [len(large) * i // n for i in range(n + 1)]
        self._shares = [deque([*large[ends[i] : ends[i + 1]], *quick[i::n]]) for i in range(n)]

    @property
    def n_left(self) -> int:
        """Kernels that no process has begun."""
        return sum(map(len, self._shares))

    def take(self, index: int) -> Task | None:
        """Return the next task of the process of that index, None if nothing is left."""
        while self.n_left:
            own = self._shares[index]
            with suppress(IndexError):  # another thread was faster
                return own.popleft() if own else max(self._shares, key=len).pop()
        return None

    def clear(self) -> None:
        """Drop the remaining kernels."""
        for share in self._shares:
            share.clear()


def _serve(process: CompileProcess, store: KernelStore, shares: _Shares, index: int) -> None:
    """Have a process compile its share, until nothing is left or it has ended."""
    while (task := shares.take(index)) is not None:
        spec, dims, target = task
        answer = process.run(store.job(spec, dims, b"", target))
        if answer is None or not answer.record:
            return
        store.adopt(spec, dims, answer, target)
        store.keep_ahead(spec, dims, target, answer.record)
