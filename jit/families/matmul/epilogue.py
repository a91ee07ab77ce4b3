"""A matmul's epilogue: the processing of a row tile's sums, and its prefetches.

In an exact kernel it is a part: its code depends neither on the number of rows nor on their tiling, so
kernels for other numbers of rows mostly share it, and it is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...llvm.prefetch import LINE_BYTES, prefetch, unread
from ...loops.bodies import LANES, BodyEmitter, Position, tail_mask
from ...spec import Instr
from ..nest.plan import is_dear
from .arithmetic import VECTOR
from .byte_dots import INTEGERS
from .layouts import layout_of
from .microkernel import Ending
from .schedules import PANEL
from .spec import ProductSpec


class RowTile(NamedTuple):
    """The position of a row tile of a product: `rows` rows from `m0` on, `columns` (None: all) from `n0`
    on."""

    batch: Sequence[Int]
    m0: Int
    rows: Int
    n0: Int
    columns: Int | None = None

    def arguments(self, f: Function) -> list[Value]:
        """Return its position, without its columns, as arguments of a part."""
        return [f.i64(x) for x in (*self.batch, self.m0, self.rows, self.n0)]

    def part(self, f: Function, first: int, columns: int | None) -> RowTile:
        """Return `columns` of its columns from `first` on; None: all of them, which begin there."""
        return self if columns is None else self._replace(n0=f.add(self.n0, first), columns=columns)

    @classmethod
    def of(cls, parameters: Sequence[Value], columns: Int | None = None) -> RowTile:
        """Return the row tile whose `arguments` a part has as `parameters`."""
        *batch, m0, rows, n0 = parameters
        return cls(batch, m0, rows, n0, columns)


class Epilogue:
    """The epilogue of `spec` on tiles of `width` columns. `bodies`: its emitter in the kernel's function."""

    def __init__(
        self, f: Function, spec: ProductSpec, sizes: Sequence[Int], width: int, bodies: BodyEmitter
    ) -> None:
        self.f, self.spec, self.sizes, self.width = f, spec, sizes, width
        self.here = _Rows(f, spec, bodies, width)
        self.is_part = all(isinstance(size, int) for size in sizes)
        self.is_simple = self.is_part and not any(map(_is_dear_or_gathers, spec.product.epilogue))

    def emit(self, tile: RowTile, sums: Value, stride: Int | None = None) -> None:
        """Emit the epilogue of a row tile, whose sums are in scratch at `sums`, `stride` (None: width)
        apart."""
        step = self.width if stride is None else stride
        if not self.is_part or isinstance(step, Value):
            self.here.emit(tile, sums, step)
            return
        columns = tile.columns
        passed = [sums] if columns is None or isinstance(columns, int) else [sums, columns]

        def define(r: _Rows, place: RowTile, given: list[Value]) -> None:
            there = given[1] if len(given) > 1 else columns
            r.emit(place._replace(columns=there), given[0], step)

        shape = "x" if len(passed) > 1 else columns or "all"
        self._call(f"epilogue_{shape}_{step}", define, tile, passed)

    def ending(self, tile: RowTile) -> Ending:
        """Return the epilogue of a row tile of known columns as a micro-kernel's ending, if it
        `is_simple`."""
        columns = tile.columns
        assert not isinstance(columns, Value)

        def emit(g: Function, given: Sequence[Value], sums: list[list[Value]]) -> None:
            buffers = self.spec.buffers
            addresses = [g.load("ptr", g.at(given[0], "ptr", i), align=8) for i in range(len(buffers))]
            bodies = BodyEmitter(
                g, self.spec.product.epilogue, buffers, self.sizes, self.here.n_loop, addresses=addresses
            )
            _Rows(g, self.spec, bodies, self.width).emit_sums(RowTile.of(given[1:], columns), sums)

        name = "ended" if columns is None else f"ended_{columns}"
        return Ending([self.f.params[0], *tile.arguments(self.f)], emit, name=name)

    def prefetch(self, tile: RowTile) -> None:
        """Prefetch the lines that the epilogue of a row tile loads and stores, while its sums are
        computed."""
        if not self.here.streamed:
            return
        if self.is_part:
            self._call("soon", lambda r, place, _: r.prefetch(place), tile, [])
        else:
            self.here.prefetch(tile)

    def _call(
        self,
        name: str,
        define: Callable[[_Rows, RowTile, list[Value]], None],
        tile: RowTile,
        passed: Sequence[Value],
    ) -> None:
        """Call a part with the kernel's own first parameters, a row tile's position and `passed`."""
        f = self.f
        place = tile.arguments(f)

        def body(g: Function) -> None:
            tile_of_part = RowTile.of(g.params[3 : 3 + len(place)])
            bodies = BodyEmitter(
                g, self.spec.product.epilogue, self.spec.buffers, self.sizes, self.here.n_loop
            )
            there = _Rows(g, self.spec, bodies, self.width)
            define(there, tile_of_part, g.params[3 + len(place) :])

        f.call_part(name, body, *f.params[:3], *place, *passed)


