"""A product on AMX tiles: where scratch holds the planes (see `amx`), and the tiles of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...llvm.function import Function, Int, Value
from ...llvm.prefetch import unread
from . import amx
from .arithmetic import Arithmetic
from .epilogue import Epilogue, RowTile
from .lhs import Lhs
from .microkernel import PANEL


@dataclass(frozen=True)
class Planes:
    """The layout of scratch: sums of chunks, sums of all, planes of a panel, planes of a block of rows."""

    sums: Value
    totals: Value
    panel: Value
    rows: Value
    end: Value

    @staticmethod
    def behind(f: Function, sums: Value, k: Int, block: int) -> Planes:
        """Return the layout for sums of `k` steps and blocks of `block` rows that begins at `sums`."""
        row_bytes = f.mul(f.ceildiv(k, amx.STEP), amx.BLOCK)
        totals = f.at(sums, "i8", block * PANEL * 4)
        panel = f.at(sums, "i8", amx.sums_bytes(k, block))
        rows = f.at(panel, "i8", amx.CHUNK // amx.STEP * amx.BLOCK)
        return Planes(sums, totals, panel, rows, f.at(rows, "i8", f.mul(row_bytes, block // amx.GROUP)))


class OnTiles:
    """Emits tiles of a product of `k` steps, from A's rows `lhs`."""

    def __init__(
        self, f: Function, k: Int, lhs: Lhs, epilogue: Epilogue, planes: Planes, arithmetic: Arithmetic
    ) -> None:
        self.f, self.k, self.lhs, self.epilogue, self.planes = f, k, lhs, epilogue, planes
        self.arithmetic = arithmetic

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """Emit what a block of `rows` rows needs before its first tile: their planes."""
        self.lhs.prepare(outer, m0, rows)
        a = self.lhs.at(outer, m0)
        amx.split_rows(self.f, a, self.lhs.stride, rows, self.k, self.planes.rows)

    def multiply(self, tile: RowTile, b: Value) -> None:
        """Emit one tile of the kernel: chunks of k of its panel at `b`, each for all groups of 32 rows.

        A group's epilogue follows its last chunk: its memory accesses overlap with the next group's products.
        """
        f, scratch, element = self.f, self.planes, self.arithmetic.element
        group_bytes, block = f.mul(f.ceildiv(self.k, amx.STEP), amx.BLOCK), amx.block_of(f, self.k)
        with f.loop(0, self.k, amx.CHUNK) as chunk:
            done = chunk.index
            k = f.minimum(amx.CHUNK, f.sub(self.k, done))
            is_last = f.less(f.sub(self.k, done), amx.CHUNK + 1)
            source = f.at(b, element, f.mul(done, PANEL))
            amx.split_panel(f, source, k, scratch.panel, self.arithmetic)
            chunk_planes = f.at(scratch.rows, "i8", f.mul(done, amx.BLOCK // amx.STEP))
            with f.loop(0, f.ceildiv(tile.rows, amx.GROUP)) as group:
                sums = f.at(scratch.sums, "float", f.mul(group.index, amx.GROUP * PANEL))
                planes = f.at(chunk_planes, "i8", f.mul(group.index, group_bytes))
                half = f.mul(group.index, amx.CHUNK * PANEL // 2)
                following = unread(f, source, f.add(amx.CHUNK * PANEL, half), element)
                ahead = self._first_two(group.index, following)
                begin = f.mul(group.index, amx.GROUP)
                count = f.minimum(amx.GROUP, f.sub(tile.rows, begin))
                place = (planes, scratch.panel, f.urem(done, block), k, sums, ahead, self.arithmetic)
                f.either(
                    f.is_less(count, amx.GROUP // 2 + 1),
                    partial(amx.multiply, f, 1, *place),
                    partial(amx.multiply, f, 2, *place),
                )
                totals = f.at(scratch.totals, "float", f.mul(group.index, amx.GROUP * PANEL))
                amx.add_block(f, self.k, done, sums, totals)
                with f.when(is_last):
                    group_tile = tile._replace(m0=f.add(tile.m0, begin), rows=count)
                    self._mend(group_tile, b, sums)
                    self.epilogue.emit(group_tile, sums)

    def _mend(self, tile: RowTile, b: Value, sums: Value) -> None:
        """Compute by FMAs again the rows of sums that are not finite."""
        a = self.lhs.at(tile.batch, tile.m0)
        again, name = amx.by_fmas(self.arithmetic), f"mend{self.arithmetic.suffix}"
        amx.mend(self.f, name, tile.rows, a, self.lhs.stride, b, self.k, sums, again)

    def _first_two(self, group: Value, ahead: Value) -> Value:
        """Return `ahead` for the first two groups, which prefetch half a chunk each, else what is near."""
        f = self.f
        return f.select(f.less(group, 2), ahead, self.planes.panel)
