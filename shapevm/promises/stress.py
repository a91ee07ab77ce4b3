"""`shapevm stress`: several threads call a program at streams of shapes and compare every result with the
generic tier's, while code is evicted, compilations fail and memory is monitored.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ..program import opening
from ..settings import settings
from ..vm.errors import Error
from ..vm.load_options import LoadOptions
from ..vm.machine import Machine
from ..vm.program import Symbol
from .samples import sample_inputs

UNBOUNDED = 256  # the greatest size tested if the contract has no bound
SMALL_CODE_BYTES = 1 << 16  # a cap on code at which nearly every installation evicts code

Stream = Callable[[int, int, int, random.Random], Iterator[int]]


# Streams ------------------------------------------------------------------------------------------------


def _uniform(low: int, high: int, step: int, rng: random.Random) -> Iterator[int]:
    while True:
        yield low + step * rng.randrange((high - low) // step + 1)


def _zipf(low: int, high: int, step: int, rng: random.Random) -> Iterator[int]:
    sizes = list(range(low, high + 1, step))
    rng.shuffle(sizes)
    weights = [1 / (rank + 1) for rank in range(len(sizes))]
    while True:
        yield from rng.choices(sizes, weights, k=64)


def _growing(low: int, high: int, step: int, rng: random.Random) -> Iterator[int]:
    """1, 2, 3 ...: like the key-value cache of a decoder."""
    while True:
        yield from range(low, high + 1, step)


def _alternating(low: int, high: int, step: int, rng: random.Random) -> Iterator[int]:
    """Two alternating sizes; the pair changes now and then."""
    while True:
        pair = [low + step * rng.randrange((high - low) // step + 1) for _ in range(2)]
        yield from pair * rng.randrange(1, 20)


def _adversarial(low: int, high: int, step: int, rng: random.Random) -> Iterator[int]:
    """Each size until it becomes hot, then not again until all others were used."""
    while True:
        sizes = list(range(low, high + 1, step))
        rng.shuffle(sizes)
        for size in sizes:
            yield from [size] * (settings.hot_calls + 1)


STREAMS: dict[str, Stream] = {
    "uniform": _uniform, "zipf": _zipf, "growing": _growing, "alternating": _alternating,
    "adversarial": _adversarial,
}  # fmt: skip


def shapes(symbols: Sequence[Symbol], stream: str, seed: int) -> Iterator[dict[str, int]]:
    """Yield values of all symbols forever; each has its own stream."""
    rng = random.Random(f"{stream} {seed}")
    streams = []
    for s in symbols:
        low = s.least_tried
        high = max(low, s.max if s.max is not None else UNBOUNDED)
        streams.append(STREAMS[stream](low, high, s.multiple_of, random.Random(rng.random())))
    if not streams:
        yield from itertools.repeat({})
    for values in zip(*streams, strict=False):
        yield dict(zip([s.name for s in symbols], values, strict=True))


# The run ------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """What a run did, and its failures, of which there should be none. `resident`: samples of resident bytes,
    in order."""

    calls: int = 0
    shapes: int = 0
    compiled: int = 0
    evicted: int = 0
    failed_compilations: int = 0
    problems: list[str] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)

    @property
    def growth(self) -> int:
        """The excess of the second half's least resident memory over the first half's greatest, or 0."""
        middle = len(self.resident) // 2
        early, late = self.resident[1:middle], self.resident[middle:]
        return max(0, min(late) - max(early)) if early and late else 0

    def text(self) -> str:
        """Return the report in a few lines."""
        memory = (
            f"{self.resident[0] >> 20} to {self.resident[-1] >> 20} MiB" if self.resident else "not watched"
        )
        lines = [
            f"{self.calls:,} calls at {self.shapes:,} shapes, {self.compiled:,} kernels compiled, "
            f"{self.evicted:,} evicted, {self.failed_compilations:,} compilations failed",
            f"resident memory {memory}, grown by {self.growth >> 10:,} KiB once warm",
            *self.problems[:10],
        ]
        return "\n".join(lines + ["ok" if not self.problems else f"{len(self.problems)} problems"])


def resident_bytes() -> int:
    """Return the memory of this process that is in RAM."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def failing_compilations(share: float, seed: int = 0) -> Iterator[None]:
    """Make a share of all compilations of exact kernels fail within the block."""
    from ..jit.store import KernelStore

    rng, record = random.Random(seed), KernelStore.record

    def failing(self: KernelStore, spec: Any, dims: Any, *rest: Any) -> bytes:
        if dims is not None and rng.random() < share:
            raise ValueError("a failure of the stress test")
        return record(self, spec, dims, *rest)

    KernelStore.record = failing  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        KernelStore.record = record  # type: ignore[method-assign]


def _with_cap(options: LoadOptions, n_bytes: int) -> LoadOptions:
    return replace(options, caches=replace(options.caches, code_bytes_max=n_bytes))


@contextmanager
def code_cap(n_bytes: int) -> Iterator[None]:
    """Load programs with this cap on exact code within the block."""
    options = opening.machine_options
    opening.machine_options = lambda *a: _with_cap(options(*a), n_bytes)
    try:
        yield
    finally:
        opening.machine_options = options


