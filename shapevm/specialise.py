"""Background specialisation: a thread of its own answers a program's requests for exact kernels."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .compile_process import CompileProcess
from .profitability import Gains, KernelGain, unknown_price
from .settings import settings
from .tile_measurement import TileMeasurement
from .vm.errors import ArgumentError, CompileError, Error, TargetError
from .vm.fork_lock import ForkLock

if TYPE_CHECKING:
    from .jit.compile_job import Answer
    from .jit.object.shared_cache import Cache
    from .jit.store import KernelStore
    from .vm.machine import Machine, Request

MAX_SECONDS = 4096  # answers whose seconds are kept
MIN_SECRET_BYTES = 16  # of a file of cache_secret_file
MAX_WAITING = 256  # requests that pay and wait for the budget
FIRST_POLL_SECONDS = 0.005  # before the first look for the process's answer; twice as long before each next
LOOK_SECONDS = 0.1  # between two looks at what is going on, at most
IDLE_SECONDS = 30.0  # without anything to do, after which the process ends

Key = tuple[int, tuple[int, ...]]  # kernel, dims

_LOG = logging.getLogger("shapevm")
_FOR_KERNELS = {"llvmlite": "llvmlite"}  # module: package
_FOR_GRAPHS = {**_FOR_KERNELS, "sympy": "sympy"}
_FOR_MODELS = {**_FOR_GRAPHS, "torch": "torch"}


class MissingPackage(Error, RuntimeError):
    """Compiling needs a package that is not installed."""


def has_compiler() -> bool:
    """Return True where kernels can be compiled here: llvmlite is installed."""
    return not _missing(_FOR_KERNELS)


def check_kernel_compiler() -> None:
    """Raise MissingPackage where kernels cannot be compiled here."""
    missing = _missing(_FOR_KERNELS)
    if missing:
        raise MissingPackage(f"compiling kernels needs {', '.join(missing)}: install shapevm[compile]")


def check_compiler(is_torch: bool = True) -> None:
    """Raise MissingPackage where models, of PyTorch's or without it, cannot be compiled here."""
    missing = _missing(_FOR_MODELS if is_torch else _FOR_GRAPHS)
    if missing:
        raise MissingPackage(
            f"compiling needs {', '.join(missing)}: install shapevm[compile]; running artifacts does not"
        )


def _missing(needed: Mapping[str, str]) -> list[str]:
    return [package for module, package in needed.items() if importlib.util.find_spec(module) is None]


def open_store(target: str | None = None, is_host: bool = False) -> KernelStore:
    """Return a store of compiled kernels with the cache that the settings say.

    `target`: None for the setting's, and without one this machine's; `is_host`: the code must run on this
    machine. Raises ArgumentError for an unknown target, TargetError on a CPU that no target is for.
    """
    from .jit.llvm.target import TARGETS, runs_here
    from .jit.store import KernelStore
    from .jit.tuning import FILE, TuningDatabase

    wanted = target or settings.target or None
    if wanted is not None and (not isinstance(wanted, str) or wanted not in TARGETS):
        raise ArgumentError(f"target {wanted!r} is unknown; known are {', '.join(TARGETS)}")
    if is_host and wanted is not None and not runs_here(wanted):
        wanted = None
    path = settings.cache_path()
    cache = _cache(path) if path is not None else None
    tuning = TuningDatabase(path / FILE) if path is not None else None
    try:
        return KernelStore(cache, wanted, tuning, is_measured=settings.measured_tiles)
    except RuntimeError as error:
        raise TargetError(str(error)) from None


class StoreOnDemand:
    """A store of compiled kernels that is opened by the first who needs it: importing the compiler takes
    longer than loading most programs, and 50 MB. The settings are those of the thread that makes this
    object. Safe to use from several threads."""

    def __init__(self, open: Callable[[], KernelStore]) -> None:
        self._open, self._settings = open, copy_context()
        self._lock = ForkLock()
        self.opened: KernelStore | None = None  # None: nobody has needed it

    def get(self) -> KernelStore:
        """Return the store. Raises what opening it raises."""
        with self._lock:
            if self.opened is None:
                self.opened = self._settings.run(self._open)
            return self.opened


def _cache(path: Path) -> Cache:
    """Return the cache at `path`, before the shared one if there is a setting for that."""
    from .jit.object.cache import DiskCache
    from .jit.object.shared_cache import LayeredCache, shared_cache

    local = DiskCache(path, settings.cache_mib << 20)
    if not settings.cache_url:
        return local
    try:
        return LayeredCache(local, shared_cache(settings.cache_url, _fleet_secret()))
    except ImportError as error:
        raise MissingPackage(
            f"cache_url {settings.cache_url!r} needs fsspec and its package for that protocol ({error}): "
            "install shapevm[fleet]"
        ) from None
    except ValueError as error:
        raise ArgumentError(f"cache_url {settings.cache_url!r} cannot be opened: {error}") from None


def _fleet_secret() -> bytes:
    """Return the shared cache's secret, b"" for none. Raises ArgumentError for a file that has none."""
    place = settings.cache_secret_file
    try:
        secret = Path(place).expanduser().read_bytes().strip() if place else b""
    except OSError as error:
        reason = error.strerror or error
        raise ArgumentError(f"cache_secret_file {place!r} cannot be read: {reason}") from None
    if place and len(secret) < MIN_SECRET_BYTES:
        raise ArgumentError(
            f"cache_secret_file {place!r} has {len(secret)} bytes; give at least {MIN_SECRET_BYTES}"
        )
    return secret


def generic_record(store: KernelStore, text: str, label: str, source: str = "") -> bytes:
    """Return generic code for the spec `text` of an artifact's kernel.

    Raises ArtifactError for a spec that is none, CompileError for one that no generator takes.
    """
    from .jit.spec_reader import from_json

    spec = from_json(text)
    try:
        return store.record(spec, None)
    except Error:
        raise
    except Exception as error:  # a spec from outside may be one that no compiler has written
        raise CompileError(
            f"kernel {label[:100]!r} cannot be compiled from its spec ({type(error).__name__}: "
            f"{str(error)[:200]}); export the artifact again",
            source=source,
        ) from error


def add_generic(machine: Machine, store: KernelStore, kernels: Sequence[int]) -> None:
    """Compile generic code for these kernels, whose artifact has none for this CPU; raises as
    `generic_record`."""
    for index in kernels:
        kernel = machine.kernels[index]
        machine.install(index, generic_record(store, kernel.spec, kernel.label, kernel.source))


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


class Specialiser:
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
        _SPECIALISERS.add(self)

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
_SPECIALISERS: weakref.WeakSet[Specialiser] = weakref.WeakSet()
#: Compiles in the background for all of them.
PROCESS = CompileProcess()
#: Measures this machine's register tiles there.
TILES = TileMeasurement(PROCESS)
#: Held while a kernel is compiled. A fork waits for it: no child inherits LLVM in the middle of its work.
_COMPILING = threading.Lock()


@atexit.register
def _close_all() -> None:
    """End all threads before LLVM's own data goes away with the process."""
    for specialiser in list(_SPECIALISERS):
        specialiser.close()
    PROCESS.close()


def _after_fork_in_child() -> None:
    _COMPILING.release()
    PROCESS.abandon()
    TILES.is_running = False
    for specialiser in list(_SPECIALISERS):
        specialiser.restart()


os.register_at_fork(
    before=_COMPILING.acquire, after_in_parent=_COMPILING.release, after_in_child=_after_fork_in_child
)
