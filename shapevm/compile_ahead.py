"""The kernels of a program compiled side by side: by this process, and by one more for each further CPU.

LLVM's own lock lets one thread compile at a time, so threads would gain nothing. What is compiled is kept by
the store until it is asked for; what goes wrong here is left to whoever asks.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from .compile_process import CompileProcess
from .settings import settings

if TYPE_CHECKING:
    from .jit.spec import KernelSpec
    from .jit.store import KernelStore
    from .vm.program import KernelKey

MIN_KERNELS = 6  # for each process: starting one takes as long as compiling three

Task = tuple["KernelSpec", "KernelKey", str]  # a kernel, its sizes or ranges (None: any), the target


def compile_ahead(
    store: KernelStore,
    wanted: Mapping[KernelSpec, Sequence[tuple[int, ...]]],
    notify: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Compile generic code of each spec, and exact code for these sizes, where there are enough kernels that
    have to be compiled. `notify(done, total)` is called by this thread, now and then."""
    tasks = [task for task in _tasks(store, wanted) if not _is_cached(store, *task)]
    n_processes = min(_n_cpus(), len(tasks) // MIN_KERNELS)
    if n_processes < 2:
        return
    waiting, total = deque(sorted(tasks, key=_is_quick)), len(tasks)
    processes = [CompileProcess(is_background=False) for _ in range(n_processes - 1)]
    threads = [threading.Thread(target=_serve, args=(p, store, waiting), daemon=True) for p in processes]
    try:
        for thread in threads:
            thread.start()
        while waiting:
            notify(total - len(waiting), total)
            with suppress(IndexError):
                spec, dims, target = waiting.popleft()
                store.keep_ahead(spec, dims, target, store.record(spec, dims, target))
        for thread in threads:
            thread.join()
    finally:
        waiting.clear()
        for process in processes:
            process.forget(process)
            process.close()


def _tasks(store: KernelStore, wanted: Mapping[KernelSpec, Sequence[tuple[int, ...]]]) -> Iterator[Task]:
    for spec, sizes in wanted.items():
        targets = store.targets(spec)
        yield from ((spec, None, target) for target in targets)
        yield from ((spec, dims, targets[0]) for dims in sizes)


def _is_cached(store: KernelStore, spec: KernelSpec, dims: KernelKey, target: str) -> bool:
    record = store.cached(spec, dims, target)
    if record is not None:
        store.keep_ahead(spec, dims, target, record)  # it was read: it is not read again
    return record is not None


def _is_quick(task: Task) -> bool:
    """Whether a kernel takes a few milliseconds: those come last, where they even out what is left."""
    return task[0].family == "nest"


def _n_cpus() -> int:
    return settings.compile_processes or len(os.sched_getaffinity(0))


def _serve(process: CompileProcess, store: KernelStore, waiting: deque[Task]) -> None:
    """Have a process compile what waits, until nothing does or the process has ended."""
    with suppress(IndexError):
        while True:
            spec, dims, target = waiting.popleft()
            answer = process.run(store.job(spec, dims, b"", target))
            if answer is None or not answer.record:
                return
            store.adopt(spec, dims, answer, target)
            store.keep_ahead(spec, dims, target, answer.record)
