"""Row reductions: the passes over the row loop, and rows whose lanes lie along it.

Pass p computes the reductions whose argument needs p reductions one after the other (softmax: max, then the
sum of exp, then the quotient), the last pass stores. What is dear to compute and needed in a later pass is
kept in scratch memory, the rest is computed again. Rows that run across memory are walked by `columns`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from .abi import RT_SCRATCH
from .bodies import LANES, BodyEmitter, Position
from .dtypes import DTYPES, vector
from .llvm import Function, Int, Value
from .loops import Loops
from .math import OPS
from .reduce import N_ACCUMULATORS, REDUCTIONS, Accumulators
from .spec import Instr, Size
from .streamed import AHEAD, either_way, read_ahead, streams
from .strip import State, each, strip
from .tiling import Range

# A pass over a row with at most SHORT_PASS cheap instructions does two chunks per trip (10 % quicker in
# cache); other innermost loops gain nothing from it, and each copy of a body costs compile time.
SHORT_PASS = 6
LONG_ROW = 128 * 1024  # bytes; more than one such row would crowd the second-level cache
Values = dict[int, Value]  # instruction ids -> their values in one vector of lanes


def is_dear(instr: Instr) -> bool:
    """Whether computing `instr` costs more than reading it back: the operations made of polynomials."""
    return instr.op in OPS and max(OPS[instr.op].ulp) > 0


def weight(instr: Instr) -> int:
    """Return a rough cost in bytes of traffic or flops."""
    if instr.op in ("load", "store"):
        return DTYPES[instr.dtype].bytes
    return 40 if is_dear(instr) else 2


@dataclass
class Pass:
    """One run over the row: its reductions and stores, what it writes to and reads from scratch."""

    reduces: list[int] = field(default_factory=list)
    stores: list[int] = field(default_factory=list)
    ids: tuple[int, ...] = ()
    kept: list[int] = field(default_factory=list)
    reread: list[int] = field(default_factory=list)

    def is_short(self, bodies: BodyEmitter) -> bool:
        """Whether it has at most SHORT_PASS cheap instructions."""
        return sum(weight(bodies.body[i]) // 2 for i in self.ids) <= SHORT_PASS


def _levels(bodies: BodyEmitter) -> list[int]:
    """Return for each instruction how many reductions, one after the other, its value needs."""
    levels: list[int] = []
    for instr in bodies.body:
        level = max((levels[i] for i in bodies.sources(instr)), default=0)
        levels.append(level + (instr.op in REDUCTIONS))
    return levels


class Passes(ABC):
    """The passes over rows, wherever their lanes lie; construct it in the entry block.

    `scratch`: the code object's.
    """

    def __init__(self, f: Function, loops: Loops, bodies: BodyEmitter) -> None:
        self.f = f
        self.bodies = bodies
        self.body = loops.body
        self.row = len(loops.domain) - 1
        self.length = loops.extent(self.row)
        self.levels = _levels(bodies)
        self.varying = [self.row in loops for loops in bodies.depends]
        self.hoisted = bodies.hoistable(self.row)
        self.reductions = [i for i, instr in enumerate(self.body) if instr.op in REDUCTIONS]
        self.passes = self._passes()
        self.places: dict[int, Value] = {}
        self.scratch: tuple[tuple[int, tuple[Size, ...]], ...] = ()

    def _passes(self) -> list[Pass]:
        reduces = {i: self.levels[i] - 1 for i in self.reductions}
        stores = [i for i, instr in enumerate(self.body) if instr.op == "store" and self.varying[i]]
        n = max([*reduces.values(), *(self.levels[i] for i in stores)]) + 1
        passes = [Pass([i for i, p in reduces.items() if p == n_pass]) for n_pass in range(n)]
        passes[-1].stores = stores  # in the last pass: a row may be written over what it is computed from
        fixed = {i for i in self.bodies.ids if not self.varying[i]}
        dear: set[int] = set()  # computed by an earlier pass
        for p in passes:
            roots = [*(self.body[i].args[0] for i in p.reduces), *p.stores]
            p.ids = self.bodies.needed(roots, fixed | dear)
            read = {source for i in p.ids for source in self.bodies.sources(self.body[i])}
            p.reread = sorted(dear & (read | set(roots)))
            dear |= {i for i in p.ids if is_dear(self.body[i])}
        reread = {i for p in passes for i in p.reread}
        for p in passes:
            p.kept = [i for i in p.ids if i in reread]
        return passes

    def _place_kept(self, length: Size, width: int) -> None:
        """Place each kept value in scratch: `width` elements for each iteration of the row, whole vectors."""
        f = self.f
        kept = [i for p in self.passes for i in p.kept]
        if not kept:
            return
        place = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)
        elements = f.mul(self.length, width)
        padded = elements if width % LANES == 0 else f.mul(f.ceildiv(elements, LANES), LANES)
        for i in kept:
            n_bytes = 8 if self._register(i) == "double" else 4
            self.places[i] = place
            place = f.at(place, "i8", f.mul(padded, n_bytes))
            self.scratch += ((n_bytes * width, (length,)),)
            self.scratch += () if width % LANES == 0 else ((n_bytes * LANES, ()),)

    def _register(self, i: int) -> str:
        return DTYPES[self.body[i].dtype].register

    def emit_passes(self, places: Sequence[Position]) -> None:
        """Emit all passes for the vectors of lanes at `places`, where the row loop is 0."""
        emit = self.bodies.emit
        given = [emit(self.hoisted, at) for at in places]
        done = set(self.hoisted)
        for n, p in enumerate(self.passes):
            given = [{**old, **new} for old, new in zip(given, self.run(p, places, given), strict=True)]
            fixed = [i for i in self.bodies.ids if self._is_row_value(i, n + 1) and i not in done]
            given = [emit(fixed, at, values) for at, values in zip(places, given, strict=True)]
            done |= {*fixed, *p.reduces}
        stores = [i for i, instr in enumerate(self.body) if instr.op == "store" and not self.varying[i]]
        for at, values in zip(places, given, strict=True):
            emit(stores, at, values)

    def _is_row_value(self, i: int, level: int) -> bool:
        """Whether instruction i is fixed in a row, and known after `level` passes."""
        is_value = self.body[i].op != "store" and i not in self.reductions
        return is_value and not self.varying[i] and self.levels[i] <= level

    @abstractmethod
    def run(self, p: Pass, places: Sequence[Position], given: Sequence[Values]) -> list[Values]:
        """Emit one pass with the values `given` at each place; return the results of its reductions."""

    def keep(self, p: Pass, values: Values, element: Int) -> None:
        """Write what later passes need to scratch, from element `element` of each value's place."""
        for i in p.kept:
            self.f.store(values[i], self.f.at(self.places[i], self._register(i), element), align=4)

    def reread(self, p: Pass, element: Int) -> Values:
        """Read what earlier passes kept."""
        return {
            i: self.f.load(
                vector(self._register(i), LANES),
                self.f.at(self.places[i], self._register(i), element),
                align=4,
            )
            for i in p.reread
        }