class Run:
    """Threads that call one program and compare it with a generic one."""

    def __init__(self, path: Path, code_bytes: int) -> None:
        with code_cap(code_bytes):
            self.exe = opening.open_executable(path, "auto")
        self.plain = opening.open_executable(path, "generic")
        self.report = Report()
        self._seen: set[tuple[int, ...]] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def close(self) -> None:
        """Close both programs."""
        self.exe.close()
        self.plain.close()

    def _same(self, sizes: Mapping[str, int], seed: int) -> None:
        machine = self.exe.machine
        inputs = sample_inputs(machine.inputs, machine.symbols, sizes, seed)
        found, expected = _called(machine.call, inputs), _called(self.plain.machine.call, inputs)
        with self._lock:
            self.report.calls += 1
            self._seen.add(tuple(sizes.values()))
            if found != expected:
                self.report.problems.append(f"{dict(sizes)}: the result is not the generic tier's")

    def work(self, stream: str, seed: int, n_calls: int | None = None) -> None:
        """Call along a stream until `stop`, or `n_calls` times."""
        try:
            wanted = shapes(self.exe.machine.symbols, stream, seed)
            for sizes in itertools.islice(wanted, n_calls):
                if self._stop.is_set():
                    return
                self._same(sizes, seed)
        except BaseException as error:
            with self._lock:
                self.report.problems.append(f"{stream}: {type(error).__name__}: {error}")

    def stop(self) -> None:
        """End all threads after their calls."""
        self._stop.set()

    def finish(self) -> Report:
        """Return the report with the counters of the program."""
        counters = self.exe.machine.stats()
        self.report.shapes = len(self._seen)
        self.report.compiled = counters["code_installed"]
        self.report.evicted = counters["code_evicted"]
        self.report.failed_compilations = counters["n_failed"]
        return self.report


def _called(call: Callable[[list[Any]], list[Any]], inputs: list[Any]) -> list[bytes] | str:
    """Return the results' bits, or the error's name and message: both tiers refuse alike."""
    try:
        return [np.asarray(x).tobytes() for x in call(inputs)]
    except Error as error:
        return f"{type(error).__name__}: {error}"


def stress(
    path: Path,
    seconds: float,
    n_threads: int = 2,
    seed: int = 0,
    code_bytes: int = SMALL_CODE_BYTES,
    failures: float = 0.05,
) -> Report:
    """Run all streams in turn for `seconds` on `n_threads` threads; return the report."""
    with settings.scope(compile_budget=0, hot_calls=1, plans=16), failing_compilations(failures, seed):
        run = Run(path, code_bytes)
        try:
            names = itertools.cycle(STREAMS)
            threads = [
                threading.Thread(target=run.work, args=(next(names), seed * 1000 + n), daemon=True)
                for n in range(max(n_threads, len(STREAMS)))
            ]
            for thread in threads:
                thread.start()
            end = time.monotonic() + seconds
            while time.monotonic() < end and any(thread.is_alive() for thread in threads):
                run.report.resident.append(resident_bytes())
                time.sleep(max(seconds / 50, 0.01))
            run.stop()
            for thread in threads:
                thread.join()
            return run.finish()
        finally:
            run.stop()
            run.close()


# Many shapes --------------------------------------------------------------------------------------------

N_PARTS = 20  # of a run over many shapes, each with its own reading
WARM_PARTS = 5  # after which memory and time must be flat
MAX_EXACT_EVERY = 200  # at least one shape in this many gets exact code
STEADY_EVERY = 8  # shapes between two calls of the steady program
PAGE_BYTES = 4096  # that a kernel's code takes at least
MAX_GROWTH = 0.05  # of resident memory
MAX_GROWTH_BYTES = 8 << 20  # the same for small programs: the kernel backs memory by huge pages when it likes


@dataclass
class Flat:
    """A run over many distinct shapes: resident bytes after each part, and its median seconds per call.

    `steady`: the same for a separate program that is always called at one shape, which measures the machine's
    speed; `warm_bytes`: code that was mapped once warm; `wrong`: results of exact code with other bits than
    generic code's.
    """

    shapes: int
    compiled: int
    evicted: int
    wrong: int
    warm_bytes: int
    resident: list[int]
    seconds: list[float]
    steady: list[float]

    @property
    def growth(self) -> float:
        """The share by which memory has grown since the warm-up."""
        return self.resident[-1] / max(self.resident[:WARM_PARTS]) - 1

    @property
    def call_seconds(self) -> tuple[float, float]:
        """A call's median seconds after the warm-up, and at the end."""
        return _early_and_late(self.seconds)

    @property
    def slowdown(self) -> float:
        """The ratio of a call's seconds at the end to those after the warm-up, relative to the steady
        program."""
        (early, late), (steady_early, steady_late) = self.call_seconds, _early_and_late(self.steady)
        return late / steady_late / (early / steady_early)

    @property
    def has_failed(self) -> bool:
        """Whether a result was wrong, or memory has grown by more than both limits."""
        before = max(self.resident[:WARM_PARTS])
        return self.wrong > 0 or self.resident[-1] - before > max(MAX_GROWTH * before, MAX_GROWTH_BYTES)

    def text(self) -> str:
        """Return the report in two lines."""
        early, late = self.call_seconds
        times = "all calls got exact code" if math.isnan(early + late) else (
            f"a call {early * 1e6:.0f} us, then {late * 1e6:.0f} us "
            f"({self.slowdown:.2f} times, the machine's own speed apart)"
        )  # fmt: skip
        return (
            f"{self.shapes:,} shapes, {self.compiled:,} kernels compiled, {self.evicted:,} evicted, "
            f"{self.wrong:,} wrong results, {self.warm_bytes >> 10:,} KiB of code once warm\n"
            f"resident memory {self.resident[WARM_PARTS - 1] >> 20} MiB once warm, "
            f"{self.resident[-1] >> 20} MiB at the end ({self.growth:+.1%}); {times}"
        )


