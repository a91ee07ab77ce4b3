"""The Nest family: pointwise chains, gathers and row reductions.

Tiles divide the loops (`tiling`); inside a tile the outer loops run one iteration at a time and the last loop
in vectors of LANES (`strip`). A nest with reductions processes each row (`rows`), or, if memory runs across
the rows, the rows of adjacent columns together (`columns`). Operands that are strided along the last loop of
other nests are transposed when loaded (`transposed`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ....vm.program import Work
from ...llvm.abi import Generated, check_schedule
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...loops.bodies import LANES, BodyEmitter, Position, find_depends
from ...loops.loops import Loops, moved_last, simplify
from ...loops.nontemporal import bypasses, either_way, read_ahead
from ...loops.strip_mining import State, each, strip
from ...loops.tiling import CROSS_TILE, TILE_BYTES, Range, plan, shared, tile_cost, tiles_of, transposed_loop
from ...spec import Nest, Terms
from ..family import Variant, first_fitting
from .asking import VECTORS, WITHOUT_ASKING
from .columns import Columns, find_columns
from .layout_change import TILE, LayoutChange, changes_layout
from .narrow_transpose import Narrow, narrow_loop
from .plan import weight
from .reduce import REDUCTIONS
from .rows import Rows
from .tiled_transpose import Blocks, transposed_loads

PART = "tiles"  # the name of a nest's part
SHARE_MULTIPLE = 4 * LANES  # a tile's share of the innermost loop is a multiple of this


def emit(f: Function, spec: Nest, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Nest; see `abi.Generator`. Schedules: those of `asking`."""
    name = schedule or VECTORS
    check_schedule("nest", name, [VECTORS, WITHOUT_ASKING])
    nest = Emitter(f, spec, sizes, has_part=True, asks=name == VECTORS)
    nest.emit(*f.params[3:5])
    tiles, cost = tiles_of(nest.loops, nest.plans), tile_cost(nest.loops, nest.plans, nest.weight)
    return Generated(Work(tiles, nest.work.scratch, cost), name)


class TileCode(Protocol):
    """An emitter of the work of a tile."""

    @property
    def scratch(self) -> Terms:
        """The code object's."""

    def emit(self, parts: Sequence[Range]) -> None:
        """Emit the work of a tile: `parts` of the loops."""


@dataclass(frozen=True)
class Problem:
    """A nest as its variants see it: loops whose sizes are resolved.

    `has_rows`: it has reductions, along the last loop. `has_columns`: those run across memory; the loop
    before the last one is that of adjacent columns. `asks`: whether a layout change prefetches lines.
    """

    loops: Loops
    has_rows: bool
    has_columns: bool
    asks: bool

    @property
    def last(self) -> int:
        """The number of the last loop."""
        return len(self.loops.domain) - 1

    @property
    def vector_loop(self) -> int:
        """The number of the vectorised loop."""
        return self.last - self.has_columns

    @property
    def transposed(self) -> int | None:
        """The loop along which loads are contiguous that are strided by the last loop, None if it is
        short."""
        found = transposed_loop(self.loops)
        size = None if found is None else self.loops.domain[found]
        return None if isinstance(size, int) and size < LANES else found

    @property
    def narrow(self) -> int | None:
        """The strided loop of few iterations of a nest without reductions, None otherwise."""
        return narrow_loop(self.loops)

    @property
    def layout(self) -> int | None:
        """The loop along which a copy of known sizes reads contiguously while the last one strides, None
        otherwise."""
        found = transposed_loop(self.loops)
        return found if changes_layout(self.loops, found, self.asks) else None

    @property
    def loads(self) -> list[int]:
        """The loads that lie along it."""
        return [] if self.transposed is None else transposed_loads(self.loops, self.transposed)


def problem_of(f: Function, spec: Nest, sizes: Sequence[Int], asks: bool) -> Problem:
    """Return the problem of `spec`; call in the entry block."""
    has_rows, columns = any(i.op in REDUCTIONS for i in spec.body), find_columns(spec)
    moved = spec if columns is None else moved_last(spec, columns)
    loops = simplify(f, moved, sizes, has_rows, columns is not None)
    return Problem(loops, has_rows, columns is not None, asks)


def _traffic(problem: Problem) -> int:
    """Return the bytes that one iteration of the last loop reads and writes."""
    loops, last = problem.loops, problem.last
    depends = find_depends(loops.body, last, problem.vector_loop)
    moved = (i.buffer for n, i in enumerate(loops.body) if i.buffer is not None and last in depends[n])
    return sum(DTYPES[loops.buffers[b].dtype].bytes for b in moved)


