"""Background specialisation: a thread of its own answers a program's requests for exact kernels."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .gain import Gains, Waiting
from .settings import settings
from .vm.errors import ArgumentError, CompileError, Error, TargetError

if TYPE_CHECKING:
    from .jit.shared_cache import Cache
    from .jit.store import KernelStore
    from .vm.machine import Machine, Request

MAX_SECONDS = 4096  # answers whose seconds are kept
MAX_WAITING = 256  # requests that do not pay yet
MIN_SECRET_BYTES = 16  # of a file of cache_secret_file
LOOK_SECONDS = 0.1  # between two looks at how often they have run
WAIT_SECONDS = 60.0  # how long one wait for a request may take; any number does

_LOG = logging.getLogger("shapevm")
_FOR_KERNELS = {"llvmlite": "llvmlite", "elftools": "pyelftools"}  # module: package
_FOR_MODELS = {**_FOR_KERNELS, "torch": "torch", "sympy": "sympy"}


class MissingPackage(Error, RuntimeError):
    """Compiling needs a package that is not installed."""


def has_compiler() -> bool:
    """Return True where kernels can be compiled here: llvmlite and pyelftools are installed."""
    return not _missing(_FOR_KERNELS)


def check_kernel_compiler() -> None:
    """Raise MissingPackage where kernels cannot be compiled here."""
    missing = _missing(_FOR_KERNELS)
    if missing:
        raise MissingPackage(f"compiling kernels needs {', '.join(missing)}: install shapevm[compile]")


def check_compiler() -> None:
    """Raise MissingPackage where models cannot be compiled here."""
    missing = _missing(_FOR_MODELS)
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
    from .jit.store import KernelStore
    from .jit.target import TARGETS, runs_here
    from .jit.tuning import FILE, TuningDatabase

    wanted = target or settings.target or None
    if wanted is not None and wanted not in TARGETS:
        raise ArgumentError(f"target {wanted!r} is unknown; known are {', '.join(TARGETS)}")
    if is_host and wanted is not None and not runs_here(wanted):
        wanted = None
    path = settings.cache_path()
    cache = _cache(path) if path is not None else None
    tuning = TuningDatabase(path / FILE) if path is not None else None
    try:
        return KernelStore(cache, wanted, tuning)
    except RuntimeError as error:
        raise TargetError(str(error)) from None


def _cache(path: Path) -> Cache:
    """Return the cache at `path`, before the shared one if there is a setting for that."""
    from .jit.cache import DiskCache
    from .jit.shared_cache import LayeredCache, shared_cache

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
    from .jit.spec import from_json

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

    def spend(self, seconds: float) -> float:
        """Take what work has cost; return the seconds to rest before more."""
        if self.per_second is None:
            return 0.0
        now = time.monotonic()
        self.saved = min(self.burst, self.saved + (now - self.since) * self.per_second) - seconds
        self.since = now
        return max(0.0, -self.saved / self.per_second)


class Specialiser:
    """Compiles what `machine` asks for on a thread of its own until it is stopped.

    `per_second`: see Budget. With a budget, code is compiled where its expected gain pays for it (see
    `gain`), what is worth most first; without, and for calls that wait, at once. `hurry` lifts the limit
    while somebody waits for the queue to empty.
    """

    def __init__(self, machine: Machine, store: KernelStore, per_second: float | None = None) -> None:
        self.machine = machine
        self.store = store
        self.hurry = threading.Event()
        self.gains = Gains(store, [kernel.spec for kernel in machine.kernels])
        self.waiting = Waiting(self.gains, MAX_WAITING)
        self._budget = Budget(per_second)
        #: Seconds that the answers to the latest requests took, by (kernel, dims).
        self.seconds: dict[tuple[int, tuple[int, ...]], float] = {}
        self._failed: set[int] = set()  # kernels of which the log has said so
        self._looked = 0.0  # when, at how often what waits has run
        self._is_stopped = False
        machine.attach_compiler(True)
        self._start()
        _SPECIALISERS.add(self)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._serve, name="shapevm-compiler", daemon=True)
        self._thread.start()

    @property
    def _is_unlimited(self) -> bool:
        return self._budget.per_second is None or self.hurry.is_set()

    def _serve(self) -> None:
        """Answer requests until no compiler is attached any more."""
        while True:
            try:
                request = self.machine.wait_request(timeout=0 if self.waiting.runs else WAIT_SECONDS)
            except ArgumentError:
                for kernel, dims in self.waiting.runs:
                    self.machine.decline(kernel, dims, is_for_now=True)
                return
            start = time.monotonic()
            with _COMPILING:
                if request is not None:
                    self._guarded(self._consider, request.kernel, request.dims, request)
                has_more = request is not None or self._look()
            if not has_more:
                self.hurry.wait(LOOK_SECONDS)
            self.hurry.wait(self._budget.spend(time.monotonic() - start))

    def _guarded(self, answer: Callable[..., None], kernel: int, dims: tuple[int, ...], *rest: Any) -> None:
        try:
            answer(kernel, dims, *rest)
        except Exception as error:  # whatever it is, waiting callers must hear of it
            self.waiting.runs.pop((kernel, dims), None)
            self.machine.compile_failed(kernel, dims, f"{type(error).__name__}: {error}")
            self._log_failure(kernel, dims, error)

    def _log_failure(self, kernel: int, dims: tuple[int, ...], error: Exception) -> None:
        """Log the first failure of each kernel."""
        if kernel not in self._failed:
            self._failed.add(kernel)
            label = self.machine.kernels[kernel].label
            text = "kernel %d (%s) could not be compiled for sizes %s, its generic code goes on: %s: %s"
            _LOG.warning(text, kernel, label, list(dims), type(error).__name__, error)

    def _consider(self, kernel: int, dims: tuple[int, ...], request: Request) -> None:
        """Answer a request, or let it wait until it pays."""
        if self._is_unlimited or request.is_awaited:
            self._compile(kernel, dims)
        elif (record := self.store.cached(self.gains.spec(kernel), dims)) is not None:
            self.machine.install(kernel, record)
        elif self.gains.is_none(kernel):
            self.machine.decline(kernel, dims)
        else:
            self.gains.prepare(kernel)
            gone = self.waiting.put((kernel, dims), request.hits)
            if gone is not None:
                self.machine.decline(*gone, is_for_now=True)

    def _look(self) -> bool:
        """Compile what waits and is worth most, if it pays or there is no limit; return whether it was."""
        waiting, now = self.waiting, time.monotonic()
        if now >= self._looked + LOOK_SECONDS:
            self._looked = now
            for key in waiting.runs:
                waiting.runs[key] = self.machine.entry_hits(*key)
        if not waiting.runs:
            return False
        key = waiting.best()
        if not self._is_unlimited and waiting.worth(key) < 1:
            return False
        del waiting.runs[key]
        if self.gains.is_none(key[0]) and not self._is_unlimited:
            self.machine.decline(*key)
        else:
            self._guarded(self._compile, *key)
        return True

    def _compile(self, kernel: int, dims: tuple[int, ...]) -> None:
        start, n_compiled, was_unlimited = time.monotonic(), self.store.stats.compiled, self._is_unlimited
        record = self.store.record(self.gains.spec(kernel), dims)
        seconds = time.monotonic() - start
        self._note(kernel, dims, seconds)
        self.machine.install(kernel, record)
        if not was_unlimited and self.store.stats.compiled > n_compiled:
            self.gains.learn(kernel, dims, record, seconds)

    def _note(self, kernel: int, dims: tuple[int, ...], seconds: float) -> None:
        if len(self.seconds) >= MAX_SECONDS:
            del self.seconds[next(iter(self.seconds))]
        self.seconds[kernel, dims] = seconds

    def stop(self) -> None:
        """Tell the thread to end after what it is compiling now; requests that wait are dropped. Does not
        wait: the garbage collector may call this anywhere."""
        if not self._is_stopped:
            self._is_stopped = True
            self.hurry.set()
            self.machine.attach_compiler(False)

    def close(self) -> None:
        """Stop, and wait until the thread has ended."""
        self.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def restart(self) -> None:
        """Serve again in a forked child, where the thread does not exist."""
        if not self._is_stopped:
            self.hurry = threading.Event()  # the old one's lock may be held by the thread that is gone
            self.waiting.runs.clear()  # the runtime asks for them again
            self._start()


#: All that exist.
_SPECIALISERS: weakref.WeakSet[Specialiser] = weakref.WeakSet()
#: Held while a kernel is compiled. A fork waits for it: no child inherits LLVM in the middle of its work.
_COMPILING = threading.Lock()


@atexit.register
def _close_all() -> None:
    """End all threads before LLVM's own data goes away with the process."""
    for specialiser in list(_SPECIALISERS):
        specialiser.close()


def _after_fork_in_child() -> None:
    _COMPILING.release()
    for specialiser in list(_SPECIALISERS):
        specialiser.restart()


os.register_at_fork(
    before=_COMPILING.acquire, after_in_parent=_COMPILING.release, after_in_child=_after_fork_in_child
)
