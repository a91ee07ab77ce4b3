"""The process behind a `CompileProcess`: its start and its end.

It ends with its program, however that ends, and regains normal priority for that, because at the lowest one a
process may get no CPU time to end. If the system does not allow that (RLIMIT_NICE, CAP_SYS_NICE), it runs at
a priority at which it ends within a few seconds. At most MAX_PROCESSES of a user work in the background.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from contextlib import suppress
from itertools import count

from ..vm._runtime import __file__ as RUNTIME
from ..vm.files import temporary_file
from ..vm.native import posix

MAX_PROCESSES = 2  # in the background, of a user on a machine
NICE = 10  # of one that could not regain normal priority
LINK, FILE, SLOT = 3, 4, 5  # descriptors of the process: its end of the link, jobs and answers, its slot
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

# It first prepares for its end, then sets its priority, before it imports anything else.
_PROGRAM = """
import os, sys
os.closerange({n_files}, 1 << 16)
sys.path[:] = {path!r}
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
loader = ExtensionFileLoader("shapevm.vm._runtime", {runtime!r})
runtime = module_from_spec(ModuleSpec(loader.name, loader, origin=loader.path))
loader.exec_module(runtime)
sys.modules[loader.name] = runtime
if runtime.lib.svm_end_with({program}, {link}):
    sys.exit(1)
if {is_background}:
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    os.nice(1)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, usual)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        os.nice({nice} - 1)
from shapevm.jit.compile_job import serve
serve({link}, {file})
"""


class Worker:
    """A process that answers jobs over `link`, whose bytes lie in `file`.

    `is_background`: it has the lowest priority, and one of the slots that the folder `cache` has for a user's
    processes, or a slot of this program and its children if there is no such folder. Raises BlockingIOError
    if no slot is free, OSError if no process can be started.
    """

    def __init__(self, is_background: bool, cache: str) -> None:
        import _socket  # not socket, which gevent and eventlet replace

        reap()
        slot = _free_slot(cache) if is_background else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.link, theirs = _socket.socketpair()
        try:
            with temporary_file() as file:
                self.file = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 0)
            self.pid = _spawn(is_background, (theirs.fileno(), self.file, slot))
        except BaseException:
            self.leave()
            raise
        finally:
            theirs.close()
            os.close(slot)
        self.link.setblocking(False)

    def end(self) -> None:
        """End the process without waiting for it: the next start or end reaps it."""
        if not self.is_gone:
            with suppress(OSError):
                os.sched_setscheduler(self.pid, os.SCHED_OTHER, os.sched_param(0))
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            _ENDING.append(self)
        reap()
        self.leave()

    def leave(self) -> None:
        """Leave the process to the parent, in a forked child."""
        self.link.close()
        if (file := vars(self).pop("file", None)) is not None:
            os.close(file)

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended and was reaped."""
        try:
            return bool(posix.waitpid(self.pid, os.WNOHANG)[0])
        except ChildProcessError:  # the program waits for all of its children
            return True


def reap() -> None:
    """Reap the processes that have ended."""
    for worker in [worker for worker in _ENDING if worker.is_gone]:
        with suppress(ValueError):  # another thread was faster
            _ENDING.remove(worker)


def _spawn(is_background: bool, files: tuple[int, ...]) -> int:
    """Start the process, with these files as LINK, FILE and SLOT; return its id."""
    text = _PROGRAM.format(
        n_files=SLOT + 1, path=sys.path, runtime=RUNTIME, program=os.getpid(), link=LINK, file=FILE,
        is_background=is_background, nice=NICE,
    )  # fmt: skip
    beyond = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, SLOT + 1) for file in files]
    actions: list[tuple[object, ...]] = [
        *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(LINK)),
        *((os.POSIX_SPAWN_DUP2, file, number) for file, number in zip(beyond, count(LINK), strict=False)),
    ]
    try:  # a process group, because of a terminal's signals; a session would get its own CPU share
        return posix.posix_spawn(
            interpreter(), [interpreter(), "-c", text], {**os.environ, **ENVIRONMENT}, file_actions=actions,
            setpgroup=0, setsigmask=[], setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )  # fmt: skip
    finally:
        for file in beyond:
            os.close(file)


def interpreter() -> str:
    """Return the path of this program's interpreter, "" if it cannot be started again, as in a frozen
    program. A host that embeds Python may name itself."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    known = (sys.executable or "", os.path.join(sys.exec_prefix, "bin", version))
    if getattr(sys, "frozen", False):
        return ""
    names = (path for path in known if os.path.basename(path).startswith(("python", "pypy")))
    return next((path for path in names if os.access(path, os.X_OK)), "")


def _free_slot(cache: str) -> int:
    """Return an open file with a lock that the process will hold. Raises BlockingIOError if all are taken."""
    for index in range(MAX_PROCESSES):
        file = _open_slot(cache, index)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            os.close(file)
    raise BlockingIOError("as many processes as may compile in the background")


def _open_slot(cache: str, index: int) -> int:
    if cache:
        with suppress(OSError):  # it is full, or read-only
            os.makedirs(cache, 0o700, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(os.path.join(cache, f"process-{index}"), flags, 0o600)
    return os.open(f"/proc/self/fd/{_TREE}", os.O_RDWR | os.O_CLOEXEC)


#: Processes that were told to end: they are zombies until they are reaped.
_ENDING: list[Worker] = []
os.register_at_fork(after_in_child=_ENDING.clear)

#: Without a cache, one process works for this program and its children.
_TREE = os.memfd_create("shapevm-process", os.MFD_CLOEXEC)