class Emitter:
    """One nest of a kernel; construct it in the entry block.

    `tile_bytes`: the traffic of a tile. `addresses`: those of the buffers, if already loaded. `has_part`: the
    kernel is this nest alone; if it is exact and one loop is divided among tiles, their work is a part that
    does not depend on that loop's size: kernels for other sizes share it. `asks`: see `Problem`. `weight`:
    the cost of one iteration of the innermost loop; `plans`: how tiles divide the loops.
    """

    def __init__(
        self,
        f: Function,
        spec: Nest,
        sizes: Sequence[Int],
        tile_bytes: int = TILE_BYTES,
        addresses: Sequence[Value] | None = None,
        has_part: bool = False,
        asks: bool = True,
    ) -> None:
        problem = problem_of(f, spec, sizes, asks)
        variant = first_fitting(VARIANTS, problem)
        self.f = f
        self.loops = problem.loops
        traffic, step = _traffic(problem), Columns.step if problem.has_columns else 1
        cross = CROSS_TILE if problem.layout is None else TILE
        self.plans = plan(self.loops, traffic, SHARE_MULTIPLE, problem.has_rows, tile_bytes, step, cross)
        self.weight = sum(weight(i) for i in self.loops.body)
        is_exact = all(isinstance(size, int) for size in sizes)
        self.part: Function | None = None
        if has_part and is_exact and len(tiles_of(self.loops, self.plans)) == 1:
            self.part = f.open_part(PART, *f.params[:3])
        g = self.part or f
        loops = self.loops
        bodies = BodyEmitter(
            g, loops.body, loops.buffers, loops.sizes, problem.vector_loop, addresses, problem.last
        )
        self.work = variant.emit(g, problem, bodies)
        f.takes(variant.name)

    def emit(self, begin: Int, end: Int) -> None:
        """Emit the work of the tiles begin .. end - 1."""
        f, part = self.f, self.part
        with shared(f, self.loops, self.plans, begin, end) as ranges:
            if part is None:
                self.work.emit(ranges)
                return
            passed = [x for r in ranges for x in (r.begin, r.count) if isinstance(x, Value)]
            given: dict[Int, Int] = {x: part.parameter(x) for x in passed}
            self.work.emit(
                [
                    replace(r, begin=given.get(r.begin, r.begin), count=given.get(r.count, r.count))
                    for r in ranges
                ]
            )
            f.call_part(PART, None, *f.params[:3], *(x for x in given if isinstance(x, Value)))


class Pointwise:
    """Emits nests without reductions, the last loop in vectors."""

    scratch: Terms = ()

    def __init__(self, f: Function, loops: Loops, bodies: BodyEmitter) -> None:
        self.f = f
        self.bodies = bodies
        stores = [i for i in loops.body if i.op == "store"]
        self.bypasses = bypasses(f, loops, bodies, stores)

    def emit(self, parts: Sequence[Range]) -> None:
        """Emit the work of a tile: `parts` of the loops."""

        def run(bypasses: bool) -> None:
            each(self.f, parts[:-1], lambda outer: self._run(outer, parts[-1], bypasses))

        either_way(self.f, self.bypasses, run)

    def _run(self, outer: tuple[Int, ...], part: Range, bypasses: bool) -> None:
        bodies = self.bodies
        given = bodies.emit(bodies.hoistable(len(outer)), Position((*outer, 0)))
        ids = [i for i in bodies.ids if i not in given]

        def chunk(index: Int, mask: Value | None, state: State) -> State:
            at = Position((*outer, index), mask, bypasses)
            if bypasses and mask is None:
                read_ahead(self.f, bodies, ids, at)
            bodies.emit(ids, at, given)
            return state

        strip(self.f, part, 1, chunk)


def _blocks(f: Function, problem: Problem, bodies: BodyEmitter) -> Blocks:
    assert problem.transposed is not None
    return Blocks(f, problem.loops, bodies, problem.transposed, problem.loads, problem.asks)


def _narrow(f: Function, problem: Problem, bodies: BodyEmitter) -> Narrow:
    assert problem.narrow is not None
    return Narrow(f, problem.loops, bodies, problem.narrow)


def _layout(f: Function, problem: Problem, bodies: BodyEmitter) -> LayoutChange:
    assert problem.layout is not None
    return LayoutChange(f, problem.loops, bodies, problem.layout)


#: The first one that fits is taken; `emit` returns the emitter of a tile.
VARIANTS: tuple[Variant[Problem, Callable[[Function, Problem, BodyEmitter], TileCode]], ...] = (
    Variant("columns", lambda p: p.has_columns, lambda f, p, bodies: Columns(f, p.loops, bodies)),
    Variant("rows", lambda p: p.has_rows, lambda f, p, bodies: Rows(f, p.loops, bodies)),
    Variant("narrow-transpose", lambda p: p.narrow is not None, _narrow),
    Variant("layout-change", lambda p: p.layout is not None, _layout),
    Variant("tiled-transpose", lambda p: bool(p.loads), _blocks),
    Variant("pointwise", lambda p: True, lambda f, p, bodies: Pointwise(f, p.loops, bodies)),
)
