"""The kernels of a program compiled side by side: by this process, and by one more for each further CPU.

LLVM's own lock lets one thread compile at a time, so threads would gain nothing. What is compiled is kept by
the store until it is asked for; what goes wrong here is left to whoever asks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from .compile_process import CompileProcess
from .early_processes import has_early_process, n_compile_processes, process_for, settle_early

if TYPE_CHECKING:
    from .jit.spec import KernelSpec
    from .jit.store import KernelStore
    from .vm.program import KernelKey

MIN_KERNELS = 4  # for each process: starting one takes as long as compiling three

Task = tuple["KernelSpec", "KernelKey", str]  # a kernel, its sizes or ranges (None: any), the target


def compile_ahead(
    store: KernelStore,
    wanted: Mapping[KernelSpec, Sequence[tuple[int, ...]]],
    notify: Callable[[int, int], None] = lambda done, total: None,
    is_portable: bool = True,
) -> None:
    """Compile generic code of each spec, and exact code for these sizes, where there are enough kernels that
    have to be compiled. `notify(done, total)` is called by this thread, now and then. `is_portable`: see
    `KernelStore.generic`."""
    settle_early(store)
    tasks = [task for task in _tasks(store, wanted, is_portable) if not _is_cached(store, *task)]
    n_paying = len(tasks) // MIN_KERNELS
    if has_early_process(store):
        n_paying = max(n_paying, min(len(tasks), 2))
    n_processes = min(n_compile_processes(), n_paying)
    if n_processes < 2:
        return
    shares = _Shares(tasks, n_processes)
    processes: list[CompileProcess] = []
    threads = [
        threading.Thread(target=_serve, args=(processes, store, shares, index), daemon=True)
        for index in range(1, n_processes)
    ]
    try:
        for thread in threads:
            thread.start()
        while (task := shares.take(0)) is not None:
            notify(len(tasks) - shares.n_left - 1, len(tasks))
            store.keep_ahead(*task, store.record(*task))
        for thread in threads:
            thread.join()
    finally:
        shares.clear()
        for process in processes:
            process.forget(process)
            process.close()


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
    """What each process is to compile. Kernels of one family and target, which have parts in common, are in
    one share, so that few parts are compiled twice; whoever has no more takes the last of the longest."""

    def __init__(self, tasks: Sequence[Task], n: int) -> None:
        large = sorted((task for task in tasks if not _is_quick(task)), key=_parts_of)
        quick = [task for task in tasks if _is_quick(task)]
        ends = [len(large) * i // n for i in range(n + 1)]
        self._shares = [deque([*large[ends[i] : ends[i + 1]], *quick[i::n]]) for i in range(n)]

    @property
    def n_left(self) -> int:
        """Kernels that nobody has begun."""
        return sum(map(len, self._shares))

    def take(self, index: int) -> Task | None:
        """Return what the process of that index compiles next, None where nothing is left."""
        while self.n_left:
            own = self._shares[index]
            with suppress(IndexError):  # another thread was faster
                return own.popleft() if own else max(self._shares, key=len).pop()
        return None

    def clear(self) -> None:
        """Drop what is left."""
        for share in self._shares:
            share.clear()


def _is_quick(task: Task) -> bool:
    """Whether a kernel takes a few milliseconds: those come last, where they even out what is left."""
    return task[0].family == "nest"


def _parts_of(task: Task) -> tuple[str, str]:
    """Return what kernels have in common that are mostly made of the same parts."""
    spec, _, target = task
    return spec.family, target


def _serve(processes: list[CompileProcess], store: KernelStore, shares: _Shares, index: int) -> None:
    """Have a process, which `processes` gets, compile its share, until nothing is left or it has ended."""
    process = process_for(store)
    processes.append(process)
    while (task := shares.take(index)) is not None:
        spec, dims, target = task
        answer = process.run(store.job(spec, dims, b"", target))
        if answer is None or not answer.record:
            return
        store.adopt(spec, dims, answer, target)
        store.keep_ahead(spec, dims, target, answer.record)
