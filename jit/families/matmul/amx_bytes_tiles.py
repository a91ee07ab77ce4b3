"""A product of bytes on AMX tiles: what scratch holds (see `amx_bytes`), and the tiles of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...llvm.function import Function, Int, Value
from . import amx_bytes
from .amx import GROUP
from .amx_bytes import BLOCK, CHUNK, COPIED, MAX_ROW_BYTES, ROW_BYTES, STEP, Rows
from .epilogue import Epilogue, RowTile
from .lhs import Lhs


@dataclass(frozen=True)
class Places:
    """The layout of scratch: sums, A's rows, what is behind."""

    sums: Value
    rows: Value
    end: Value

    @staticmethod
    def behind(f: Function, sums: Value, k: int, block: int) -> Places:
        """Return the layout for blocks of `block` rows of `k` steps that begins at `sums`."""
        rows = f.at(sums, "i8", block * ROW_BYTES)
        return Places(sums, rows, f.at(sums, "i8", amx_bytes.scratch_bytes(k, block)))


class BytesOnTiles:
    """Emits tiles of a product of `k` steps, from A's rows `lhs`."""

    def __init__(self, f: Function, k: int, lhs: Lhs, epilogue: Epilogue, places: Places) -> None:
        self.f, self.k, self.lhs, self.epilogue, self.places = f, k, lhs, epilogue, places
        is_short = isinstance(lhs.stride, int) and 4 * lhs.stride <= MAX_ROW_BYTES
        self.is_copied = not (lhs.has_whole_groups and is_short and k % STEP == 0)
        self.lie = COPIED if self.is_copied else Rows(f.mul(4, lhs.stride), 4 * STEP)

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """Emit what a block of `rows` rows needs before its first tile: their copy."""
        self.lhs.prepare(outer, m0, rows)
        if self.is_copied:
            source = self.lhs.at(outer, m0)
            amx_bytes.copy_rows(self.f, source, self.lhs.stride, rows, self.k, self.places.rows)

    def multiply(self, tile: RowTile, b: Value) -> None:
        """Emit one tile of the kernel: chunks of its panel at `b`, each for all groups of 32 rows.

        A group's epilogue follows its last chunk.
        """
        f, places, n_steps, lie = self.f, self.places, -(-self.k // STEP), self.lie
        first_row = places.rows if self.is_copied else self.lhs.at(tile.batch, tile.m0)
        group_bytes = n_steps * BLOCK if self.is_copied else f.mul(GROUP, lie.row)
        with f.loop(0, n_steps, CHUNK) as chunk:
            first, end = chunk.index, f.minimum(f.add(chunk.index, CHUNK), n_steps)
            with f.loop(0, f.ceildiv(tile.rows, GROUP)) as group:
                sums = f.at(places.sums, "i8", f.mul(group.index, GROUP * ROW_BYTES))
                rows = f.at(first_row, "i8", f.mul(group.index, group_bytes))
                begin = f.mul(group.index, GROUP)
                count = f.minimum(GROUP, f.sub(tile.rows, begin))
                place = (lie, rows, b, first, end, self.k, sums, group.index)
                f.either(
                    f.is_less(count, GROUP // 2 + 1),
                    lambda: amx_bytes.add(f, 1, *place),
                    lambda: amx_bytes.add(f, 2, *place),
                )
                with f.when(f.less(n_steps - 1, end)):
                    self.epilogue.emit(tile._replace(m0=f.add(tile.m0, begin), rows=count), sums)
