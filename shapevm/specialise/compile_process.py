"""A process that compiles: beside a program, at the lowest priority of the system, or for callers that wait.

A thread of that priority would stall its callers: on a busy machine it gets no CPU time, while it holds locks
such as the GIL. A process shares no lock with its program.
"""

from __future__ import annotations

import logging
import math
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ..vm.native import Lock, select
from .worker import Worker, interpreter

if TYPE_CHECKING:  # keeps loading fast: the process starts later, if at all
    from ..jit.compile_job import Answer, Batch, Job, TilesJob
    from ..jit.store import KernelStore

_LOG = logging.getLogger("shapevm")
LOOK_MS = 1000  # how often a waiting thread checks whether its job was dropped
MAX_DEATHS = 3  # without an answer in between; after that no process is started
TILES_AFTER_SECONDS = 10.0  # of process time: a short-lived process measures nothing


class Future:
    """The answer to a job that a process does."""

    def __init__(self, process: CompileProcess) -> None:
        self._process = process

    def answer(self) -> Answer | None:
        """Return the answer once, None while there is none or if the job was dropped."""
        return self._process._answer(self)

    def wait(self) -> Answer | None:
        """Wait for the answer and return it; None if the job is dropped."""
        while (found := self.answer()) is None:
            if not self._process._wait(self, LOOK_MS):
                return None
        return found

    def drop(self) -> None:
        """Drop the job, whose answer is no longer wanted."""
        self._process._drop(self)


class CompileProcess:
    """Does one job at a time. The first job starts it; it ends with `close` or with this process, however
    that ends. Safe to use from several threads, which wait for it only in `run`. `is_background`: it has the
    lowest priority."""

    def __init__(self, is_background: bool = True) -> None:
        self._is_background = is_background
        self._lock = Lock()
        self._worker: Worker | None = None
        self._current: Future | None = None  # of its job; None: the answer is not wanted
        self._is_busy = False
        self._n_deaths = 0
        self._used = 0.0  # when a job ended last

    @property
    def is_usable(self) -> bool:
        """Whether it accepts jobs."""
        return self._n_deaths < MAX_DEATHS and bool(interpreter())

    @property
    def pid(self) -> int | None:
        """The process's id, None while there is none."""
        return self._worker.pid if self._worker is not None else None

    def submit(self, job: Job | Batch | TilesJob) -> Future | None:
        """Give it a job; return None if it is busy with another or cannot be started."""
        with self._lock:
            if self._is_busy and self._current is None:
                self._receive()
            if self._is_busy or not (self._worker or self._start(job)) or not self._send(job):
                return None
            self._current, self._is_busy = Future(self), True
            return self._current

    def run(self, job: Job | TilesJob) -> Answer | None:
        """Run a job and return its answer; None if the process is busy, cannot be started, or the job is
        dropped meanwhile."""
        future = self.submit(job)
        return future.wait() if future is not None else None

    def _answer(self, future: Future) -> Answer | None:
        with self._lock:
            found = self._receive() if self._current is future else None
            if found is not None:
                self._current, self._used = None, time.monotonic()
            return found

    def _wait(self, future: Future, milliseconds: int) -> bool:
        """Wait for a message; return False if the job was dropped."""
        with self._lock:
            if self._current is not future or self._worker is None:
                return False
            waiting = select.poll()  # `select` takes no descriptors beyond 1023
            waiting.register(self._worker.link, select.POLLIN)
        waiting.poll(milliseconds)
        return True

    def _drop(self, future: Future) -> None:
        with self._lock:
            if self._current is future:
                self._current = None

    def stop_batch(self) -> None:
        """Let it answer a batch after its current job."""
        from ..jit.compile_job import LENGTH_BYTES

        with self._lock, suppress(OSError):  # it has died: `_receive` finds out
            if self._worker is not None and self._is_busy:
                self._worker.link.send(bytes(LENGTH_BYTES))

    def close(self, idle_seconds: float = 0.0) -> None:
        """End the process if it has been idle for this long, that is, without a job whose answer is
        wanted."""
        with self._lock:
            if self._current is None and time.monotonic() - self._used >= idle_seconds:
                self._end()

    def end(self) -> None:
        """End the process; its job is dropped."""
        with self._lock:
            self._end()

    def abandon(self) -> None:
        """Leave it to the parent, in a forked child."""
        self._lock = Lock()
        if self._worker is not None:
            self._worker.leave()
        self._forget_worker()

    def _start(self, job: Job | Batch | TilesJob) -> bool:
        if not self.is_usable:
            return False
        try:
            self._worker = Worker(self._is_background, getattr(job, "cache", ""))
        except BlockingIOError:  # other programs' processes first
            return False
        except OSError as error:
            self._died(str(error))
        return self._worker is not None

    def _send(self, job: Job | Batch | TilesJob) -> bool:
        """Send the job; False if it does not fit the file, as on a full disk."""
        import pickle

        from ..jit.compile_job import LENGTH_BYTES, write_payload

        assert self._worker is not None
        payload = pickle.dumps(job)
        try:
            write_payload(self._worker.file, payload)
        except OSError as error:
            self._end()
            self._died(str(error))
            return False
        with suppress(OSError):  # it has died: `_receive` finds out
            self._worker.link.send(len(payload).to_bytes(LENGTH_BYTES))
        return True

    def _receive(self) -> Answer | None:
        """Return the answer if it is there, or an error answer if the process has died."""
        import pickle

        from ..jit.compile_job import LENGTH_BYTES, Answer

        assert self._worker is not None
        try:
            length = self._worker.link.recv(LENGTH_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            length = b""
        self._is_busy = False
        if not length:
            self._end()
            self._died("it ended without an answer")
            return Answer(failure="the process that compiles has ended")
        found = pickle.loads(os.pread(self._worker.file, int.from_bytes(length), 0))
        os.ftruncate(self._worker.file, 0)
        self._n_deaths = 0
        assert isinstance(found, Answer)
        return found

    def _died(self, why: str) -> None:
        self._n_deaths += 1
        if self._n_deaths == MAX_DEATHS:
            _LOG.warning(
                "kernels are compiled by a thread of the program, beside its calls: no process for that can "
                "be started (%s)", why,
            )  # fmt: skip

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._forget_worker()

    def _forget_worker(self) -> None:
        self._worker, self._current, self._is_busy = None, None, False


class TileMeasurement:
    """The measurement of this machine's register tiles (`jit.measure.tiles`), once, by a process that is
    idle. Later stores use its result; no existing program changes its code."""

    def __init__(self, process: CompileProcess) -> None:
        self._process = process
        self._not_before = time.monotonic() + TILES_AFTER_SECONDS
        self.future: Future | None = None  # while it runs

    def go_on(self, store: KernelStore | None) -> None:
        """Give the job to the process unless it was done, or take the answer if it is there. `store`: a
        program's store, None if it has none yet."""
        if store is None:
            return
        if self.future is not None:
            answer = self.future.answer()
            if answer is not None:
                self.future = None
                if not answer.failure:
                    store.remember_tiles(answer.record)
        elif time.monotonic() >= self._not_before and store.wants_tiles:
            from ..jit.compile_job import TilesJob

            self._not_before = math.inf
            self.future = self._process.submit(TilesJob(store.target, cache=store.folder))
