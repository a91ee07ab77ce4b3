"""A product on AMX tiles: the layout of the planes in scratch (see `amx`), and the tiles of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ...llvm.function import Function, Int, Value
from ...llvm.prefetch import LINE_BYTES, unread
from . import amx
from .arithmetic import Arithmetic
from .epilogue import Epilogue, RowTile
from .lhs import Lhs
from .schedules import PANEL

FEW_GROUPS = 3  # of rows, if their number is known only at run time
EmitTile = Callable[[RowTile, Value], None]
EachTile = Callable[[Int, EmitTile], None]


@dataclass(frozen=True)
class Planes:
    """The layout of scratch: sums of chunks, sums of all, planes of a panel, planes of a block of rows; of
    slabs, if there are any, the planes, the sums of a panel's chunks and the sums of all, panel by panel."""

    sums: Value
    totals: Value
    panel: Value
    rows: Value
    end: Value
    slab: Slab | None = None

    @staticmethod
    def behind(f: Function, sums: Value, k: Int, n: Int, block: int, slabs: amx.Slabs | None) -> Planes:
        """Return the layout for sums of `k` steps and blocks of `block` rows that begins at `sums`."""
        row_bytes = f.mul(f.ceildiv(k, amx.STEP), amx.BLOCK)
        totals = f.at(sums, "i8", block * PANEL * 4)
        panel = f.at(sums, "i8", amx.sums_bytes(k, block))
        rows = f.at(panel, "i8", amx.CHUNK // amx.STEP * amx.BLOCK)
        end = f.at(rows, "i8", f.mul(row_bytes, block // amx.GROUP))
        if slabs is None:
            return Planes(sums, totals, panel, rows, end)
        slab = Slab.behind(f, end, slabs)
        columns = f.mul(f.ceildiv(n, PANEL), PANEL)
        return Planes(sums, totals, panel, rows, f.at(slab.totals, "float", f.mul(columns, slabs.rows)), slab)


class Slab(NamedTuple):
    """The addresses of the planes of a slab, the sums of a panel's chunks and the total sums."""

    shape: amx.Slabs
    planes: Value
    sums: Value
    totals: Value

    @staticmethod
    def behind(f: Function, planes: Value, shape: amx.Slabs) -> Slab:
        """Return the layout that begins at `planes`."""
        sums = f.at(planes, "i8", amx.slab_bytes(shape))
        return Slab(shape, planes, sums, f.at(sums, "float", shape.rows * PANEL))


class Steps(NamedTuple):
    """Steps `begin` .. `end` - 1 of sums: the planes of their rows, `group_bytes` for a group; the addresses
    of the sums of their chunks and the total sums; the groups of rows of a block."""

    begin: Int
    end: Int
    planes: Value
    group_bytes: Int
    sums: Value
    totals: Value
    n_groups: int


class OnTiles:
    """Emits tiles of a product of `k` steps, from A's rows `lhs`."""

    def __init__(
        self, f: Function, k: Int, lhs: Lhs, epilogue: Epilogue, planes: Planes, arithmetic: Arithmetic
    ) -> None:
        self.f, self.k, self.lhs, self.epilogue, self.planes = f, k, lhs, epilogue, planes
        self.arithmetic = arithmetic

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """Emit the preparation of a block of `rows` rows before its first tile: their planes."""
        self.lhs.prepare(outer, m0, rows)
        a = self.lhs.at(outer, m0)
        amx.split_rows(self.f, a, self.lhs.stride, rows, self.k, self.planes.rows)

    def multiply(self, tile: RowTile, b: Value) -> None:
        """Emit one tile of the kernel, from its panel at `b`."""
        f, scratch = self.f, self.planes
        n_groups = tile.rows // amx.GROUP if isinstance(tile.rows, int) else FEW_GROUPS
        group_bytes = f.mul(f.ceildiv(self.k, amx.STEP), amx.BLOCK)
        steps = Steps(0, self.k, scratch.rows, group_bytes, scratch.sums, scratch.totals, n_groups)
        self._chunks(tile, b, steps)

    def in_slabs(self, m0: Int, rows: Int, n_panels: Int, each: EachTile) -> None:
        """Emit the tiles of `rows` rows from `m0` on, slab by slab; `each(panel, tile)` emits `tile` for the
        tile of a panel."""
        f, slab = self.f, self.planes.slab
        assert slab is not None
        a = self.lhs.at([], m0)
        with f.loop(0, self.k, slab.shape.steps) as at:
            end = f.minimum(f.add(at.index, slab.shape.steps), self.k)
            count = f.sub(end, at.index)
            amx.split_rows(f, f.at(a, "float", at.index), self.lhs.stride, rows, count, slab.planes)
            group_bytes = f.mul(f.ceildiv(count, amx.STEP), amx.BLOCK)
            with f.loop(0, n_panels) as panel:
                totals = f.at(slab.totals, "float", f.mul(panel.index, slab.shape.rows * PANEL))
                given = (slab.planes, group_bytes, slab.sums, totals, slab.shape.rows // amx.GROUP)
                steps = Steps(at.index, end, *given)
                each(panel.index, partial(self._chunks, steps=steps))

    def _chunks(self, tile: RowTile, b: Value, steps: Steps) -> None:
        """Emit `steps` of a tile: chunks of k of its panel at `b`, each for all groups of 32 rows.

        A group's epilogue follows its last chunk: its memory accesses overlap with the next group's products.
        Each group prefetches its share of the next chunk.
        """
        f, scratch, element = self.f, self.planes, self.arithmetic.element
        lines, block = self._lines(steps.n_groups), amx.block_of(f, self.k)
        with f.loop(steps.begin, steps.end, amx.CHUNK) as chunk:
            done = chunk.index
            k = f.minimum(amx.CHUNK, f.sub(steps.end, done))
            is_last = f.less(f.sub(self.k, done), amx.CHUNK + 1)
            source = f.at(b, element, f.mul(done, PANEL))
            amx.split_panel(f, source, k, scratch.panel, self.arithmetic)
            before = f.mul(f.sub(done, steps.begin), amx.BLOCK // amx.STEP)
            chunk_planes = f.at(steps.planes, "i8", before)
            with f.loop(0, f.ceildiv(tile.rows, amx.GROUP)) as group:
                sums = f.at(steps.sums, "float", f.mul(group.index, amx.GROUP * PANEL))
                planes = f.at(chunk_planes, "i8", f.mul(group.index, steps.group_bytes))
                share = f.mul(group.index, lines * (amx.CHUNK // amx.STEP) * LINE_BYTES)
                ahead = unread(f, unread(f, source, amx.CHUNK * PANEL, element), share, "i8")
                begin = f.mul(group.index, amx.GROUP)
                count = f.minimum(amx.GROUP, f.sub(tile.rows, begin))
                place = (planes, scratch.panel, f.urem(done, block), k, sums, ahead, self.arithmetic, lines)
                f.either(
                    f.is_less(count, amx.GROUP // 2 + 1),
                    partial(amx.multiply, f, 1, *place),
                    partial(amx.multiply, f, 2, *place),
                )
                totals = f.at(steps.totals, "float", f.mul(group.index, amx.GROUP * PANEL))
                amx.add_block(f, self.k, done, sums, totals)
                with f.when(is_last):
                    group_tile = tile._replace(m0=f.add(tile.m0, begin), rows=count)
                    self._mend(group_tile, b, sums)
                    self.epilogue.emit(group_tile, sums)

    def _mend(self, tile: RowTile, b: Value, sums: Value) -> None:
        """Recompute by FMAs the rows of sums that are not finite."""
        a = self.lhs.at(tile.batch, tile.m0)
        again, name = amx.by_fmas(self.arithmetic), f"mend{self.arithmetic.suffix}"
        amx.mend(self.f, name, tile.rows, a, self.lhs.stride, b, self.k, sums, again)

    def _lines(self, n_groups: int) -> int:
        """Return the lines that a step prefetches, so that the groups of a block fetch a chunk of B."""
        chunk = amx.CHUNK * PANEL * self.arithmetic.bytes // LINE_BYTES
        return -(-chunk // (max(n_groups, 1) * (amx.CHUNK // amx.STEP)))
