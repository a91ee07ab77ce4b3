"""The source of a program's exact kernels: a store that compiles them and, once started, a thread that serves
the program's requests."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..settings import settings
from ..vm.fork_lock import ForkLock, notice_fork
from ..vm.machine import Machine

if TYPE_CHECKING:
    from ..jit.store import KernelStore
    from ..vm.program import Program
    from .buckets import Cell
    from .kernel_requests import Key, RequestServer
    from .kernel_store import StoreOnDemand

_LOG = logging.getLogger("shapevm")


class BackgroundCompilation:
    """The background compilation of one program's exact kernels, and its statistics. Threads may share it;
    the compiler is imported on first use."""

    def __init__(self, machine: Machine, store: StoreOnDemand) -> None:
        """`store` compiles exact kernels on request."""
        self._machine, self._store = machine, store
        self._server: RequestServer | None = None
        self._closing = ForkLock()

    def start(self, per_second: float | None = None) -> None:
        """Start to compile, in the background, the exact kernels that the program requests. Where the system
        gives no thread for it, a warning says so.

        `per_second`: the seconds of compilation granted each second, None for all.
        """
        from .kernel_requests import RequestServer

        assert self._server is None
        try:
            self._server = RequestServer(self._machine, self._store, per_second)
        except RuntimeError as error:
            _LOG.warning(
                "no thread can be started to compile exact kernels (%s), so generic ones stay: raise the "
                "limit of processes (ulimit -u) or of memory, or load with strategy='generic'", error
            )  # fmt: skip
            return
        weakref.finalize(self, self._server.stop).atexit = False

    def ensure(self) -> None:
        """Start, unless it is already running or no compiler is installed."""
        from ..compiler.packages import has_compiler

        with self._closing:
            if self._server is None and has_compiler():
                self.start(settings.compile_budget / 1e3 if settings.compile_budget else None)

    @property
    def is_running(self) -> bool:
        """Whether requests for exact kernels are served."""
        return self._server is not None

    @property
    def opened_store(self) -> KernelStore | None:
        """The store of this program, None if nothing was looked up or compiled yet."""
        return self._store.opened

    def with_code(self, program: Program, cell: Cell) -> Program:
        """Return `program`, that of this machine, with code for a size or a range of each dimension. Raises
        the errors of `kernel_store.open_store`."""
        from .buckets import add_cells

        return add_cells(program, self._store.get(), [cell])

    @property
    def on_demand(self) -> StoreOnDemand:
        """The store, which may not be opened yet: its first user opens it."""
        return self._store

    @property
    def seconds(self) -> Mapping[Key, float]:
        """Latency of recent exact compilations, in seconds, by (kernel, dims)."""
        return dict(self._server.seconds) if self._server is not None else {}

    @property
    def gains(self) -> Mapping[int, float]:
        """The ratio of generic to exact time of the kernels that were measured beside the program."""
        known = self._server.known_gains if self._server is not None else {}
        return {kernel: gain.ratio for kernel, gain in known.items() if gain.ratio is not None}

    @property
    def pays_after(self) -> Mapping[Key, int]:
        """The number of runs after which exact code pays for its compilation, by (kernel, dims), for waiting
        requests."""
        if self._server is None:
            return {}
        gains = self._server.gains
        waiting = [
            (kernel, entry.dims) for kernel in range(len(self._machine.kernels))
            for entry in self._machine.site(kernel).entries
            if entry.tier != "exact" and entry.state in ("idle", "queued", "compiling")
        ]  # fmt: skip
        return {key: gains.pays_after(*key) for key in waiting if not gains.is_declined(*key)}

    def wait(self, timeout: float) -> bool:
        """Wait until no kernel is queued or being compiled, and the thread that compiles is idle: it neither
        has the GIL nor waits for it, so the process may be forked in C. False when that took longer than
        `timeout` seconds."""
        notice_fork()
        end = time.monotonic() + timeout
        with self.in_a_hurry():
            while self._machine.stats()["n_pending"] or self._machine.compiler_is_busy:
                if time.monotonic() > end:
                    return False
                time.sleep(0.001)
        return True

    @contextmanager
    def in_a_hurry(self) -> Iterator[None]:
        """Lift the budget of compilation."""
        self._machine.hurry()
        try:
            yield
        finally:
            self._machine.hurry(False)

    def close(self) -> None:
        """Stop, and free the program with its machine. Closing twice is fine."""
        with self._closing:
            if self._server is not None:
                self._server.close()
            self._machine.close()