class Rows(Passes):
    """The passes over rows that lie along memory: lanes are neighbours in the row."""

    def __init__(self, f: Function, loops: Loops, bodies: BodyEmitter) -> None:
        super().__init__(f, loops, bodies)
        self.accumulators = {i: Accumulators(f, self.body[i].op, self.body[i].dtype) for i in self.reductions}
        self._place_kept(loops.domain[self.row], 1)
        stores = [self.body[i] for i in self.passes[-1].stores]
        self.streams, self.is_streaming = streams(f, loops, bodies, stores), False

    def emit(self, parts: Sequence[Range]) -> None:
        """Emit the work of a tile: `parts` of the loops."""

        def run(is_streaming: bool) -> None:
            self.is_streaming = is_streaming
            each(self.f, parts[:-1], lambda outer: self.emit_passes([Position((*outer, 0))]))

        either_way(self.f, self.streams, run)

    def _read_ahead(self, p: Pass, at: Position) -> None:
        """Prefetch in the second pass what the first reads two rows later; if rows are long, in the first.

        Memory then brings rows while others are computed, not in a pass of its own.
        """
        assert isinstance(self.length, int)
        first = self.passes[0].ids
        row_bytes = self.length * max(DTYPES[self.body[i].dtype].bytes for i in first)
        if row_bytes > LONG_ROW and p is self.passes[0]:
            read_ahead(self.f, self.bodies, first, at)
        if row_bytes <= LONG_ROW and p is self.passes[1]:
            read_ahead(self.f, self.bodies, first, at, max(2 * row_bytes, AHEAD))

    def run(self, p: Pass, places: Sequence[Position], given: Sequence[Values]) -> list[Values]:
        """Emit one pass; see `Passes.run`."""
        n = N_ACCUMULATORS
        outer = places[0].loops[:-1]

        def chunk(index: Int, mask: Value | None, state: State) -> State:
            values = given[0] | self.reread(p, index)
            at = Position((*outer, index), mask, self.is_streaming)
            if self.is_streaming and mask is None:
                self._read_ahead(p, at)
            values = self.bodies.emit(p.ids, at, values)
            self.keep(p, values, index)
            after: State = []
            for k, i in enumerate(p.reduces):
                value = values[self.body[i].args[0]]
                after += self.accumulators[i].add(state[k * n : k * n + n], value, mask)
            return after

        start = [v for i in p.reduces for v in self.accumulators[i].start]
        end = strip(self.f, Range(0, self.length), 2 if p.is_short(self.bodies) else 1, chunk, start)
        chunks = self.f.ceildiv(self.length, LANES)
        ends = {i: end[k * n : k * n + n] for k, i in enumerate(p.reduces)}
        return [{i: self.accumulators[i].finish(state, chunks) for i, state in ends.items()}]
