"""Opening the store of compiled kernels, with the caches from the settings, and generic code from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING

from ..compiler.packages import MissingPackage
from ..settings import settings
from ..vm.errors import ArgumentError, CompileError, Error, TargetError
from ..vm.fork_lock import ForkLock

if TYPE_CHECKING:
    from ..jit.object.shared_cache import Cache
    from ..jit.store import KernelStore
    from ..vm.machine import Machine

MIN_SECRET_BYTES = 16  # of a file of cache_secret_file


def open_store(target: str | None = None, is_host: bool = False) -> KernelStore:
    """Return a store of compiled kernels with the cache from the settings.

    `target`: None for the setting's, and without one this machine's; `is_host`: the code must run on this
    machine. Raises ArgumentError for an unknown target, TargetError on a CPU that no target supports.
    """
    from ..jit.llvm.target import TARGETS, runs_here
    from ..jit.store import KernelStore
    from ..jit.tuning import FILE, TuningDatabase

    wanted = target or settings.target or None
    if wanted is not None and (not isinstance(wanted, str) or wanted not in TARGETS):
        raise ArgumentError(f"target {wanted!r} is unknown; known are {', '.join(TARGETS)}")
    if is_host and wanted is not None and not runs_here(wanted):
        wanted = None
    path = settings.cache_path()
    cache = _cache(path)
    tuning = TuningDatabase(path / FILE) if path is not None else None
    try:
        return KernelStore(cache, wanted, tuning, is_measured=settings.measured_tiles)
    except RuntimeError as error:
        raise TargetError(str(error)) from None


class StoreOnDemand:
    """A store of compiled kernels that is opened on first use: importing the compiler takes longer than
    loading most programs, and 50 MB. The settings are those of the thread that makes this object. Safe to use
    from several threads."""

    def __init__(self, open: Callable[[], KernelStore]) -> None:
        self._open, self._settings = open, copy_context()
        self._lock = ForkLock()
        self.opened: KernelStore | None = None  # None: not used yet

    def get(self) -> KernelStore:
        """Return the store. Raises the errors of opening it."""
        with self._lock:
            if self.opened is None:
                self.opened = self._settings.run(self._open)
            return self.opened


def _cache(path: Path | None) -> Cache | None:
    """Return the cache at `path`, if any, in front of the shared one, if any."""
    from ..jit.object.cache import DiskCache
    from ..jit.object.shared_cache import LayeredCache, shared_cache

    local = DiskCache(path, settings.cache_mib << 20) if path is not None else None
    url = settings.shared_cache()
    if not url:
        return local
    try:
        shared = shared_cache(url, _fleet_secret())
    except ImportError as error:
        raise MissingPackage(
            f"cache_url {settings.cache_url!r} needs fsspec and its package for that protocol ({error}): "
            "install shapevm[fleet]"
        ) from None
    except ValueError as error:
        raise ArgumentError(f"cache_url {settings.cache_url!r} cannot be opened: {error}") from None
    return LayeredCache(local, shared) if local is not None else shared


def _fleet_secret() -> bytes:
    """Return the shared cache's secret, b"" for none. Raises ArgumentError for a file without one."""
    place = settings.cache_secret_file
    try:
        secret = Path(place).expanduser().read_bytes().strip() if place else b""
    except (OSError, RuntimeError, ValueError) as error:  # also: no home directory; a zero byte
        reason = getattr(error, "strerror", None) or error
        raise ArgumentError(f"cache_secret_file {place!r} cannot be read: {reason}") from None
    if place and len(secret) < MIN_SECRET_BYTES:
        raise ArgumentError(
            f"cache_secret_file {place!r} has {len(secret)} bytes; give at least {MIN_SECRET_BYTES}"
        )
    return secret


def generic_record(store: KernelStore, text: str, label: str, source: str = "") -> bytes:
    """Return generic code for the spec `text` of an artifact's kernel.

    Raises ArtifactError for an invalid spec, CompileError for one that no generator accepts.
    """
    from ..jit.spec_reader import from_json

    spec = from_json(text)
    try:
        return store.record(spec, None)
    except Error:
        raise
    except Exception as error:  # an untrusted spec may be one that no compiler writes
        raise CompileError(
            f"kernel {label[:100]!r} cannot be compiled from its spec ({type(error).__name__}: "
            f"{str(error)[:200]}); export the artifact again",
            source=source,
        ) from error


def add_generic(machine: Machine, store: KernelStore, kernels: Sequence[int]) -> None:
    """Compile generic code for these kernels, whose artifact has none for this CPU; raises the errors of
    `generic_record`."""
    for index in kernels:
        kernel = machine.kernels[index]
        machine.install(index, generic_record(store, kernel.spec, kernel.label, kernel.source))
