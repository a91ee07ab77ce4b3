"""The Nest family: pointwise chains, gathers and row reductions.

Tiles share out the loops (`tiling`); inside a tile the outer loops run one iteration at a time and the last
loop in vectors of LANES (`strip`). A nest with reductions processes each row in passes over the row loop:
pass p computes the reductions whose argument needs p reductions one after the other (softmax: max, then the
sum of exp, then the quotient), the last pass stores. What is dear to compute and needed in a later pass is
kept in scratch memory, the rest is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .abi import RT_SCRATCH, Generated
from .bodies import LANES, BodyEmitter, Position
from .dtypes import DTYPES, vector
from .llvm import Function, Int, Value
from .loops import Loops, simplify
from .math import OPS
from .reduce import N_ACCUMULATORS, REDUCTIONS, Accumulators
from .spec import Instr, Nest, Size
from .strip import State, strip
from .tiling import TILE_BYTES, Range, plan, shared, tile_cost, tiles_of

# A pass over a row with at most SHORT_PASS cheap instructions does two chunks per trip (10 % quicker in
# cache); other innermost loops gain nothing from it, and each copy of a body costs compile time.
SHORT_PASS = 6
SHARE_MULTIPLE = 4 * LANES  # a tile's share of the innermost loop is a multiple of this


def emit(f: Function, spec: Nest, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Nest; see `abi.Generator`. The one schedule is "rows"."""
    if schedule not in (None, "rows"):
        raise ValueError(f"nest kernel: schedule {schedule!r} is unknown; known is rows")
    nest = Emitter(f, spec, sizes)
    nest.emit(*f.params[3:5])
    scratch = nest.rows.scratch if nest.rows is not None else ()
    return Generated(
        tiles_of(nest.loops, nest.plans), scratch, tile_cost(nest.loops, nest.plans, nest.weight), "rows"
    )


class Emitter:
    """One nest of a kernel; construct it in the entry block.

    `tile_bytes`: the traffic of a tile. `addresses`: those of the buffers, where they are loaded already.
    `weight`: the cost of one iteration of the innermost loop; `plans`: how tiles share out the loops.
    """

    def __init__(
        self,
        f: Function,
        spec: Nest,
        sizes: Sequence[Int],
        tile_bytes: int = TILE_BYTES,
        addresses: Sequence[Value] | None = None,
    ) -> None:
        row = any(i.op in REDUCTIONS for i in spec.body)
        self.f = f
        self.loops = simplify(f, spec, sizes, row)
        last = len(self.loops.domain) - 1
        self.bodies = BodyEmitter(
            f, self.loops.body, self.loops.buffers, self.loops.sizes, vector_loop=last, addresses=addresses
        )
        self.plans = plan(self.loops, self._traffic(), SHARE_MULTIPLE, row, tile_bytes)
        self.rows = Rows(f, self.loops, self.bodies) if row else None
        self.weight = sum(_weight(i) for i in self.loops.body)

    def _traffic(self) -> int:
        """Return the bytes that one iteration of the last loop reads and writes."""
        loops, depends = self.loops, self.bodies.depends
        last = len(loops.domain) - 1
        moved = (i.buffer for n, i in enumerate(loops.body) if i.buffer is not None and last in depends[n])
        return sum(DTYPES[loops.buffers[b].dtype].bytes for b in moved)

    def emit(self, begin: Int, end: Int) -> None:
        """Emit the work of the tiles begin .. end - 1."""
        f, rows = self.f, self.rows
        with shared(f, self.loops, self.plans, begin, end) as parts:
            if rows is not None:
                _each(f, parts[:-1], rows.emit)
            else:
                _each(f, parts[:-1], lambda outer: _pointwise(f, self.bodies, outer, parts[-1]))


def _is_dear(instr: Instr) -> bool:
    """Whether computing `instr` costs more than reading it back: the operations made of polynomials."""
    return instr.op in OPS and max(OPS[instr.op].ulp) > 0


def _weight(instr: Instr) -> int:
    """Return a rough cost in bytes of traffic or flops."""
    if instr.op in ("load", "store"):
        return DTYPES[instr.dtype].bytes
    return 40 if _is_dear(instr) else 2


def _each(f: Function, parts: Sequence[Range], inner: Callable[[tuple[Int, ...]], None]) -> None:
    """Run `inner` at each place in `parts`, as nested loops."""

    def nest(outer: tuple[Int, ...]) -> None:
        if len(outer) == len(parts):
            inner(outer)
            return
        part = parts[len(outer)]
        if part.count == 1:
            nest((*outer, part.begin))
            return
        with f.loop(part.begin, part.end(f)) as loop:
            nest((*outer, loop.index))

    nest(())


def _pointwise(f: Function, bodies: BodyEmitter, outer: tuple[Int, ...], part: Range) -> None:
    hoisted = bodies.hoistable(len(outer))
    given = bodies.emit(hoisted, Position((*outer, 0)))
    ids = [i for i in bodies.ids if i not in given]

    def chunk(index: Int, mask: Value | None, state: State) -> State:
        bodies.emit(ids, Position((*outer, index), mask), given)
        return state

    strip(f, part, 1, chunk)


