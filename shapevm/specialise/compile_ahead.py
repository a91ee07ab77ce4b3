"""The kernels of a program compiled side by side: by this process and one more for each further CPU.

LLVM's own lock lets one thread compile at a time, so threads would gain nothing. The store keeps the code
until it is requested; errors here are left to the requester.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..vm.native import Thread
from .compile_process import CompileProcess
from .early_processes import has_early_process, n_compile_processes, process_for, settle_early

if TYPE_CHECKING:
    from ..jit.spec import KernelSpec
    from ..jit.store import KernelStore
    from ..vm.program import KernelKey

MIN_KERNELS = 4  # per process: starting one takes as long as compiling three

Task = tuple["KernelSpec", "KernelKey", str]  # a kernel, its sizes or ranges (None: any), the target


def compile_ahead(
    store: KernelStore,
    wanted: Mapping[KernelSpec, Sequence[tuple[int, ...]]],
    notify: Callable[[int, int], None] = lambda done, total: None,
    is_portable: bool = True,
) -> None:
    """Compile generic code of each spec, and exact code for these sizes, if enough kernels have to be
    compiled. This thread calls `notify(done, total)` now and then. `is_portable`: see
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
    threads: list[Thread] = []
    try:
        threads += [Thread(_serve, processes, store, shares, index) for index in range(1, n_processes)]
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
    """The work of each process. Kernels of one family and target, which have parts in common, are in one
    share, so that few parts are compiled twice; an idle process takes the last kernel of the longest
    share."""

    def __init__(self, tasks: Sequence[Task], n: int) -> None:
        large = sorted((task for task in tasks if not _is_quick(task)), key=_parts_of)
        quick = [task for task in tasks if _is_quick(task)]
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


def _is_quick(task: Task) -> bool:
    """Whether a kernel takes a few milliseconds: such kernels come last, where they balance the load."""
    return task[0].family == "nest"


def _parts_of(task: Task) -> tuple[str, str]:
    """Return a key shared by kernels that mostly consist of the same parts."""
    spec, _, target = task
    return spec.family, target


def _serve(processes: list[CompileProcess], store: KernelStore, shares: _Shares, index: int) -> None:
    """Have a process, which is added to `processes`, compile its share, until nothing is left or it has
    ended."""
    process = process_for(store)
    processes.append(process)
    while (task := shares.take(index)) is not None:
        spec, dims, target = task
        answer = process.run(store.job(spec, dims, b"", target))
        if answer is None or not answer.record:
            return
        store.adopt(spec, dims, answer, target)
        store.keep_ahead(spec, dims, target, answer.record)