class _Rows:
    """Emits rows of an epilogue into one function, the kernel's or a part's."""

    def __init__(self, f: Function, spec: ProductSpec, bodies: BodyEmitter, width: int) -> None:
        self.f, self.spec, self.bodies, self.width = f, spec, bodies, width
        self.m_loop = len(spec.product.batch)
        self.n_loop = self.m_loop + 1
        self.streamed = [
            i
            for i, instr in enumerate(spec.product.epilogue)
            if instr.op in ("load", "store")
            and {self.m_loop, self.n_loop} <= {place.loop for place in instr.index}
            and all(place.value is None for place in instr.index)
            and instr.index[-1].loop == self.n_loop
        ]

    def prefetch(self, tile: RowTile) -> None:
        """Prefetch operands that depend on the row and vary along the columns."""
        f = self.f
        with f.loop(0, tile.rows) as r:
            at = Position((*tile.batch, f.add(tile.m0, r.index), tile.n0))
            for i in self.streamed:
                buffer = self.spec.product.epilogue[i].buffer
                assert buffer is not None
                dtype = DTYPES[self.spec.buffers[buffer].dtype]
                first = unread(f, self.bodies.addresses[buffer], self.bodies.offset(i, at), dtype.memory)
                for byte in range(0, self.width * dtype.bytes, LINE_BYTES):
                    prefetch(f, unread(f, first, byte, "i8"), 3)

    def emit(self, tile: RowTile, sums: Value, stride: Int) -> None:
        """Emit the epilogue of a row tile: by whole rows, by two vectors if it is expensive, or masked."""
        f, n0, columns = self.f, tile.n0, tile.columns
        if columns is None:
            together = PANEL if any(map(is_dear, self.spec.product.epilogue)) else self.width
            with f.loop(0, self.width, together) as part:
                places = [f.add(part.index, at) for at in range(0, together, LANES)]
                self._vectors(tile, [(f.add(n0, at), at, None) for at in places], sums, stride)
            return
        if isinstance(columns, int) and columns <= PANEL:
            vectors = [(f.add(n0, at), at, self._missing(columns - at)) for at in range(0, columns, LANES)]
            self._vectors(tile, vectors, sums, stride)
            return
        with f.loop(0, columns, LANES) as v:
            mask = tail_mask(f, f.sub(columns, v.index))
            self._vectors(tile, [(f.add(n0, v.index), v.index, mask)], sums, stride)

    def _missing(self, columns: int) -> Value | None:
        """Return the mask of a vector with `columns` real columns, None if it is whole."""
        return tail_mask(self.f, columns) if columns < LANES else None

    def _vectors(
        self,
        tile: RowTile,
        vectors: Sequence[tuple[Int, Int, Value | None]],
        sums: Value,
        stride: Int,
    ) -> None:
        """Emit the epilogue of a row tile for `vectors`: (first column, its position in the tile, mask)."""
        f = self.f
        given = [self._hoisted(tile, n, mask) for n, _, mask in vectors]
        with f.loop(0, tile.rows) as r:
            line = f.at(sums, "float", f.mul(r.index, stride))
            for (n, place, mask), known in zip(vectors, given, strict=True):
                acc = f.load(VECTOR, f.at(line, "float", place), align=4)
                self._vector(tile, r.index, n, mask, known, acc)

    def emit_sums(self, tile: RowTile, sums: list[list[Value]]) -> None:
        """Emit the epilogue of a row tile whose sums, by row and vector, are in registers."""
        firsts = range(0, LANES * len(sums[0]), LANES)
        columns = firsts.stop if tile.columns is None else tile.columns
        assert isinstance(columns, int)
        places = [(self.f.add(tile.n0, at), self._missing(columns - at)) for at in firsts]
        given = [self._hoisted(tile, n, mask) for n, mask in places]
        for r, row in enumerate(sums):
            for (n, mask), known, acc in zip(places, given, row, strict=True):
                self._vector(tile, r, n, mask, known, acc)

    def _hoisted(self, tile: RowTile, n: Int, mask: Value | None) -> dict[int, Value]:
        """Emit the row-invariant part for the vector from column `n` on."""
        bodies = self.bodies
        return bodies.emit(bodies.hoistable(self.m_loop), Position((*tile.batch, 0, n), mask))

    def _vector(
        self, tile: RowTile, r: Int, n: Int, mask: Value | None, known: dict[int, Value], acc: Value
    ) -> None:
        """Emit the rest of the epilogue of a vector `acc` of sums of the tile's row `r`."""
        bodies = self.bodies
        if layout_of(self.spec).sums == "i32":
            acc = self.f.op(INTEGERS, f"bitcast {VECTOR} {acc.name} to {INTEGERS}")
        at = Position((*tile.batch, self.f.add(tile.m0, r), n), mask)
        bodies.emit([i for i in bodies.ids if i not in known], at, known, acc)


def _is_dear_or_gathers(instr: Instr) -> bool:
    """Whether the code of `instr` is long, or may report errors."""
    return is_dear(instr) or any(place.value is not None for place in instr.index)
