"""Whether exact code pays for its compilation, from run times measured on made-up data, outside of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .bake import EXACT, GENERIC, N_SAMPLES, KernelModel, cost_of, measured_ns
from .profiles import Sizes
from .vm.artifact import parse_object

if TYPE_CHECKING:
    from .jit.spec import KernelSpec
    from .jit.store import KernelStore
    from .vm.program import KernelObject

COMPILE_NS = 10e6  # of a kernel, before one of its family was compiled
TYPICAL = 1.1  # generic against exact time of a kernel, before one of its family was measured
MARGIN = 1.01  # generic code is as fast when it takes no more than this times what exact code takes,
MIN_SIZES = 2  # at this many sizes together
MAX_MEASURED_NS = 20e6  # a launch expected to take longer is not measured beside the program
N_TURNS = 2  # of measuring each tier


class KernelGain:
    """What is known of one kernel: its generic code, its model, nanoseconds by tier, summed over sizes."""

    def __init__(self, generic: KernelObject) -> None:
        self.generic = generic
        self.model = KernelModel(cost_of(generic), {})
        self.ns = {EXACT: 0.0, GENERIC: 0.0}
        self.work = 0
        self.n_sizes = 0

    @property
    def ratio(self) -> float | None:
        """Generic against exact time, None before anything was measured."""
        return self.ns[GENERIC] / self.ns[EXACT] if self.n_sizes else None

    @property
    def is_none(self) -> bool:
        """Whether generic code is as fast."""
        return self.n_sizes >= MIN_SIZES and self.ns[GENERIC] <= MARGIN * self.ns[EXACT]

    def add(self, dims: Sizes, exact_ns: float, generic_ns: float) -> None:
        """Take in what was measured at `dims`."""
        self.ns[EXACT] += max(exact_ns, 1.0)
        self.ns[GENERIC] += generic_ns
        self.work += self.model.cost(dims)
        self.n_sizes += 1
        self.model.fit(self.ns, self.n_sizes, self.work)


class Gains:
    """Expected gains of a program's kernels. Used by one thread; others may read `known`.

    `specs`: of the kernels, as JSON.
    """

    def __init__(self, store: KernelStore, specs: Sequence[str]) -> None:
        self.store = store
        self.known: dict[int, KernelGain] = {}
        self._texts = specs
        self._specs: dict[int, KernelSpec] = {}
        self._compile_ns: dict[str, tuple[float, int]] = {}  # by family: of all, how many

    def spec(self, kernel: int) -> KernelSpec:
        """Return a kernel's spec."""
        from .jit.spec import from_json

        if kernel not in self._specs:
            self._specs[kernel] = from_json(self._texts[kernel])
        return self._specs[kernel]

    def prepare(self, kernel: int) -> None:
        """Get the generic code that a kernel's gain is told against. Raises what compiling raises."""
        self._gain(kernel)

    def per_run_ns(self, kernel: int, dims: Sizes) -> float:
        """Return the nanoseconds that exact code is expected to save each time the kernel runs, once it is
        prepared."""
        own = self._gain(kernel)
        ratio = own.ratio or self._typical(self.spec(kernel).family)
        return max(0.0, (ratio - 1) * own.model.ns(EXACT, dims))

    def compile_ns(self, kernel: int) -> float:
        """Return the nanoseconds that compiling is expected to take."""
        total, count = self._compile_ns.get(self.spec(kernel).family, (COMPILE_NS, 1))
        return total / count

    def is_none(self, kernel: int) -> bool:
        """Return whether exact code was measured to be no faster than generic code."""
        return kernel in self.known and self.known[kernel].is_none

    def learn(self, kernel: int, dims: Sizes, record: bytes, compile_seconds: float) -> None:
        """Take in what compiling took, and measure the code at the first few sizes of a kernel."""
        family = self.spec(kernel).family
        total, count = self._compile_ns.get(family, (0.0, 0))
        self._compile_ns[family] = (total + compile_seconds * 1e9, count + 1)
        own = self._gain(kernel)
        if own.n_sizes >= N_SAMPLES or own.model.ns(GENERIC, dims) > MAX_MEASURED_NS:
            return
        objects = {EXACT: parse_object(record), GENERIC: own.generic}
        turns = [{tier: measured_ns(o, dims) for tier, o in objects.items()} for _ in range(N_TURNS)]
        own.add(dims, *(min(turn[tier] for turn in turns) for tier in objects))

    def _gain(self, kernel: int) -> KernelGain:
        if kernel not in self.known:
            self.known[kernel] = KernelGain(self.store.object(self.spec(kernel), None))
        return self.known[kernel]

    def _typical(self, family: str) -> float:
        """Return generic against exact time of the family's measured kernels together."""
        found = [g for k, g in self.known.items() if g.n_sizes and self.spec(k).family == family]
        if not found:
            return TYPICAL
        return sum(g.ns[GENERIC] for g in found) / sum(g.ns[EXACT] for g in found)


class Waiting:
    """Requests that do not pay yet, at most `most`: (kernel, dims) with the runs of each so far."""

    def __init__(self, gains: Gains, most: int) -> None:
        self.gains, self.most = gains, most
        self.runs: dict[tuple[int, Sizes], int] = {}

    def worth(self, key: tuple[int, Sizes]) -> float:
        """Return what exact code would have saved so far, in times what it costs: from 1 on it pays.

        As many runs are expected to come as have been.
        """
        return self.runs[key] * self.gains.per_run_ns(*key) / self.gains.compile_ns(key[0])

    def pays_after(self, key: tuple[int, Sizes]) -> int:
        """Return the number of runs after which it pays."""
        return int(self.gains.compile_ns(key[0]) / max(self.gains.per_run_ns(*key), 1e-9)) + 1

    def put(self, key: tuple[int, Sizes], runs: int) -> tuple[int, Sizes] | None:
        """Add a request; return the one that has to go for it, the least worth."""
        self.runs[key] = runs
        if len(self.runs) <= self.most:
            return None
        gone = min(self.runs, key=self.worth)
        del self.runs[gone]
        return gone

    def best(self) -> tuple[int, Sizes]:
        """Return the request that is worth most."""
        return max(self.runs, key=self.worth)
