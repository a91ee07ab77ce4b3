"""A process that compiles: beside a program, at the lowest priority that the system has, or to be waited for.

A thread of that priority would stall its callers: on a busy machine it gets no processor time, and what it
holds, the interpreter's lock above all, nobody else gets. A process shares no lock with its program.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a load imports no more than it needs: the process starts later, if at all
    import socket
    import subprocess

    from .jit.compile_job import Answer, Batch, Job, TilesJob

_LOG = logging.getLogger("shapevm")
LOOK_MS = 1000  # of a thread that waits: whether its job was forgotten
MAX_DEATHS = 3  # without an answer in between: beyond that no process is started any more

# Its priority comes first, before it imports anything; SCHED_IDLE gets what others leave, and little else.
_PROGRAM = """
import os, sys
if {is_background}:
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        os.nice(19)
sys.path[:] = {path!r}
from shapevm.jit.compile_job import serve
serve({connection}, {file})
"""


class CompileProcess:
    """Does one job at a time; started by the first, it ends with `close` or with this process. Safe to use
    from several threads, none of which waits for it but in `run`. `is_background`: it has the lowest
    priority."""

    def __init__(self, is_background: bool = True) -> None:
        self._is_background = is_background
        self._lock = threading.Lock()
        self._link: socket.socket | None = None
        self._file = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._owner: Any = None  # whose job it is at, None: nobody wants the answer
        self._is_busy = False
        self._n_deaths = 0
        self._used = 0.0  # when a job ended last
        self._leaving: list[subprocess.Popen[bytes]] = []

    @property
    def is_usable(self) -> bool:
        """Whether jobs can be given to it."""
        return self._n_deaths < MAX_DEATHS and _is_interpreter()

    @property
    def pid(self) -> int | None:
        """The process's id, None while there is none."""
        return self._process.pid if self._process is not None else None

    def submit(self, owner: object, job: Job | Batch | TilesJob) -> bool:
        """Give it a job; return False where it is busy with another or cannot be started."""
        with self._lock:
            if self._is_busy and self._owner is None:
                self._receive()
            if self._is_busy or not (self._link or self._start()) or not self._send(job):
                return False
            self._owner, self._is_busy = owner, True
            return True

    def answer(self, owner: object) -> Answer | None:
        """Return the answer to the owner's job, None while there is none."""
        with self._lock:
            if self._owner is not owner:
                return None
            found = self._receive()
            if found is not None:
                self._owner, self._used = None, time.monotonic()
            return found

    def run(self, job: Job) -> Answer | None:
        """Return the answer to a job, once it is there; None where it is busy, cannot be started, or is told
        to forget the job meanwhile."""
        return self.wait(self) if self.submit(self, job) else None

    def wait(self, owner: object) -> Answer | None:
        """Return the answer to the owner's job, once it is there; None where it is told to forget it."""
        import select

        while (found := self.answer(owner)) is None:
            with self._lock:
                if self._owner is not owner or self._link is None:
                    return None
                waiting = select.poll()  # `select` takes no descriptors beyond 1023
                waiting.register(self._link, select.POLLIN)
            waiting.poll(LOOK_MS)
        return found

    def stop_batch(self) -> None:
        """Let it answer a batch when it has done the job that it is at."""
        from .jit.compile_job import LENGTH_BYTES

        with self._lock, suppress(OSError):  # it has died: `_receive` finds out
            if self._link is not None and self._is_busy:
                self._link.send(bytes(LENGTH_BYTES))

    def forget(self, owner: object) -> None:
        """Drop the owner's job: nobody will ask for its answer."""
        with self._lock:
            if self._owner is owner:
                self._owner = None

    def close(self, idle_seconds: float = 0.0) -> None:
        """End the process, if it has had nothing to do for so long: no job that somebody waits for."""
        with self._lock:
            if self._owner is None and time.monotonic() - self._used >= idle_seconds:
                self._end()

    def abandon(self) -> None:
        """Leave it to the parent, in a forked child."""
        self._lock = threading.Lock()
        for process in (*self._leaving, *([self._process] if self._process is not None else [])):
            process.returncode = 0  # it is no child of this process
        self._end()

    def _start(self) -> bool:
        import socket
        import subprocess
        import tempfile

        if not self.is_usable:
            return False
        ours, theirs = socket.socketpair()
        try:
            with theirs, tempfile.TemporaryFile() as file:
                self._file = os.dup(file.fileno())
                program = _PROGRAM.format(
                    path=sys.path, connection=theirs.fileno(), file=self._file,
                    is_background=self._is_background,
                )  # fmt: skip
                self._process = subprocess.Popen(
                    [sys.executable, "-c", program], pass_fds=(theirs.fileno(), self._file),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    process_group=0,  # for signals of a terminal; a session would have its own share of time
                    env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                )  # fmt: skip
        except OSError as error:
            ours.close()
            self._end()
            self._died(str(error))
            return False
        ours.setblocking(False)
        self._link = ours
        return True

    def _send(self, job: Job | Batch | TilesJob) -> bool:
        """Hand the job over; False where its file has no room, as on a full disk."""
        import pickle

        from .jit.compile_job import LENGTH_BYTES, write_payload

        payload = pickle.dumps(job)
        try:
            write_payload(self._file, payload)
        except OSError as error:
            self._end()
            self._died(str(error))
            return False
        assert self._link is not None
        with suppress(OSError):  # it has died: `_receive` finds out
            self._link.send(len(payload).to_bytes(LENGTH_BYTES))
        return True

    def _receive(self) -> Answer | None:
        """Return the answer if it is there; one that says so if the process has died."""
        import pickle

        from .jit.compile_job import LENGTH_BYTES, Answer

        assert self._link is not None
        try:
            length = self._link.recv(LENGTH_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            length = b""
        self._is_busy = False
        if not length:
            self._end()
            self._died("it ended without an answer")
            return Answer(failure="the process that compiles has ended")
        found = pickle.loads(os.pread(self._file, int.from_bytes(length), 0))
        os.ftruncate(self._file, 0)
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
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            self._leaving.append(self._process)  # at its priority it may take a while: nobody waits
        self._leaving = [process for process in self._leaving if process.poll() is None]
        if self._link is not None:
            self._link.close()
        if self._file >= 0:
            os.close(self._file)
        self._process, self._link, self._file = None, None, -1
        self._owner, self._is_busy = None, False


def _is_interpreter() -> bool:
    """Whether this program's own interpreter can be started again: not where it is frozen or embedded."""
    name = os.path.basename(sys.executable or "")
    return name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)
