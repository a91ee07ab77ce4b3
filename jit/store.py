"""Compiled kernels by (spec, sizes, target): from the disk cache, else from the compiler, which then fills
the cache.

The compiler is imported by what compiles here. A program whose kernels come from the cache, or from a process
that compiles, looks them up by the specs' texts and never needs it.
"""

from __future__ import annotations

import hashlib
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from ..vm.errors import ArtifactError
from ..vm.fork_lock import ForkLock
from ..vm.heap import trim
from ..vm.objects import parse_object, serialise_object
from ..vm.program import KernelKey, KernelObject, format_key
from .families.matmul.tile_choice import TileChoice, target_of_products
from .llvm.target import bases, host_target, runs_here
from .object.cache import cache_key, generator_version
from .object.shared_cache import Cache, local_folder
from .spec import KernelSpec, SpecText, spec_hash, to_json
from .tuning import TuningDatabase, cpu_name, machine_name

if TYPE_CHECKING:
    from .compile_job import Answer, Job

MAX_SECONDS = 4096  # compilations whose seconds are kept
TILES, STREAMS = "register tiles", "streams"  # what was measured of them is remembered under these names
TRIM_EVERY = 1024  # compilations: `free` alone never returns the holes of LLVM's many small blocks


@dataclass
class StoreStats:
    """The statistics of a store: kernels compiled and found on disk, the seconds of all compilations, and of
    each of the latest."""

    compiled: int = 0
    from_cache: int = 0
    total_seconds: float = 0.0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_SECONDS))


