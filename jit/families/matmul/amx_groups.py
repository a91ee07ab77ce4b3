"""Weights of small integers with scales of groups (see `grouped`) on AMX tiles.

The integers of a group are copied in the layout of the tiles: as bf16, which hold them exactly, against the
three planes of an f32 (`amx`), or as bytes against bytes (`amx_bytes`). The tiles leave a group's sums of 32
x 32 in scratch; times the scales they are added to those of the previous groups. If A is f32, a row of a
panel that is not all finite, or all tiny, is recomputed by FMAs, as on other tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...llvm.function import Function, Int, Value
from ...llvm.prefetch import prefetch, unread
from ...loops.bodies import LANES
from . import amx, amx_bytes
from .amx import GROUP, tile_number
from .arithmetic import F32, VECTOR, Arithmetic
from .epilogue import Epilogue, RowTile
from .grouped import FOUR, Groups, GroupSums, sums_bytes
from .lhs import Lhs
from .schedules import PANEL
from .sums import GROUP as MAX_GROUPS

ROW = 4 * PANEL  # bytes of a row of sums
PART = GROUP * ROW  # of a group's sums
UNROLL = 4  # rows of them that are scaled in an iteration


@dataclass(frozen=True)
class Places:
    """The layout of scratch: a group's sums, those of all groups, the copy of a group, A's rows."""

    part: Value
    sums: Value
    panel: Value
    rows: Value
    end: Value

    @staticmethod
    def behind(f: Function, start: Value, groups: Groups, block: int) -> Places:
        """Return the layout for blocks of `block` rows that begins at `start`."""
        sizes = (PART, sums_bytes(groups, block, PANEL), _panel_bytes(groups), _rows_bytes(groups, block))
        places = [start]
        for size in sizes:
            places.append(f.at(places[-1], "i8", size))
        return Places(*places)


def _panel_bytes(groups: Groups) -> int:
    return groups.rows * ROW + ROW if groups.together == FOUR else groups.steps // amx.STEP * amx.PLANE


def _rows_bytes(groups: Groups, block: int) -> int:
    k = groups.steps * groups.count
    if groups.together == FOUR:
        return block // GROUP * -(-k // (FOUR * amx_bytes.STEP)) * amx_bytes.BLOCK
    return block // GROUP * (k // amx.STEP) * amx.BLOCK


def scratch_bytes(groups: Groups, block: int) -> int:
    """Return the bytes of scratch for blocks of `block` rows."""
    return PART + sums_bytes(groups, block, PANEL) + _panel_bytes(groups) + _rows_bytes(groups, block)


def configure(f: Function, groups: Groups) -> None:
    """Give the tiles as many steps as a group has at a time."""
    amx.configure(f, min(groups.rows, LANES) if groups.together == FOUR else LANES)


class GroupsOnTiles:
    """Emits tiles of a product with a weight in groups, from A's rows `lhs`."""

    def __init__(self, f: Function, groups: Groups, lhs: Lhs, epilogue: Epilogue, places: Places) -> None:
        self.f, self.groups, self.lhs, self.epilogue, self.places = f, groups, lhs, epilogue, places
        self.k = groups.rows * groups.count
        self.has_bytes = groups.together == FOUR

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """Emit the preparation of a block of `rows` rows before its first tile: their copy or planes."""
        self.lhs.prepare(outer, m0, rows)
        copy = amx_bytes.copy_rows if self.has_bytes else amx.split_rows
        copy(self.f, self.lhs.at(outer, m0), self.lhs.stride, rows, self.k, self.places.rows)

    def multiply(self, tile: RowTile, b: Value) -> None:
        """Emit one tile of the kernel: the groups of its panel at `b`, each for all blocks of 32 rows."""
        f, places, groups = self.f, self.places, self.groups
        columns, n_blocks = GroupSums(f, groups, 1, PANEL), f.ceildiv(tile.rows, GROUP)
        floats = f.mul(n_blocks, GROUP * PANEL)
        totals = columns.totals(places.sums, floats)

        def group(number: Int) -> None:
            here = f.at(b, "i8", f.mul(number, groups.bytes))
            self._copy(columns, here)
            scales = f.at(here, "i8", groups.bytes - ROW)
            with f.loop(0, n_blocks) as block:
                self._add(tile, number, block.index, scales)

        columns.add_up(places.sums, totals, floats, group)
        with f.loop(0, n_blocks) as block:
            begin = f.mul(block.index, GROUP)
            count = f.minimum(GROUP, f.sub(tile.rows, begin))
            found = f.at(totals, "i8", f.mul(block.index, PART))
            part = tile._replace(m0=f.add(tile.m0, begin), rows=count)
            if not self.has_bytes:
                self._mend(part, b, found)
            self.epilogue.emit(part, found)

    def _copy(self, columns: GroupSums, b: Value) -> None:
        """Emit the copy of the group at `b` in the tiles' layout; the next group is prefetched."""
        f, groups = self.f, self.groups
        for line in range(0, groups.bytes, 64):
            prefetch(f, unread(f, b, 2 * groups.bytes + line, "i8"), 2)
        if self.has_bytes:
            columns.copy(b, self.places.panel)
        else:
            amx.split_panel(f, b, groups.rows, self.places.panel, groups.arithmetic, groups.row_bytes)

    def _add(self, tile: RowTile, number: Int, block: Int, scales: Value) -> None:
        """Emit group `number` of 32 rows: its sums times the scales are added to the previous ones."""
        f = self.f
        sums = f.at(self.places.sums, "i8", f.mul(block, PART))
        count = f.minimum(GROUP, f.sub(tile.rows, f.mul(block, GROUP)))

        def rows(halves: int) -> None:
            self._products(halves, number, block)
            name = f"add_scaled_{halves}"
            define = partial(_define_scaled, halves=halves, arithmetic=self.groups.of_copies)
            f.call_part(name, define, self.places.part, scales, sums)

        f.either(f.is_less(count, GROUP // 2 + 1), partial(rows, 1), partial(rows, 2))

    def _products(self, halves: int, number: Int, block: Int) -> None:
        """Emit the sums of a group of `halves` times 16 rows."""
        f, groups, places = self.f, self.groups, self.places
        if not self.has_bytes:
            first = f.add(f.mul(block, self.k // amx.STEP), f.mul(number, groups.rows // amx.STEP))
            rows = f.at(places.rows, "i8", f.mul(first, amx.BLOCK))
            amx.multiply(
                f, halves, rows, places.panel, 0, groups.rows, places.part, places.panel, groups.arithmetic, 0
            )
            return
        # A step of the tiles of A's copy has LANES rows of B's, a group of 32 steps half as many.
        n_steps, per_step = -(-self.k // amx_bytes.STEP), amx_bytes.STEP
        first = f.mul(number, groups.rows)
        step, place = f.udiv(first, per_step), f.urem(first, per_step)
        behind = n_steps * per_step - self.k  # rows of the last step begin this many steps later
        if behind:
            place = f.add(place, f.select(f.less(n_steps - 2, step), behind, 0))
        rows = f.at(places.rows, "i8", f.mul(f.add(f.mul(block, n_steps), step), amx_bytes.BLOCK))
        rows = f.at(rows, "i8", f.mul(place, FOUR))
        define = partial(_define_bytes, halves=halves, rows=groups.rows)
        f.call_part(f"group_of_bytes_{halves}", define, rows, places.panel, places.part)

    def _mend(self, tile: RowTile, b: Value, sums: Value) -> None:
        """Recompute by FMAs the rows of sums that are not finite, or tiny."""
        a, groups = self.lhs.at(tile.batch, tile.m0), self.groups

        def again(g: Function, line: Value, b: Value, k: Value, sums: Value, part: Value) -> None:
            columns = GroupSums(g, groups, 1, PANEL)
            kernels = columns.kernels("grouped_again", 0, 2)
            chains = sums if groups.count <= MAX_GROUPS else part

            def group(number: Int) -> None:
                left = g.at(line, "float", g.mul(number, groups.rows))
                right = g.at(b, "i8", g.mul(number, groups.bytes))
                kernels.call(1, left, right, chains, right)

            columns.add_up(chains, sums, PANEL, group)

        amx.mend(
            self.f, "mend_groups", tile.rows, a, self.lhs.stride, b, self.k, sums, again, self.places.part
        )


def _define_scaled(g: Function, halves: int, arithmetic: Arithmetic) -> None:
    """Add a group's sums times the scales of their columns to `sums`."""
    part, scales_at, sums = g.params
    scales = [g.load(VECTOR, g.at(scales_at, "float", LANES * v), align=4) for v in range(PANEL // LANES)]
    with g.loop(0, LANES * halves, UNROLL) as row:
        for r in range(UNROLL):
            for v, scale in enumerate(scales):
                place = g.add(g.mul(g.add(row.index, r), PANEL), LANES * v)
                there = g.at(sums, "float", place)
                found = arithmetic.total(g, g.load(VECTOR, g.at(part, "float", place), align=4))
                total = F32.multiply_add(g, found, scale, g.load(VECTOR, there, align=4))
                g.store(total, there, align=4)


def _define_bytes(g: Function, halves: int, rows: int) -> None:
    """Leave the sums of `halves` times 16 rows of bytes and a group of `rows` rows of bytes in `part`."""
    a, b, part = g.params
    numbers, width = range(2 * halves), min(rows, LANES)
    of_a, of_b = Value("i64", str(FOUR * amx_bytes.STEP)), Value("i64", str(ROW))
    for n in numbers:
        g.call("void", "llvm.x86.tilezero", tile_number(n))
    for first in range(0, rows, width):
        right = g.at(b, "i8", first * ROW)
        left = g.at(a, "i8", first // width * amx_bytes.BLOCK)
        for n in range(2):
            g.call("void", "llvm.x86.tileloadd64", tile_number(6 + n), g.at(right, "i8", 4 * LANES * n), of_b)
        for half in range(halves):
            place = g.at(left, "i8", half * amx_bytes.BLOCK // 2)
            g.call("void", "llvm.x86.tileloadd64", tile_number(4 + half), place, of_a)
            for n in range(2):
                g.call("void", "llvm.x86.tdpbusd", *map(tile_number, (2 * half + n, 4 + half, 6 + n)))
    for n in numbers:
        place = g.at(part, "i8", n // 2 * LANES * ROW + n % 2 * 4 * LANES)
        g.call("void", "llvm.x86.tilestored64", tile_number(n), place, Value("i64", str(ROW)))
