"""The service of a program's requests for exact kernels, on a separate thread."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..vm.errors import ArgumentError
from ..vm.fork_lock import ForkLock, after_fork, notice_fork
from ..vm.handle import ProgramClosed
from ..vm.native import Lock, Thread
from .compile_process import CompileProcess, Future, TileMeasurement
from .profitability import Budget, Gains, KernelGain, starting_pays, unknown_price

if TYPE_CHECKING:
    from ..jit.compile_job import Answer
    from ..jit.spec import KernelSpec
    from ..jit.store import KernelStore
    from ..vm.machine import Machine, Request
    from .kernel_store import StoreOnDemand

MAX_SECONDS = 4096  # answers whose seconds are kept
MAX_WAITING = 256  # profitable requests that wait for the budget
FIRST_POLL_SECONDS = 0.005  # before the first poll for the process's answer; doubled before each next one
LOOK_SECONDS = 0.1  # at most, between two polls
IDLE_SECONDS = 30.0  # idle time after which the process ends

Key = tuple[int, tuple[int, ...]]  # kernel, dims

_LOG = logging.getLogger("shapevm")


class RequestServer:
    """Serves the requests of `machine` on a separate thread until it is stopped.

    `per_second`: see Budget. With a budget, code is compiled if its expected gain pays for it (see
    `profitability`), by a process of the lowest priority (see `compile_process`). Without a budget, after
    `in_a_hurry`, and for calls that wait, the thread itself compiles it at once. The store is opened for the
    first request.
    """

    def __init__(self, machine: Machine, store: StoreOnDemand, per_second: float | None = None) -> None:
        self.machine = machine
        self._store = store
        self._gains: Gains | None = None
        self._looking = ForkLock()
        #: Profitable requests awaiting budget, first come, first served.
        self.candidates: dict[Key, None] = {}
        #: Latency of recent requests in seconds, by (kernel, dims).
        self.seconds: dict[Key, float] = {}
        self._budget = Budget(per_second)
        self._job: tuple[Key, Future] | None = None  # the process's current job for this program
        self._polls = 0  # polls for the job's answer
        self._failed: set[int] = set()  # kernels whose failure was logged
        self._is_stopped = False
        for kernel in range(len(machine.kernels) if per_second is not None else 0):
            machine.set_price(kernel, unknown_price())
        machine.attach_compiler(True)
        self._start()
        _SERVERS.add(self)

    def _start(self) -> None:
        if self._budget.per_second is None:
            self.machine.hurry()
        try:
            self._thread = Thread(self._serve)
        except RuntimeError:  # the system gives no thread
            self.machine.attach_compiler(False)
            raise
        _THREADS.add(self._thread)

    def _serve(self) -> None:
        """Serve requests until no compiler is attached, or the program is closed."""
        with suppress(ProgramClosed):
            self._serve_open()

    def _serve_open(self) -> None:
        while True:
            try:
                request = self.machine.wait_request(self._patience())
            except ArgumentError:
                self._give_up()
                return
            with _COMPILING:
                if request is not None:
                    self._guarded(self._consider, (request.kernel, request.dims), request)
                self._work()

    @property
    def gains(self) -> Gains:
        """The expected gains of exact code, by kernel; looked up on first use."""
        with self._looking:
            if self._gains is None:
                self._gains = Gains(self._store.get(), self.machine)
                self._set_prices(range(len(self.machine.kernels)))
            return self._gains

    @property
    def known_gains(self) -> Mapping[int, KernelGain]:
        """The gains that were looked up or measured so far."""
        return dict(self._gains.known) if self._gains is not None else {}

    @property
    def store(self) -> KernelStore:
        """The store that compiles."""
        return self._store.get()

    def _patience(self) -> float:
        """Return how long to wait for a request before other work is due."""
        if TILES.future is not None:
            return LOOK_SECONDS
        if self._job is not None:
            return min(FIRST_POLL_SECONDS * 2 ** min(self._polls, 16), LOOK_SECONDS)
        return min(self._budget.rest(), LOOK_SECONDS) if self.candidates else IDLE_SECONDS

    def _set_prices(self, kernels: Iterable[int]) -> None:
        """Tell the runtime when entries of these kernels should request code, if there is a budget."""
        for kernel in kernels if self._budget.per_second is not None else ():
            with suppress(Exception):  # an invalid spec: requests for its kernel will report it
                self.machine.set_price(kernel, self.gains.price(kernel))

    def _give_up(self) -> None:
        """Leave requests to the next server."""
        with _COMPILING:
            self._take_back()
            for kernel, dims in self.candidates:
                self.machine.decline(kernel, dims, again_after=1)
            self.candidates.clear()

    def _take_back(self) -> None:
        """Make the process's current job a candidate again, the first one."""
        if self._job is not None:
            key, future = self._job
            future.drop()
            self._job, self.candidates = None, {key: None, **self.candidates}

    def _guarded(self, answer: Callable[..., None], key: Key, *rest: Any) -> None:
        try:
            answer(key, *rest)
        except Exception as error:  # whatever it is, waiting callers must be told
            self._fail(key, f"{type(error).__name__}: {error}")

    def _fail(self, key: Key, text: str) -> None:
        """Answer that there is no code; log the first such answer of each kernel."""
        self.candidates.pop(key, None)
        kernel, dims = key
        if kernel not in self._failed:
            self._failed.add(kernel)
            _LOG.warning(
                "kernel %d (%s) could not be compiled for sizes %s, its generic code goes on: %s",
                kernel, self.machine.kernels[kernel].label, list(dims), text,
            )  # fmt: skip
        self.machine.compile_failed(kernel, dims, text)

    def _consider(self, key: Key, request: Request) -> None:
        """Answer a request, or queue it for the budget."""
        kernel, dims = key
        if request.is_awaited or self.machine.is_hurried:
            self._compile(key)
        elif self.gains.is_declined(kernel, dims):
            self.machine.decline(kernel, dims)
        elif (record := self._cached(key)) is not None:
            self.machine.install(kernel, record)
        elif request.runs < (needed := self.gains.pays_after(kernel, dims)):
            self.machine.decline(kernel, dims, again_after=needed)
        elif len(self.candidates) >= MAX_WAITING:
            self.machine.decline(kernel, dims, again_after=2 * request.runs)
        else:
            self.candidates[key] = None

    def _cached(self, key: Key) -> bytes | None:
        """Return the code of a request, if it is in the cache."""
        kernel, dims = key
        return self.store.cached(self.gains.spec(kernel), dims, self.gains.target(kernel))

    def _work(self) -> None:
        """Handle the process's answer, then the next work."""
        self._take_answer()
        is_idle = not self.candidates and self._job is None
        if is_idle or TILES.future is not None:
            TILES.go_on(self._store.opened)
        if is_idle:
            PROCESS.close(IDLE_SECONDS)
            return
        stats = self.machine.stats()
        if stats["n_waiting"]:
            if self._job is not None and self.machine.is_awaited(*self._job[0]):
                self._take_back()
            for key in [key for key in self.candidates if self.machine.is_awaited(*key)]:
                self._compile_now(key)
        elif stats["n_hurries"]:
            self._take_back()
            self._compile_now(next(iter(self.candidates)))
        elif self._job is None and self._budget.rest() <= 0:
            self._hand_over(next(iter(self.candidates)))

    def _compile_now(self, key: Key) -> None:
        """Compile a candidate on this thread."""
        del self.candidates[key]
        self._guarded(self._compile, key)

    def _compile(self, key: Key) -> None:
        """Compile on this thread, regardless of the gain."""
        from ..jit.spec_reader import from_json

        kernel, dims = key
        start = time.monotonic()
        spec = from_json(self.machine.kernels[kernel].spec)
        record = self.store.record(spec, dims) if _STATE.has_llvm else self._record_from_elsewhere(spec, dims)
        self._note(key, time.monotonic() - start)
        self.machine.install(kernel, record)

    def _record_from_elsewhere(self, spec: KernelSpec, dims: tuple[int, ...]) -> bytes:
        """Return code that a process has compiled. Raises OSError if there is none."""
        if (record := self.store.cached(spec, dims)) is not None:
            return record
        answer = ELSEWHERE.run(self.store.job(spec, dims, b""))
        if answer is None or answer.failure:
            raise OSError(answer.failure if answer is not None else "no process that compiles can be started")
        self.store.adopt(spec, dims, answer)
        return answer.record

    def _hand_over(self, key: Key) -> None:
        """Give a candidate to the process; if there can be none, compile on this thread."""
        kernel, dims = key
        if self.gains.is_declined(kernel, dims):  # declined since it was queued
            del self.candidates[key]
            self.machine.decline(kernel, dims)
            return
        if (record := self._cached(key)) is not None:  # another process has compiled it since
            del self.candidates[key]
            self.machine.install(kernel, record)
            return
        generic = self.machine.generic_code(kernel) if self.gains.wants_measuring(kernel) else b""
        job = self.store.job(self.gains.spec(kernel), dims, generic, self.gains.target(kernel))
        if not PROCESS.is_usable:
            from ..jit.compile_job import answer

            del self.candidates[key]
            self._guarded(lambda k: self._finish(k, answer(job)), key)
        elif (PROCESS.pid is not None or self._starting_pays()) and (future := PROCESS.submit(job)):
            del self.candidates[key]
            self._job, self._polls = (key, future), 0
        else:
            self._budget.spend(LOOK_SECONDS * (self._budget.per_second or 1))  # another program's job first

    def _starting_pays(self) -> bool:
        """Whether starting the process pays for the waiting kernels."""
        waiting = sum(self.gains.compile_ns(kernel) for kernel, _ in self.candidates) / 1e9
        return starting_pays(time.monotonic() - _STATE.begin, waiting)

    def _take_answer(self) -> None:
        if self._job is None:
            return
        key, future = self._job
        answer, self._polls = future.answer(), self._polls + 1
        if answer is not None:
            self._job = None
            self._guarded(self._finish, key, answer)

    def _finish(self, key: Key, answer: Answer) -> None:
        """Install compiled code, and learn from its cost."""
        kernel, dims = key
        self._budget.spend(answer.cpu_seconds)
        if answer.failure:
            self._fail(key, answer.failure)
            return
        self.store.adopt(self.gains.spec(kernel), dims, answer, self.gains.target(kernel))
        self._note(key, answer.seconds)
        self.machine.install(kernel, answer.record)
        self._set_prices(self.gains.learn(kernel, dims, answer))

    def _note(self, key: Key, seconds: float) -> None:
        if len(self.seconds) >= MAX_SECONDS:
            del self.seconds[next(iter(self.seconds))]
        self.seconds[key] = seconds

    def stop(self) -> None:
        """Tell the thread to end after its current compilation; requests that wait are dropped. Does not
        wait: the garbage collector may call this anywhere."""
        if not self._is_stopped:
            self._is_stopped = True
            with suppress(ProgramClosed):
                self.machine.attach_compiler(False)

    def close(self) -> None:
        """Stop, and wait until the thread has ended."""
        notice_fork()
        self.stop()
        if not self._thread.is_current:
            self._thread.join()

    def restart(self) -> None:
        """Serve again in a forked child, where the thread does not exist."""
        if not self._is_stopped:
            self.candidates.clear()  # the runtime requests them again
            self._job = None
            self._start()