def _early_and_late(parts: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the first half of the parts after the warm-up, and of the second."""
    n = (N_PARTS - WARM_PARTS) // 2
    return median(parts[WARM_PARTS : WARM_PARTS + n]), median(parts[-n:])


def _seconds(call: Callable[[list[Any]], object], inputs: list[Any]) -> float:
    start = time.perf_counter()
    call(inputs)
    return time.perf_counter() - start


def distinct(symbols: Sequence[Symbol], n_shapes: int) -> Iterator[dict[str, int]]:
    """Yield values of all symbols, at most `n_shapes` tuples, none twice, in a scattered order that needs no
    memory: the step of the walk is coprime to their number."""
    side = math.ceil(n_shapes ** (1 / max(len(symbols), 1)))
    while symbols and side ** len(symbols) < n_shapes:
        side += 1
    rows = []
    for s in symbols:
        low = s.least_tried
        high = low + (side - 1) * s.multiple_of
        rows.append(range(low, (high if s.max is None else min(high, s.max)) + 1, s.multiple_of))
    total = math.prod(map(len, rows))
    step = next(x for x in range(int(total * 0.618) + 1, 2 * total + 2) if math.gcd(x, total) == 1)
    for i in range(min(n_shapes, total)):
        place, values = i * step % total, {}
        for s, row in zip(symbols, rows, strict=True):
            place, at = divmod(place, len(row))
            values[s.name] = row[at]
        yield values


def exact_every(n_shapes: int, n_kernels: int, code_bytes: int) -> int:
    """Return k such that exact code for every k-th shape reaches the cap on code during the warm-up."""
    pages = n_shapes * WARM_PARTS / N_PARTS * n_kernels * 0.8
    return min(max(int(pages * PAGE_BYTES / code_bytes), 1), MAX_EXACT_EVERY)


def _load_compiler(machine: Machine) -> None:
    """Compile a kernel without a cache: else a cache that has the first shapes' code, but not that of later
    ones, would let the compiler's own memory count as growth."""
    from ..jit.spec_reader import from_json
    from ..jit.store import KernelStore

    for kernel in machine.kernels[:1]:
        KernelStore().record(from_json(kernel.spec), None)


def many_shapes(path: Path, n_shapes: int, code_bytes: int) -> Flat:
    """Call a program once at each of many shapes, and record memory and time. Just enough of them get exact
    code that code is evicted all the time after the warm-up."""
    with (
        settings.scope(compile_budget=0, hot_calls=n_shapes + 1),
        code_cap(code_bytes),
        opening.open_executable(path, "auto") as exe,
        opening.open_executable(path, "generic") as steady,
    ):
        machine = exe.machine
        _load_compiler(machine)
        first = next(distinct(machine.symbols, 1))
        same = sample_inputs(machine.inputs, machine.symbols, first, None)
        every = exact_every(n_shapes, len(machine.kernels), code_bytes)
        per_part = max(n_shapes // N_PARTS, 1)
        flat, times, steady_times = Flat(0, 0, 0, 0, 0, [], [], []), [], []
        for flat.shapes, sizes in enumerate(distinct(machine.symbols, n_shapes), start=1):
            inputs = sample_inputs(machine.inputs, machine.symbols, sizes, None)
            if flat.shapes % every == 0:
                found = _called(partial(machine.call_as, "jit"), inputs)
                flat.wrong += found != _called(partial(machine.call_as, "generic"), inputs)
            else:
                times.append(_seconds(machine.call, inputs))
            if flat.shapes % min(STEADY_EVERY, per_part) == 0:
                steady_times.append(_seconds(steady.machine.call, same))
            if flat.shapes % per_part == 0:
                flat.resident.append(resident_bytes())
                flat.seconds.append(median(times or [math.nan]))
                flat.steady.append(median(steady_times))
                times, steady_times = [], []
            if flat.shapes == per_part * WARM_PARTS:
                flat.warm_bytes = machine.stats()["code_bytes"]
        counters = machine.stats()
        flat.compiled, flat.evicted = counters["code_installed"], counters["code_evicted"]
        return flat
