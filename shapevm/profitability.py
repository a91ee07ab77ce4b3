"""Whether exact code pays for its compilation, from run times measured on made-up data, outside of calls.

What was measured of a kernel is remembered beside the disk cache, for this CPU and this code generator, and
so is how much faster exact code was for kernels of its family: few measurements tell for all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .vm.machine import Price
from .vm.objects import parse_object
from .vm.work import LAUNCH_NS, UNIT_NS

if TYPE_CHECKING:
    from .jit.compile_job import Answer
    from .jit.spec import SpecText
    from .jit.store import KernelStore
    from .profiles import Sizes
    from .vm.machine import Machine

COMPILE_NS = 10e6  # of a kernel, before one of its family was compiled
ASK_NS = 0.3e6  # what a request costs: looking the code up, installing it where it is on disk
TYPICAL = 1.05  # generic against exact time of a kernel, before one of its family was measured
MARGIN = 1.02  # generic code is as fast when it takes no more than this times what exact code takes,
MAX_NOISE = 1.04  # where one measurement says more than this, it is not
MIN_SIZES = 2  # at this many sizes together,
MIN_KERNELS = 4  # or for this many kernels of a family
MAX_POINTS = 8  # sizes at which each kernel is measured
MAX_KERNELS = 64  # of a family, the latest, whose ratios are remembered
NEAR = 2  # what holds from some work on is taken to hold from a part in so many on


class Point(NamedTuple):
    """What was measured of a kernel at some sizes: work of a launch, nanoseconds by tier."""

    work: int
    exact_ns: float
    generic_ns: float


def ratio_of(points: Iterable[Point]) -> float:
    """Return generic against exact time of all points together."""
    found = list(points)
    return sum(p.generic_ns for p in found) / max(sum(p.exact_ns for p in found), 1.0)


class KernelGain:
    """What is known of one kernel: measured points, by work."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self.points = sorted(points)

    @property
    def ratio(self) -> float | None:
        """Generic against exact time, None before anything was measured."""
        return ratio_of(self.points) if self.points else None

    @property
    def unit_ns(self) -> float:
        """The nanoseconds that a flop or byte takes."""
        work = sum(p.work for p in self.points)
        spent = sum(p.exact_ns - LAUNCH_NS for p in self.points)
        return max(spent / work, 1e-6) if work else UNIT_NS

    @property
    def declined_from(self) -> int:
        """The least work from which on generic code was as fast: MIN_SIZES sizes together, and nearly so each
        of them; 0: none."""
        found = 0
        for i, p in reversed(list(enumerate(self.points))):
            if ratio_of([p]) > MAX_NOISE:
                break
            if len(self.points) - i >= MIN_SIZES and ratio_of(self.points[i:]) <= MARGIN:
                found = max(p.work // NEAR, 1)
        return found

    def ratio_near(self, work: int) -> float | None:
        """Return generic against exact time at the measured point of the most similar work."""
        if not self.points:
            return None
        nearest = min(self.points, key=lambda p: abs(math.log((p.work + 1) / (work + 1))))
        return ratio_of([nearest])

    def add(self, point: Point) -> None:
        """Take in what was measured."""
        self.points = sorted([*self.points, point])


class FamilyGain:
    """What is known of kernels alike: generic against exact time of each measured one, by spec hash, and what
    compiling one takes."""

    def __init__(self, ratios: dict[str, float] | None = None, compile_ns: float = COMPILE_NS) -> None:
        self.ratios, self.compile_ns = ratios or {}, compile_ns

    @property
    def ratio(self) -> float:
        """The geometric mean of the ratios, with TYPICAL as one of them."""
        logs = [math.log(TYPICAL), *(math.log(max(r, 1e-3)) for r in self.ratios.values())]
        return math.exp(sum(logs) / len(logs))

    @property
    def is_none(self) -> bool:
        """Whether generic code is as fast for kernels that were not measured themselves."""
        return len(self.ratios) >= MIN_KERNELS and self.ratio <= MARGIN

    def add(self, name: str, ratio: float | None, compile_ns: float) -> None:
        """Take in what compiling a kernel took, and what is known of its ratio now."""
        self.compile_ns += (compile_ns - self.compile_ns) / 4
        if ratio is not None:
            self.ratios.pop(name, None)
            self.ratios[name] = ratio
            if len(self.ratios) > MAX_KERNELS:
                del self.ratios[next(iter(self.ratios))]


def price_of(ratio: float, unit_ns: float, declined_from: int) -> Price:
    """Return when entries of a kernel are to ask for exact code that is so many times as fast."""
    gained = max(ratio, MARGIN) - 1
    return Price(int(ASK_NS / (gained * unit_ns)), int(LAUNCH_NS / unit_ns), declined_from)


def unknown_price() -> Price:
    """Return the price of a kernel of which nothing was looked up yet."""
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
        from .jit.spec import SpecText

        if not self._specs:
            self._specs = [SpecText(kernel.spec) for kernel in self._machine.kernels]
        return self._specs[kernel]

    def target(self, kernel: int) -> str | None:
        """Return the target of a kernel's generic code, that of all its code; None where it has none."""
        if kernel not in self._targets:
            generic = self._machine.generic_code(kernel)
            self._targets[kernel] = parse_object(generic).target if generic else None
        return self._targets[kernel]

    def price(self, kernel: int) -> Price:
        """Return when the kernel's entries are to ask for exact code."""
        own, family = self._gain(kernel), self._family(kernel)
        declined_from = own.declined_from or int(not own.points and family.is_none)
        asking = [p for p in own.points if not declined_from or p.work < declined_from]
        ratio = ratio_of(asking or own.points[:1]) if own.points else family.ratio
        return price_of(ratio, own.unit_ns, declined_from)

    def is_declined(self, kernel: int, dims: Sizes) -> bool:
        """Return whether generic code is as fast at these sizes."""
        start = self.price(kernel).declined_from
        return bool(start) and self.work(kernel, dims) >= start

    def pays_after(self, kernel: int, dims: Sizes) -> int:
        """Return the number of runs after which exact code has paid for its compilation."""
        own, work = self._gain(kernel), self.work(kernel, dims)
        ratio = own.ratio_near(work) or self._family(kernel).ratio
        per_run = (LAUNCH_NS + work * own.unit_ns) * max(ratio - 1, (MARGIN - 1) / 10)
        return int(self.compile_ns(kernel) / per_run) + 1

    def compile_ns(self, kernel: int) -> float:
        """Return the nanoseconds that compiling is expected to take."""
        return self._family(kernel).compile_ns

    def work(self, kernel: int, dims: Sizes) -> int:
        """Return the work of a launch, as the runtime counts it: 0 without generic code."""
        from .vm.work import work_of

        if kernel not in self._work:
            generic = self._machine.generic_code(kernel)
            self._work[kernel] = work_of(parse_object(generic)) if generic else lambda _: 0
        return self._work[kernel](dims)

    def wants_measuring(self, kernel: int) -> bool:
        """Return whether the kernel's next code is to be measured."""
        return len(self._gain(kernel).points) < MAX_POINTS

    def learn(self, kernel: int, dims: Sizes, answer: Answer) -> list[int]:
        """Take in what compiling took and what was measured; return the kernels whose price that changes."""
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
        """Return under which names a kernel and its family are remembered."""
        from .jit.spec import family_name, spec_hash

        if kernel not in self._names:
            spec = self.spec(kernel)
            self._names[kernel] = spec_hash(spec), family_name(spec)
        return self._names[kernel]


def _points(text: bytes | None) -> list[Point]:
    """Return the points that were remembered, none where the text is not of points."""
    try:
        rows = json.loads(text or b"[]")
        return [Point(int(work), float(exact), float(generic)) for work, exact, generic in rows[:MAX_POINTS]]
    except (ValueError, TypeError):
        return []


def _family(text: bytes | None) -> FamilyGain:
    """Return what was remembered of a family, nothing known where the text is none."""
    try:
        data = json.loads(text or b"{}")
        ratios = {str(name): float(ratio) for name, ratio in data["ratios"].items()} if data else {}
        return FamilyGain(ratios, float(data.get("compile_ns", COMPILE_NS)))
    except (ValueError, TypeError, KeyError, AttributeError):
        return FamilyGain()
