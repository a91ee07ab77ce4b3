"""The Nest family: pointwise chains, gathers and row reductions.

Tiles share out the loops (`tiling`); inside a tile the outer loops run one iteration at a time and the last
loop in vectors of LANES (`strip`). A nest with reductions walks each row (`rows`), or, where memory lies
across the rows, the rows of neighbouring columns together (`columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .abi import Generated
from .bodies import LANES, BodyEmitter, Position
from .columns import Columns, find_columns
from .dtypes import DTYPES
from .llvm import Function, Int, Value
from .loops import moved_last, simplify
from .reduce import REDUCTIONS
from .rows import Rows, weight
from .spec import Nest
from .strip import State, strip
from .tiling import TILE_BYTES, Range, plan, shared, tile_cost, tiles_of

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
        columns = find_columns(spec)
        self.f = f
        moved = spec if columns is None else moved_last(spec, columns)
        self.loops = simplify(f, moved, sizes, row, columns is not None)
        self.last = len(self.loops.domain) - 1
        self.bodies = BodyEmitter(
            f, self.loops.body, self.loops.buffers, self.loops.sizes,
            vector_loop=self.last - (columns is not None), addresses=addresses, row_loop=self.last,
        )  # fmt: skip
        self.rows: Rows | Columns | None = None
        if row:
            self.rows = (Rows if columns is None else Columns)(f, self.loops, self.bodies)
        step = self.rows.step if isinstance(self.rows, Columns) else 1
        self.plans = plan(self.loops, self._traffic(), SHARE_MULTIPLE, row, tile_bytes, step)
        self.weight = sum(weight(i) for i in self.loops.body)

    def _traffic(self) -> int:
        """Return the bytes that one iteration of the last loop reads and writes."""
        loops, depends = self.loops, self.bodies.depends
        moved = (
            i.buffer for n, i in enumerate(loops.body) if i.buffer is not None and self.last in depends[n]
        )
        return sum(DTYPES[loops.buffers[b].dtype].bytes for b in moved)

    def emit(self, begin: Int, end: Int) -> None:
        """Emit the work of the tiles begin .. end - 1."""
        f, rows = self.f, self.rows
        with shared(f, self.loops, self.plans, begin, end) as parts:
            if isinstance(rows, Columns):
                _each(f, parts[:-2], lambda outer: rows.emit(outer, parts[-2]))
            elif rows is not None:
                _each(f, parts[:-1], rows.emit)
            else:
                _each(f, parts[:-1], lambda outer: _pointwise(f, self.bodies, outer, parts[-1]))


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