class KernelStore:
    """Makes code objects for one target, with tuned schedules if there are some, and else, if it
    `is_measured`, with register tiles that were measured fastest on this machine before this store was made.
    Safe to use from several threads."""

    def __init__(
        self, cache: Cache | None = None, target: str | None = None, tuning: TuningDatabase | None = None,
        is_measured: bool = False,
    ) -> None:  # fmt: skip
        self.cache = cache
        self.tuning = tuning
        self.target = target or host_target()
        self.stats = StoreStats()
        self.is_measured = is_measured
        self.tile_choice = self._remembered(TILES) if is_measured else None  # None: nothing was measured
        self.streams = self._remembered(STREAMS) if is_measured else None  # the same
        self._measured: TileChoice | None = None  # streams, since
        self._folder = local_folder(cache)  # for the parts of kernels
        self._ahead: dict[str, bytes] = {}  # compiled speculatively, by key in the cache
        self._lock = ForkLock()

    def record(
        self, spec: KernelSpec, dims: KernelKey, target: str | None = None, schedule: str | None = None
    ) -> bytes:
        """Return the serialised code object for the sizes or ranges `dims` (None: generic).

        `target`: None for the store's. `schedule`: None for the tuned one, without one the generator's
        choice. Raises what `compile_kernel` raises.
        """
        target = _target_for(spec, target or self.target)
        schedule = schedule or self._tuned(spec, dims, target)
        record = self._ahead.pop(cache_key(spec_hash(spec), dims, target, schedule), None)
        return record or self.cached(spec, dims, target, schedule) or self._made(spec, dims, target, schedule)

    def _made(self, spec: KernelSpec, dims: KernelKey, target: str, schedule: str | None) -> bytes:
        """Compile, unless another process that has the cache, too, is doing so: then wait for its record."""
        from .compiler import compile_kernel

        key = cache_key(spec_hash(spec), dims, target, schedule)
        with self.cache.claimed(key) if self.cache is not None else nullcontext():
            record = self.cached(spec, dims, target, schedule)
            if record is None:
                start = perf_counter()
                record = serialise_object(
                    compile_kernel(spec, dims, target, schedule=schedule, cache=self._folder)
                )
                self._keep(spec, dims, target, schedule, record, perf_counter() - start)
        return record

    def _keep(
        self, spec: KernelSpec | SpecText, dims: KernelKey, target: str | None, schedule: str | None,
        record: bytes, seconds: float,
    ) -> None:  # fmt: skip
        """Count a compilation and put its record into the cache."""
        target = _target_for(spec, target or self.target)
        with self._lock:
            self.stats.compiled += 1
            self.stats.seconds.append(seconds)
            self.stats.total_seconds += seconds
            is_due = self.stats.compiled % TRIM_EVERY == 0
        if is_due:
            trim()
        if self.cache is not None:
            schedule = schedule or self._tuned(spec, dims, target)
            self.cache.put(cache_key(spec_hash(spec), dims, target, schedule), record)

    def cached(
        self,
        spec: KernelSpec | SpecText,
        dims: KernelKey,
        target: str | None = None,
        schedule: str | None = None,
    ) -> bytes | None:
        """Return what `record` would, where nothing has to be compiled for it."""
        target = _target_for(spec, target or self.target)
        schedule = schedule or self._tuned(spec, dims, target)
        key = cache_key(spec_hash(spec), dims, target, schedule)
        return self._cached(key, (spec_hash(spec), target, dims))

    def keep_ahead(self, spec: KernelSpec, dims: KernelKey, target: str, record: bytes) -> None:
        """Keep a record until `record` requests it."""
        self._ahead[cache_key(spec_hash(spec), dims, target, self._tuned(spec, dims, target))] = record

    def foresee(self, spec: KernelSpec, record: bytes) -> None:
        """Compile generic code speculatively into the cache."""
        if self.cache is not None:
            target = _target_for(spec, self.target)
            self.cache.put(cache_key(spec_hash(spec), None, target, self._tuned(spec, None, target)), record)

    def job(
        self, spec: KernelSpec | SpecText, dims: KernelKey, generic: bytes, target: str | None = None
    ) -> Job:
        """Return the job of compiling code elsewhere, measured against `generic` code if that is not empty;
        `adopt` takes the answer. `target`: None for the store's."""
        from .compile_job import Job

        target = _target_for(spec, target or self.target)
        return Job(to_json(spec), dims, target, self._tuned(spec, dims, target), generic, self.folder)

    @property
    def folder(self) -> str:
        """The folder of the cache on this machine's disk, "" without one."""
        return str(self._folder) if self._folder is not None else ""

    def adopt(
        self, spec: KernelSpec | SpecText, dims: KernelKey, answer: Answer, target: str | None = None
    ) -> None:
        """Keep a job's result, as if it had been compiled here."""
        self._keep(spec, dims, target, None, answer.record, answer.seconds)

    def remembered(self, name: str, target: str | None = None) -> bytes | None:
        """Return what `remember` was given last under that name, for `target` (None: the store's), this CPU
        and code generator."""
        return self.cache.get(_memory_key(name, target or self.target)) if self.cache is not None else None

    def remember(self, name: str, data: bytes, target: str | None = None) -> None:
        """Keep a few bytes beside the kernels, if there is a cache."""
        if self.cache is not None:
            self.cache.put(_memory_key(name, target or self.target), data)

    @property
    def cache_failures(self) -> int:
        """Reads and writes of the cache that failed."""
        return self.cache.n_failures if self.cache is not None else 0

    def _tuned(self, spec: KernelSpec | SpecText, dims: KernelKey, target: str) -> str | None:
        """Return the schedule to compile with, None for the generator's own choice."""
        tuned = self.tuning.get(spec, dims, target) if self.tuning is not None else None
        if tuned is not None:
            return tuned
        choice = self._choice(spec, dims)
        return None if choice is None or not choice.tiles else self._preferred(spec, dims, target, choice)

    def _preferred(
        self, spec: KernelSpec | SpecText, dims: KernelKey, target: str, choice: TileChoice
    ) -> str | None:
        """Return the schedule for a machine of which `choice` was measured. Of a text it is remembered: a
        process that compiles nothing then needs no generators, which take 7 MB."""
        name = ""
        if isinstance(spec, SpecText):
            name = "\n".join(["schedule", spec_hash(spec), format_key(dims), *choice.items()])
            if (known := self.remembered(name, target)) is not None:
                return known.decode() or None
        from .tuning import preferred_schedule

        found = preferred_schedule(spec, dims, target, choice)
        if name:
            self.remember(name, (found or "").encode(), target)
        return found

    def _choice(self, spec: KernelSpec | SpecText, dims: KernelKey) -> TileChoice | None:
        """Return the choice measured on this machine. If reading weights from memory was not measured yet,
        the first kernel of few rows that does so triggers the measurement (0.1 s); earlier ones are
        unaffected."""
        if self.streams is not None or isinstance(spec, SpecText) or not self._can_measure:
            return self.streams.beside(self.tile_choice) if self.streams is not None else self.tile_choice
        from .families.matmul.family import reads_streams

        return self._own_streams().beside(self.tile_choice) if reads_streams(spec, dims) else self.tile_choice

    def _own_streams(self) -> TileChoice:
        from .compile_job import TilesJob, answer

        with self._lock:
            if self._measured is None:
                record = answer(TilesJob(self.target, are_streams=True)).record
                self._measured = TileChoice.parse(record) or TileChoice()
                self._remember(STREAMS, record)
            return self._measured

    def measure_streams(self) -> TileChoice | None:
        """Return the choice for reading weights from memory on this machine; measure it if that was not done
        and the result can be kept."""
        return self._own_streams() if self.streams is None and self._can_measure else self.streams

    @property
    def _can_measure(self) -> bool:
        return self.is_measured and self.cache is not None and runs_here(self.target)

    def _remembered(self, name: str) -> TileChoice | None:
        record = self.remembered(f"{name} {machine_name()}", target_of_products(self.target))
        return TileChoice.parse(record) if record is not None else None

    def _remember(self, name: str, record: bytes) -> None:
        self.remember(f"{name} {machine_name()}", record, target_of_products(self.target))

    @property
    def wants_tiles(self) -> bool:
        """Whether this machine's register tiles were not measured yet, and the result can be kept."""
        return self.is_measured and self.cache is not None and self.remembered_tiles() is None

    def remembered_tiles(self) -> TileChoice | None:
        """Return the measurements of this machine's register tiles so far, by any process."""
        return self._remembered(TILES)

    def remember_tiles(self, record: bytes) -> None:
        """Keep what was measured of this machine's register tiles for stores that are made from now on."""
        self._remember(TILES, record)

    def object(self, spec: KernelSpec, dims: KernelKey) -> KernelObject:
        """Return the code object itself."""
        return parse_object(self.record(spec, dims))

    def generic(self, spec: KernelSpec, is_portable: bool = True) -> list[KernelObject]:
        """Return the generic code for the store's target and, where that is a variant and the code is to be
        portable, for its bases as well.

        So an artifact from a machine with AMX runs on those without.
        """
        targets = self.targets(spec, is_portable)
        return [parse_object(self.record(spec, None, target)) for target in targets]

    def targets(self, spec: KernelSpec, is_portable: bool = True) -> list[str]:
        """Return the targets that generic code is for, the store's own first."""
        names = bases(self.target) if is_portable else [self.target]
        return list(dict.fromkeys(_target_for(spec, name) for name in names))

    def _cached(self, key: str, wanted: tuple[str, str, KernelKey]) -> bytes | None:
        """Return the valid entry of `key`, if its spec, target and sizes match."""
        record = self.cache.get(key) if self.cache is not None else None
        if record is None:
            return None
        try:
            found = parse_object(record)
        except ArtifactError:  # written by another version of the format
            return None
        if (found.spec_hash, found.target, found.key) != wanted:  # a file that was given another's name
            return None
        with self._lock:
            self.stats.from_cache += 1
        return record


def _target_for(spec: KernelSpec | SpecText, target: str) -> str:
    """Return the target that `spec` is compiled for when `target` is requested. For a text it is `target`:
    callers that only have a text use the target of the kernel's generic code."""
    if isinstance(spec, SpecText):
        return target
    from .compiler import target_for

    return target_for(spec, target)


def _memory_key(name: str, target: str) -> str:
    text = "\n".join(["memory", name, target, cpu_name(), generator_version()])
    return hashlib.sha256(text.encode()).hexdigest()
