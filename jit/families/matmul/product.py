"""A product's tiles in one function: its operands, its scratch, and the interface for variants.

A tile of the kernel is a block of rows times the columns of one micro-kernel: one or two panels of PANEL.
Inside it (`row_tiles`) a micro-kernel leaves a row tile's sums in scratch (first-level cache), and the
epilogue reads them from there, so its instructions appear once per kernel rather than once per accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...llvm.abi import RT_PREPARED, RT_SCRATCH
from ...llvm.function import Function, Int, Value
from ...loops.bodies import BodyEmitter
from ...spec import Term, Terms
from . import amx, amx_groups, gemv, grouped
from .amx_bytes import scratch_bytes
from .amx_bytes_tiles import Places
from .amx_tiles import Planes
from .epilogue import Epilogue, RowTile
from .lhs import Lhs
from .microkernel import Ending
from .problem import Problem
from .rhs import InRows, KernelTile, Panels, rhs_of
from .row_tiles import Finish, RowTiles
from .schedules import PANEL
from .strides import Strides
from .sums import BLOCK

SHORT = 128  # steps of sums for which going through scratch costs a tenth of the time; code is longer without
EmitTile = Callable[[KernelTile], None]


@dataclass(frozen=True)
class ScratchLayout:
    """The layout of a thread's scratch: sums; planes of AMX tiles; a copy of a tile's columns of B at
    `packed`, followed by rows of A. `packed` is None if there is neither."""

    sums: Value
    sums_bytes: int
    packed: Value | None
    planes: Planes | Places | amx_groups.Places | None

    @staticmethod
    def of(f: Function, problem: Problem, row_tiles: RowTiles) -> ScratchLayout:
        """Return the layout for `problem`; call in the entry block."""
        sums_bytes = row_tiles.sums_bytes(in_panels=problem.in_panels)
        if problem.grouped is not None:
            sums_bytes = grouped.scratch_bytes(problem.grouped, problem.block, problem.width)
        if gemv.fits(problem):
            sums_bytes = max(sums_bytes, gemv.sums_bytes(problem))
        sums = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)
        packed = planes = None
        if problem.has_copy or problem.prepares_rows:
            # Not in other kernels: their parts would then differ by the number of rows.
            packed = f.at(sums, "i8", sums_bytes)
        if problem.has_tiles:
            planes = _planes(f, sums, problem)
            packed = planes.end
        return ScratchLayout(sums, sums_bytes, packed, planes)

    def behind_copy(self, f: Function, problem: Problem) -> Value:
        """Return the address after the copy of a tile's columns of B, where rows of A are prepared."""
        assert self.packed is not None
        return f.at(
            self.packed, "float", f.mul(problem.copied_steps, problem.width) if problem.has_copy else 0
        )

    def terms(self, problem: Problem) -> list[Term]:
        """Return the bytes, without those of A's rows (see `CodeObject`)."""
        found: list[Term] = [(self.sums_bytes, ())]
        if problem.has_copy:
            steps = problem.spec.product.k if problem.copied_steps is problem.k else BLOCK
            found.append((problem.width * 4, (steps,)))
        if problem.has_tiles:
            found += _terms_of_planes(problem)
        return found


def _planes(f: Function, sums: Value, problem: Problem) -> Planes | Places | amx_groups.Places:
    if problem.grouped is not None:
        return amx_groups.Places.behind(f, sums, problem.grouped, problem.block)
    if problem.has_dots:
        assert isinstance(problem.k, int)
        return Places.behind(f, sums, problem.k, problem.block)
    return Planes.behind(f, sums, problem.k, problem.n, problem.block, problem.slabs)


def _terms_of_planes(problem: Problem) -> Terms:
    if problem.grouped is not None:
        return ((amx_groups.scratch_bytes(problem.grouped, problem.block), ()),)
    if problem.has_dots:
        assert isinstance(problem.k, int)
        return ((scratch_bytes(problem.k, problem.block), ()),)
    return amx.scratch_of(problem.spec, problem.block, problem.slabs)


