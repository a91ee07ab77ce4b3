"""Whether exact code pays for its compilation, from run times measured on made-up data, outside of calls.

Measurements of a kernel are stored beside the disk cache, for this CPU and this code generator, as is the
speed-up of exact code for its family, so few measurements suffice for all kernels.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..vm.errors import ArtifactError
from ..vm.machine import Price
from ..vm.objects import parse_object
from ..vm.schema import Fixed, ListOf, MapOf, Number, Object, decode
from ..vm.work import LAUNCH_NS, UNIT_NS

if TYPE_CHECKING:
    from ..calls.profiles import Sizes
    from ..jit.compile_job import Answer
    from ..jit.spec import SpecText
    from ..jit.store import KernelStore
    from ..vm.machine import Machine

COMPILE_NS = 10e6  # of a kernel, before one of its family was compiled
ASK_NS = 0.3e6  # cost of a request: looking the code up, and installing it if it is on disk
TYPICAL = 1.05  # ratio of generic to exact time of a kernel, before one of its family was measured
MARGIN = 1.02  # generic code counts as equally fast if it takes at most this times exact code's time,
MAX_NOISE = 1.04  # unless one measurement exceeds this
MIN_SIZES = 2  # at this many sizes together,
MIN_KERNELS = 4  # or for this many kernels of a family
MAX_POINTS = 8  # sizes at which each kernel is measured
MAX_KERNELS = 64  # latest kernels of a family whose ratios are stored
START_SECONDS = 0.3  # that starting a compile process takes
START_SHARE = 0.1  # of the program's running time, that starting it may take
NEAR = 2  # a result for some work is assumed to hold down to this fraction of it


class Point(NamedTuple):
    """A measurement of a kernel at some sizes: work of a launch, nanoseconds by tier."""

    work: int
    exact_ns: float
    generic_ns: float


def ratio_of(points: Iterable[Point]) -> float:
    """Return the ratio of generic to exact time over all points."""
    found = list(points)
    return sum(p.generic_ns for p in found) / max(sum(p.exact_ns for p in found), 1.0)


class KernelGain:
    """The measurements of one kernel: points, by work."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self.points = sorted(points)

    @property
    def ratio(self) -> float | None:
        """The ratio of generic to exact time, None before any measurement."""
        return ratio_of(self.points) if self.points else None

    @property
    def unit_ns(self) -> float:
        """The nanoseconds per flop or byte."""
        work = sum(p.work for p in self.points)
        spent = sum(p.exact_ns - LAUNCH_NS for p in self.points)
        return max(spent / work, 1e-6) if work else UNIT_NS

    @property
    def declined_from(self) -> int:
        """The least work from which generic code was equally fast: at MIN_SIZES sizes together, and nearly so
        at each of them; 0: none."""
        found = 0
        for i, p in reversed(list(enumerate(self.points))):
            if ratio_of([p]) > MAX_NOISE:
                break
            if len(self.points) - i >= MIN_SIZES and ratio_of(self.points[i:]) <= MARGIN:
                found = max(p.work // NEAR, 1)
        return found

    def ratio_near(self, work: int) -> float | None:
        """Return the ratio of generic to exact time at the measured point of the most similar work."""
        if not self.points:
            return None
        nearest = min(self.points, key=lambda p: abs(math.log((p.work + 1) / (work + 1))))
        return ratio_of([nearest])

    def add(self, point: Point) -> None:
        """Add measurements."""
        self.points = sorted([*self.points, point])


class FamilyGain:
    """The measurements of a family: the ratio of generic to exact time of each measured kernel, by spec hash,
    and the time to compile one."""

    def __init__(self, ratios: dict[str, float] | None = None, compile_ns: float = COMPILE_NS) -> None:
        self.ratios, self.compile_ns = ratios or {}, compile_ns

    @property
    def ratio(self) -> float:
        """The geometric mean of the ratios, with TYPICAL as one of them."""
        logs = [math.log(TYPICAL), *(math.log(max(r, 1e-3)) for r in self.ratios.values())]
        return math.exp(sum(logs) / len(logs))

    @property
    def is_none(self) -> bool:
        """Whether generic code is assumed equally fast for unmeasured kernels."""
        return len(self.ratios) >= MIN_KERNELS and self.ratio <= MARGIN

    def add(self, name: str, ratio: float | None, compile_ns: float) -> None:
        """Add a kernel's compilation time and its current ratio."""
        self.compile_ns += (compile_ns - self.compile_ns) / 4
        if ratio is not None:
            self.ratios.pop(name, None)
            self.ratios[name] = ratio
            if len(self.ratios) > MAX_KERNELS:
                del self.ratios[next(iter(self.ratios))]


def price_of(ratio: float, unit_ns: float, declined_from: int) -> Price:
    """Return when entries of a kernel should request exact code with this speed-up."""
    gained = max(ratio, MARGIN) - 1
    return Price(int(ASK_NS / (gained * unit_ns)), int(LAUNCH_NS / unit_ns), declined_from)


def unknown_price() -> Price:
    """Return the price of a kernel before its data is looked up."""
    return price_of(TYPICAL, UNIT_NS, 0)


class Gains:
    """Expected gains of a program's kernels. Changed by one thread; others may read `known`."""

    def __init__(self, store: KernelStore, machine: Machine) -> None:
        self.store = store
        self.known: dict[int, KernelGain] = {}
        self._machine = machine
        self._specs: list[SpecText] = []
        self._names: dict[int, tuple[str, str]] = {}
        self._families: dict[str, FamilyGain] = {}
        self._work: dict[int, Callable[[Sequence[int]], int]] = {}
        self._targets: dict[int, str | None] = {}

    def spec(self, kernel: int) -> SpecText:
        """Return a kernel's spec, unread."""
        from ..jit.spec import SpecText

        if not self._specs:
            self._specs = [SpecText(kernel.spec) for kernel in self._machine.kernels]
        return self._specs[kernel]

    def target(self, kernel: int) -> str | None:
        """Return the target of a kernel's generic code, which is that of all its code; None if it has
        none."""
        if kernel not in self._targets:
            generic = self._machine.generic_code(kernel)
            self._targets[kernel] = parse_object(generic).target if generic else None
        return self._targets[kernel]

    def price(self, kernel: int) -> Price:
        """Return when the kernel's entries should request exact code."""
        own, family = self._gain(kernel), self._family(kernel)
        declined_from = own.declined_from or int(not own.points and family.is_none)
        asking = [p for p in own.points if not declined_from or p.work < declined_from]
        ratio = ratio_of(asking or own.points[:1]) if own.points else family.ratio
        return price_of(ratio, own.unit_ns, declined_from)

    def is_declined(self, kernel: int, dims: Sizes) -> bool:
        """Return whether generic code is equally fast at these sizes."""
        start = self.price(kernel).declined_from
        return bool(start) and self.work(kernel, dims) >= start

    def pays_after(self, kernel: int, dims: Sizes) -> int:
        """Return the number of runs after which exact code has paid for its compilation."""
        own, work = self._gain(kernel), self.work(kernel, dims)
        ratio = own.ratio_near(work) or self._family(kernel).ratio
        per_run = (LAUNCH_NS + work * own.unit_ns) * max(ratio - 1, (MARGIN - 1) / 10)
        return int(self.compile_ns(kernel) / per_run) + 1

    def compile_ns(self, kernel: int) -> float:
        """Return the expected nanoseconds of compilation."""
        return self._family(kernel).compile_ns

    def work(self, kernel: int, dims: Sizes) -> int:
        """Return the work of a launch in the runtime's units: 0 without generic code."""
        from ..vm.work import work_of

        if kernel not in self._work:
            generic = self._machine.generic_code(kernel)
            self._work[kernel] = work_of(parse_object(generic)) if generic else lambda _: 0
        return self._work[kernel](dims)

    def wants_measuring(self, kernel: int) -> bool:
        """Return whether to measure the kernel's next code."""
        return len(self._gain(kernel).points) < MAX_POINTS

    def learn(self, kernel: int, dims: Sizes, answer: Answer) -> list[int]:
        """Add a compilation time and measurements; return the kernels whose price changes."""
        own, family, name = self._gain(kernel), self._family(kernel), self._name(kernel)
        if answer.exact_ns:
            own.add(Point(self.work(kernel, dims), float(answer.exact_ns), float(answer.generic_ns)))
            self.store.remember(name, json.dumps(own.points).encode())
        family.add(name, own.ratio, answer.seconds * 1e9)
        data = {"ratios": family.ratios, "compile_ns": family.compile_ns}
        self.store.remember(self._family_name(kernel), json.dumps(data).encode())
        return [k for k in list(self.known) if self._family(k) is family]

    def _gain(self, kernel: int) -> KernelGain:
        if kernel not in self.known:
            found = _points(self.store.remembered(self._name(kernel)))
            self.known[kernel] = KernelGain(found)
        return self.known[kernel]

    def _family(self, kernel: int) -> FamilyGain:
        name = self._family_name(kernel)
        if name not in self._families:
            self._families[name] = _family(self.store.remembered(name))
        return self._families[name]

    def _name(self, kernel: int) -> str:
        return self._named(kernel)[0]

    def _family_name(self, kernel: int) -> str:
        return self._named(kernel)[1]

    def _named(self, kernel: int) -> tuple[str, str]:
        """Return the names under which the data of a kernel and its family is stored."""
        from ..jit.spec import family_name, spec_hash

        if kernel not in self._names:
            spec = self.spec(kernel)
            self._names[kernel] = spec_hash(spec), family_name(spec)
        return self._names[kernel]


def starting_pays(seconds_run: float, seconds_waiting: float) -> bool:
    """Whether to start a compile process for a program that has run for `seconds_run`, while kernels that
    take `seconds_waiting` wait: never before the program has run for as long as starting takes, then if the
    kernels cost more than starting. The longer the program runs, the fewer kernels suffice."""
    return seconds_run >= START_SECONDS and seconds_waiting + seconds_run * START_SHARE >= START_SECONDS


class Budget:
    """A share of time for compiling (a token bucket): callers run on the same cores or their hyperthreads.

    `per_second`: seconds of work granted per second; up to `burst` seconds accumulate while idle. None:
    unlimited.
    """

    def __init__(self, per_second: float | None, burst: float = 0.1) -> None:
        self.per_second, self.burst = per_second, burst
        self.saved, self.since = burst, time.monotonic()

    def spend(self, seconds: float) -> None:
        """Deduct the cost of work."""
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


#: The stored data of a kernel, [work, exact ns, generic ns] for each point, and of a family.
POINTS = ListOf(Fixed((Number(), Number(), Number())))
FAMILY = Object({"ratios": MapOf(Number())}, {"compile_ns": Number()})


def _points(text: bytes | None) -> list[Point]:
    """Return the stored points, none if the text is invalid."""
    try:
        rows = decode(text or b"[]", POINTS, "points")
    except ArtifactError:
        return []
    return [Point(int(work), float(exact), float(generic)) for work, exact, generic in rows[:MAX_POINTS]]


def _family(text: bytes | None) -> FamilyGain:
    """Return the stored data of a family, empty if the text is invalid."""
    try:
        data = decode(text or b'{"ratios": {}}', FAMILY, "a family")
    except ArtifactError:
        return FamilyGain()
    ratios = {name: float(ratio) for name, ratio in data["ratios"].items()}
    return FamilyGain(ratios, float(data.get("compile_ns", COMPILE_NS)))
