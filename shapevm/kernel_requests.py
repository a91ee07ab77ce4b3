"""Answering a program's requests for exact kernels, on a thread of its own."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .compile_process import CompileProcess
from .profitability import Gains, KernelGain, unknown_price
from .tile_measurement import TileMeasurement
from .vm.errors import ArgumentError
from .vm.fork_lock import ForkLock

if TYPE_CHECKING:
    from .jit.compile_job import Answer
    from .jit.store import KernelStore
    from .kernel_store import StoreOnDemand
    from .vm.machine import Machine, Request

MAX_SECONDS = 4096  # answers whose seconds are kept
MAX_WAITING = 256  # requests that pay and wait for the budget
FIRST_POLL_SECONDS = 0.005  # before the first look for the process's answer; twice as long before each next
LOOK_SECONDS = 0.1  # between two looks at what is going on, at most
IDLE_SECONDS = 30.0  # without anything to do, after which the process ends

Key = tuple[int, tuple[int, ...]]  # kernel, dims

_LOG = logging.getLogger("shapevm")


class Budget:
    """A share of time for compiling (a token bucket): callers run on the same cores, or on hyperthreads of
    them.

    `per_second`: seconds of work granted each second; up to `burst` seconds are saved while there is none to
    do. None grants all.
    """

    def __init__(self, per_second: float | None, burst: float = 0.1) -> None:
        self.per_second, self.burst = per_second, burst
        self.saved, self.since = burst, time.monotonic()

    def spend(self, seconds: float) -> None:
        """Take what work has cost."""
        self._refill()
        self.saved -= seconds

    def rest(self) -> float:
        """Return the seconds to rest before more work."""
        if self.per_second is None:
            return 0.0
        self._refill()
        return max(0.0, -self.saved / self.per_second)

    def _refill(self) -> None:
        now = time.monotonic()
        self.saved = min(self.burst, self.saved + (now - self.since) * (self.per_second or 0.0))
        self.since = now


class RequestServer:
    """Answers what `machine` asks for on a thread of its own until it is stopped.

    `per_second`: see Budget. With a budget, code is compiled where its expected gain pays for it (see
    `profitability`), by a process of the lowest priority (see `compile_process`); without,
    while somebody is in a hurry, and for calls that wait, at once and by the thread itself. The store is
    opened for the first request.
    """

    def __init__(self, machine: Machine, store: StoreOnDemand, per_second: float | None = None) -> None:
        self.machine = machine
        self._store = store
        self._gains: Gains | None = None
        self._looking = ForkLock()
        #: What pays and waits for the budget, in the order of coming: what is hottest has paid first.
        self.candidates: dict[Key, None] = {}
        #: Seconds that the answers to the latest requests took, by (kernel, dims).
        self.seconds: dict[Key, float] = {}
        self._budget = Budget(per_second)
        self._job: Key | None = None  # what the process is at for this program
        self._polls = 0  # for the job's answer
        self._failed: set[int] = set()  # kernels of which the log has said so
        self._is_stopped = False
        for kernel in range(len(machine.kernels) if per_second is not None else 0):
            machine.set_price(kernel, unknown_price())
        machine.attach_compiler(True)
        self._start()
        _SERVERS.add(self)

    def _start(self) -> None:
        if self._budget.per_second is None:
            self.machine.hurry()
        self._thread = threading.Thread(target=self._serve, name="shapevm-compiler", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Answer requests until no compiler is attached any more."""
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
        """What exact code is expected to gain, by kernel; looked up when it is first asked for."""
        with self._looking:
            if self._gains is None:
                self._gains = Gains(self._store.get(), self.machine)
                self._set_prices(range(len(self.machine.kernels)))
            return self._gains

    @property
    def known_gains(self) -> Mapping[int, KernelGain]:
        """What was looked up or measured of kernels so far."""
        return dict(self._gains.known) if self._gains is not None else {}

    @property
    def store(self) -> KernelStore:
        """What compiles."""
        return self._store.get()

    def _patience(self) -> float:
        """Return how long to wait for a request before what else there is to do."""
        if TILES.is_running:
            return LOOK_SECONDS
        if self._job is not None:
            return min(FIRST_POLL_SECONDS * 2 ** min(self._polls, 16), LOOK_SECONDS)
        return min(self._budget.rest(), LOOK_SECONDS) if self.candidates else IDLE_SECONDS

    def _set_prices(self, kernels: Iterable[int]) -> None:
        """Tell the runtime when entries of these kernels are to ask, where there is a budget."""
        for kernel in kernels if self._budget.per_second is not None else ():
            with suppress(Exception):  # a spec that is not sound: requests for its kernel will say so
                self.machine.set_price(kernel, self.gains.price(kernel))

    def _give_up(self) -> None:
        """Leave requests to whoever compiles next."""
        with _COMPILING:
            PROCESS.forget(self)
            for kernel, dims in [*self.candidates, *([self._job] if self._job else [])]:
                self.machine.decline(kernel, dims, again_after=1)
            self.candidates.clear()
            self._job = None

    def _guarded(self, answer: Callable[..., None], key: Key, *rest: Any) -> None:
        try:
            answer(key, *rest)
        except Exception as error:  # whatever it is, waiting callers must hear of it
            self._fail(key, f"{type(error).__name__}: {error}")

    def _fail(self, key: Key, text: str) -> None:
        """Answer that there is no code, once the log has the first such answer of each kernel."""
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
        """Answer a request, or let it wait for the budget."""
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
        """Take in what the process has answered, and do what is next."""
        self._take_answer()
        is_idle = not self.candidates and self._job is None
        if is_idle or TILES.is_running:
            TILES.go_on(self._store.opened)
        if is_idle:
            PROCESS.close(IDLE_SECONDS)
            return
        stats = self.machine.stats()
        if stats["n_waiting"]:
            for key in [k for k in (*self.candidates, self._job) if k and self.machine.is_awaited(*k)]:
                self._compile_now(key)
        elif stats["n_hurries"]:
            self._compile_now(self._job or next(iter(self.candidates)))
        elif self._job is None and self._budget.rest() <= 0:
            self._hand_over(next(iter(self.candidates)))

    def _compile_now(self, key: Key) -> None:
        """Compile a candidate, or what the process is at, by this thread."""
        self.candidates.pop(key, None)
        if key == self._job:
            PROCESS.forget(self)
            self._job = None
        self._guarded(self._compile, key)

    def _compile(self, key: Key) -> None:
        """Compile by this thread, without a look at what it gains."""
        from .jit.spec_reader import from_json

        kernel, dims = key
        start = time.monotonic()
        record = self.store.record(from_json(self.machine.kernels[kernel].spec), dims)
        self._note(key, time.monotonic() - start)
        self.machine.install(kernel, record)

    def _hand_over(self, key: Key) -> None:
        """Give a candidate to the process; this thread does it where there can be none."""
        kernel, dims = key
        if self.gains.is_declined(kernel, dims):  # since it was put there
            del self.candidates[key]
            self.machine.decline(kernel, dims)
            return
        if (record := self._cached(key)) is not None:  # another process has compiled it since
            del self.candidates[key]
            self.machine.install(kernel, record)
            return
        generic = self.machine.generic_code(kernel) if self.gains.wants_measuring(kernel) else b""
        job = self.store.job(self.gains.spec(kernel), dims, generic, self.gains.target(kernel))
        if PROCESS.submit(self, job):
            del self.candidates[key]
            self._job, self._polls = key, 0
        elif not PROCESS.is_usable:
            from .jit.compile_job import answer

            del self.candidates[key]
            self._guarded(lambda k: self._finish(k, answer(job)), key)
        else:
            self._budget.spend(LOOK_SECONDS * (self._budget.per_second or 1))  # another program's job first

    def _take_answer(self) -> None:
        if self._job is None:
            return
        answer, self._polls = PROCESS.answer(self), self._polls + 1
        if answer is not None:
            key, self._job = self._job, None
            self._guarded(self._finish, key, answer)

    def _finish(self, key: Key, answer: Answer) -> None:
        """Install what was compiled, and learn from what it took."""
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
        """Tell the thread to end after what it is compiling now; requests that wait are dropped. Does not
        wait: the garbage collector may call this anywhere."""
        if not self._is_stopped:
            self._is_stopped = True
            self.machine.attach_compiler(False)

    def close(self) -> None:
        """Stop, and wait until the thread has ended."""
        self.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def restart(self) -> None:
        """Serve again in a forked child, where the thread does not exist."""
        if not self._is_stopped:
            self.candidates.clear()  # the runtime asks for them again
            self._job = None
            self._start()


#: All that exist.
_SERVERS: weakref.WeakSet[RequestServer] = weakref.WeakSet()
#: Compiles in the background for all of them.
PROCESS = CompileProcess()
#: Measures this machine's register tiles there.
TILES = TileMeasurement(PROCESS)
#: Held while a kernel is compiled. A fork waits for it: no child inherits LLVM in the middle of its work.
_COMPILING = threading.Lock()


@atexit.register
def _close_all() -> None:
    """End all threads before LLVM's own data goes away with the process."""
    for server in list(_SERVERS):
        server.close()
    PROCESS.close()


def _after_fork_in_child() -> None:
    _COMPILING.release()
    PROCESS.abandon()
    TILES.is_running = False
    for server in list(_SERVERS):
        server.restart()


os.register_at_fork(
    before=_COMPILING.acquire, after_in_parent=_COMPILING.release, after_in_child=_after_fork_in_child
)