#: All that exist.
_SERVERS: weakref.WeakSet[RequestServer] = weakref.WeakSet()
#: Their running threads. One may hold the last reference to its server, and so free the program's tensors.
_THREADS: weakref.WeakSet[Thread] = weakref.WeakSet()
#: Compiles in the background for all of them.
PROCESS = CompileProcess()
#: Measures this machine's register tiles there.
TILES = TileMeasurement(PROCESS)
#: Compiles for waiting calls, if LLVM cannot be used in this process.
ELSEWHERE = CompileProcess(is_background=False)


class _State:
    """When this process began to run programs, whether LLVM can be used in it, whether Python forks it."""

    def __init__(self, has_llvm: bool = True) -> None:
        self.begin, self.has_llvm, self.is_forking = time.monotonic(), has_llvm, False


_STATE = _State()
#: Held while a kernel is compiled. Python's forks wait for it, so no child inherits LLVM in the middle of its
#: work. A child that was forked in C may do so, and therefore compiles in a separate process.
_COMPILING = Lock()


@atexit.register
def _close_all() -> None:
    """End all threads before LLVM's own data goes away with the process."""
    for server in list(_SERVERS):
        server.close()
    for thread in list(_THREADS):
        thread.join()
    for process in (PROCESS, ELSEWHERE):
        process.close()


def _before_fork() -> None:
    _COMPILING.acquire()
    _STATE.is_forking = True


def _after_fork_in_parent() -> None:
    _STATE.is_forking = False
    _COMPILING.release()


def _after_fork_in_child() -> None:
    global _COMPILING, _STATE
    _STATE = _State(_STATE.has_llvm and (_STATE.is_forking or not _COMPILING.locked()))
    _COMPILING = Lock()
    for process in (PROCESS, ELSEWHERE):
        process.abandon()
    TILES.future = None
    _THREADS.clear()
    for server in list(_SERVERS):
        server.restart()


after_fork(_after_fork_in_child)
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