@dataclass(frozen=True)
class Emission:
    """One function in which a problem's tiles are emitted: the addresses of B and scratch, and the
    epilogue."""

    f: Function
    problem: Problem
    bodies: BodyEmitter
    rhs: Panels | InRows
    row_tiles: RowTiles
    scratch: ScratchLayout
    epilogue: Epilogue

    @staticmethod
    def open(f: Function, problem: Problem) -> Emission:
        """Emit the addresses and strides of a kernel or part; call in the entry block."""
        spec, sizes = problem.spec, problem.sizes
        bodies = BodyEmitter(f, spec.product.epilogue, spec.buffers, sizes, vector_loop=problem.n_loop)
        rhs = rhs_of(f, problem, bodies.addresses)
        row_tiles = RowTiles(
            f, problem.m, problem.block, problem.k, problem.width, problem.schedule, problem.arithmetic,
            problem.pieces, problem.spec.product.chain,
        )  # fmt: skip
        scratch = ScratchLayout.of(f, problem, row_tiles)
        epilogue = Epilogue(f, spec, sizes, problem.width, bodies)
        return Emission(f, problem, bodies, rhs, row_tiles, scratch, epilogue)

    def by_columns(self, n0: Int, tile: Callable[[Int | None], None]) -> None:
        """Emit `tile(columns)` for the tile whose columns begin at `n0`: None if it is whole, the number of
        columns if it is the last."""
        f, n, width = self.f, self.problem.n, self.problem.width
        narrow = isinstance(n, int) and n < width
        is_partial: Value | bool = narrow
        left: Int = n if narrow else f.sub(n, n0)
        if not narrow and not (isinstance(n, int) and n % width == 0):
            is_partial = f.less(left, width)
            left = n % width if isinstance(n, int) else left
        f.either(is_partial, lambda: tile(left), lambda: tile(None))

    def starts_block(self, tile: Value, panel: Int) -> Value | bool:
        """Whether `tile` is this thread's first that reads its block of rows, and so prepares them in
        scratch. Call once for a tile."""
        f = self.f
        if isinstance(panel, int):
            return True
        block, place = f.i64(f.sub(tile, panel)), f.at(f.params[2], "i8", RT_PREPARED)
        prepared = f.load("i64", place, align=8)
        f.store(block, place, align=8)
        return f.op("i1", f"icmp ne i64 {prepared.name}, {block.name}")

    def ends_in_registers(self, columns: Int | None) -> bool:
        """Whether the epilogue of a row tile of `columns` (None: all) reads its sums from registers."""
        k = self.problem.k
        is_short = isinstance(k, int) and (k <= SHORT or self.problem.schedule.keeps_totals)
        return is_short and not isinstance(columns, Value) and self.epilogue.is_simple

    def copy(self, b: Value, columns: Int | None) -> Value:
        """Copy a tile's columns of B at `b` to scratch; return the address."""
        assert self.scratch.packed is not None
        return self.rhs.copy(b, columns, self.scratch.packed)


@dataclass(frozen=True)
class Product:
    """The tiles of a product of A's rows `lhs` with B. `strides`: of micro-kernels that read B in panels."""

    emission: Emission
    lhs: Lhs
    strides: Strides

    @staticmethod
    def of(emission: Emission, lhs: Lhs) -> Product:
        """Return the product; call in the entry block."""
        problem = emission.problem
        panel = emission.f.mul(problem.k, PANEL)
        b_panel = panel if problem.width > PANEL else 0
        strides = Strides(0, PANEL, problem.width, problem.k, b_panel=b_panel, is_shared=True)
        return Product(emission, lhs, lhs.of(strides))

    def rows_strides(self, step: Int) -> Strides:
        """Return the strides of micro-kernels that read rows of B, `step` elements apart."""
        problem = self.emission.problem
        return self.lhs.of(Strides(0, step, problem.width, problem.k))

    def each_tile(
        self, begin: Int, prepare: Callable[[Sequence[Int], Int, Int], None] | None, tile: EmitTile
    ) -> None:
        """Emit the loop over the kernel's tiles from `begin` on; `prepare(outer, m0, rows)` comes before the
        first one of a block of rows."""
        f, emission, problem = self.emission.f, self.emission, self.emission.problem
        with f.loop(begin, f.params[4]) as at:
            counts = [f.ceildiv(problem.m, problem.block), f.ceildiv(problem.n, problem.width)]
            outer_sizes = [problem.groups, *problem.batch] if problem.groups else problem.batch
            *outer, m_block, panel = f.unravel(at.index, [*outer_sizes, *counts][1:])
            m0, n0 = f.mul(m_block, problem.block), f.mul(panel, problem.width)
            rows = problem.m if problem.is_one_block else f.minimum(problem.block, f.sub(problem.m, m0))
            if prepare is not None:
                given = (outer, m0, rows)
                f.either(emission.starts_block(at.index, panel), lambda: prepare(*given), lambda: None)
            self.tile(outer, m0, rows, panel, n0, tile)

    def tile(self, outer: Sequence[Int], m0: Int, rows: Int, panel: Int, n0: Int, tile: EmitTile) -> None:
        """Emit `tile` for `rows` rows from `m0` on and the columns from `n0` on of a group, which the tile
        counts through all groups."""
        f, problem = self.emission.f, self.emission.problem
        batch, column, group = outer, n0, None
        if problem.groups:
            first, *batch = outer
            group = first if problem.groups > 1 else 0
            column = f.add(n0, f.mul(group, problem.n))

        def emit(columns: Int | None) -> None:
            tile(KernelTile(RowTile(batch, m0, rows, column, columns), panel, group))

        self.emission.by_columns(n0, emit)

    def finish(self, tile: RowTile) -> Finish:
        """Return the finish of the row tiles of `tile`: its epilogue."""
        f, epilogue = self.emission.f, self.emission.epilogue

        def rows(begin: Int, count: Int) -> RowTile:
            return tile._replace(m0=f.add(tile.m0, begin), rows=count)

        def done(begin: Int, count: Int, sums: Value) -> None:
            epilogue.emit(rows(begin, count), sums)

        def soon(begin: Int, count: Int) -> None:
            if tile.columns is None:
                epilogue.prefetch(rows(begin, count))

        def ending(begin: Int, count: Int, first: int, columns: int | None) -> Ending:
            return epilogue.ending(rows(begin, count).part(f, first, columns))

        return Finish(done, soon, ending if self.emission.ends_in_registers(tile.columns) else None)