# Row reductions -------------------------------------------------------------------------------------


@dataclass
class Pass:
    """One run over the row: its reductions and stores, what it writes to and reads from scratch."""

    reduces: list[int] = field(default_factory=list)
    stores: list[int] = field(default_factory=list)
    ids: tuple[int, ...] = ()
    kept: list[int] = field(default_factory=list)
    reread: list[int] = field(default_factory=list)


def _levels(bodies: BodyEmitter) -> list[int]:
    """Return for each instruction how many reductions, one after the other, its value needs."""
    levels: list[int] = []
    for instr in bodies.body:
        level = max((levels[i] for i in bodies.sources(instr)), default=0)
        levels.append(level + (instr.op in REDUCTIONS))
    return levels


class Rows:
    """Emits the passes over one row; construct it in the entry block."""

    def __init__(self, f: Function, loops: Loops, bodies: BodyEmitter) -> None:
        self.f = f
        self.bodies = bodies
        self.body = loops.body
        self.row = len(loops.domain) - 1
        self.length = loops.extent(self.row)
        self.levels = _levels(bodies)
        self.varying = [self.row in loops for loops in bodies.depends]
        self.hoisted = bodies.hoistable(self.row)
        self.passes = self._passes()
        self.accumulators = {
            i: Accumulators(f, instr.op, instr.dtype)
            for i, instr in enumerate(self.body)
            if instr.op in REDUCTIONS
        }
        self.places: dict[int, Value] = {}
        self.scratch = self._scratch(loops.domain[self.row])

    def _passes(self) -> list[Pass]:
        reduces = {i: self.levels[i] - 1 for i, instr in enumerate(self.body) if instr.op in REDUCTIONS}
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
            dear |= {i for i in p.ids if _is_dear(self.body[i])}
        reread = {i for p in passes for i in p.reread}
        for p in passes:
            p.kept = [i for i in p.ids if i in reread]
        return passes

    def _scratch(self, length: Size) -> tuple[tuple[int, tuple[Size, ...]], ...]:
        """Place each kept value's row in scratch, in whole vectors; return the code object's `scratch`."""
        f = self.f
        kept = [i for p in self.passes for i in p.kept]
        if not kept:
            return ()
        place = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)
        padded = f.mul(f.ceildiv(self.length, LANES), LANES)
        terms: list[tuple[int, tuple[Size, ...]]] = []
        for i in kept:
            self.places[i] = place
            place = f.at(place, "i8", f.mul(padded, self._register_bytes(i)))
            terms += [(self._register_bytes(i), (length,)), (self._register_bytes(i) * LANES, ())]
        return tuple(terms)

    def _register_bytes(self, i: int) -> int:
        return 8 if DTYPES[self.body[i].dtype].register == "double" else 4

    def emit(self, outer: tuple[Int, ...]) -> None:
        """Emit the work of the row at `outer`, the values of the other loops."""
        at = Position((*outer, 0))
        given = self.bodies.emit(self.hoisted, at)
        done = set(given)
        for n, p in enumerate(self.passes):
            given = given | self._run(p, outer, given)
            fixed = [
                i
                for i in self.bodies.ids
                if self._is_row_value(i) and self.levels[i] <= n + 1 and i not in done
            ]
            given = self.bodies.emit(fixed, at, given)
            done |= {*fixed, *p.reduces}
        stores = [i for i, instr in enumerate(self.body) if instr.op == "store" and not self.varying[i]]
        self.bodies.emit(stores, at, given)

    def _is_row_value(self, i: int) -> bool:
        return not self.varying[i] and self.body[i].op != "store" and self.body[i].op not in REDUCTIONS

    def _run(self, p: Pass, outer: tuple[Int, ...], given: Mapping[int, Value]) -> dict[int, Value]:
        """Emit one pass; return the results of its reductions."""
        n = N_ACCUMULATORS

        def chunk(index: Int, mask: Value | None, state: State) -> State:
            values = dict(given) | {i: self._reread(i, index) for i in p.reread}
            values = self.bodies.emit(p.ids, Position((*outer, index), mask), values)
            for i in p.kept:
                self.f.store(values[i], self._place(i, index), align=4)
            after: State = []
            for k, i in enumerate(p.reduces):
                value = values[self.body[i].args[0]]
                after += self.accumulators[i].add(state[k * n : k * n + n], value, mask)
            return after

        start = [v for i in p.reduces for v in self.accumulators[i].start]
        is_short = sum(_weight(self.body[i]) // 2 for i in p.ids) <= SHORT_PASS
        end = strip(self.f, Range(0, self.length), 2 if is_short else 1, chunk, start)
        chunks = self.f.ceildiv(self.length, LANES)
        return {
            i: self.accumulators[i].finish(end[k * n : k * n + n], chunks) for k, i in enumerate(p.reduces)
        }

    def _place(self, i: int, index: Int) -> Value:
        return self.f.at(self.places[i], DTYPES[self.body[i].dtype].register, index)

    def _reread(self, i: int, index: Int) -> Value:
        return self.f.load(vector(DTYPES[self.body[i].dtype].register, LANES), self._place(i, index), align=4)
