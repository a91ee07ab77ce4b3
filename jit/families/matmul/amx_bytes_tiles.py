"""A product of narrow operands on AMX tiles: the layout of scratch (see `amx_bytes`), and the kernel's
tiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...llvm.function import Function, Int, Value, least
from . import amx_bytes
from .amx import GROUP
from .amx_bytes import BLOCK, COPIED, HALF, MAX_ROW_BYTES, ROW_BYTES, STEP, Rows, chunk_of
from .epilogue import Epilogue, RowTile
from .lhs import InPlace, Lhs
from .problem import Problem

Emit = Callable[[RowTile, Value], None]


@dataclass(frozen=True)
class Places:
    """The layout of scratch: sums, A's rows, the rest."""

    sums: Value
    rows: Value
    end: Value

    @staticmethod
    def behind(f: Function, sums: Value, k: int, block: int) -> Places:
        """Return the layout for blocks of `block` rows of `k` steps that begins at `sums`."""
        rows = f.at(sums, "i8", block * ROW_BYTES)
        return Places(sums, rows, f.at(sums, "i8", amx_bytes.scratch_bytes(k, block)))


class TileRows(ABC):
    """A block of A's rows as tiles read them: GROUP rows at a time, with layout `lie`.

    `sums`: the address in scratch for the sums of its groups, None: in `Places`.
    """

    lie: Rows
    sums: Value | None = None

    @abstractmethod
    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """Emit the preparation of a block of `rows` rows before its first tile."""

    @abstractmethod
    def count(self, tile: RowTile) -> Int:
        """Return how many rows tiles read for the rows of `tile`."""

    @abstractmethod
    def group_at(self, tile: RowTile, begin: Int, count: Int) -> tuple[Value, Int]:
        """Return the address of `count` rows from `begin` on, of which tiles read 16 or GROUP, and how many
        of these precede them."""

    def finish(self, tile: RowTile, begin: Int, count: Int, sums: Value, emit: Emit) -> None:
        """Emit the epilogue of `count` rows from `begin` on, whose sums are at `sums`."""
        f = self.f
        emit(tile._replace(m0=f.add(tile.m0, begin), rows=count), sums)

    def __init__(self, f: Function) -> None:
        self.f = f


class Copied(TileRows):
    """Rows that are copied to scratch in the order in which tiles read them. If there are fewer than STEP
    steps, they are at the end of a row there."""

    def __init__(self, f: Function, k: int, lhs: Lhs, rows: Value) -> None:
        super().__init__(f)
        self.lie = COPIED._replace(length=min(k, STEP))
        self.k, self.lhs, self.rows = k, lhs, f.at(rows, "i8", 4 * (STEP - self.lie.length))
        self.to = rows

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """See `TileRows`."""
        self.lhs.prepare(outer, m0, rows)
        amx_bytes.copy_rows(self.f, self.lhs.at(outer, m0), self.lhs.stride, rows, self.k, self.to)

    def count(self, tile: RowTile) -> Int:
        """See `TileRows`."""
        return tile.rows

    def group_at(self, tile: RowTile, begin: Int, count: Int) -> tuple[Value, Int]:
        """See `TileRows`."""
        f = self.f
        return f.at(self.rows, "i8", f.mul(f.udiv(begin, GROUP), -(-self.k // STEP) * BLOCK)), 0


class WhereTheyLie(TileRows):
    """Rows that are read in place. After the last rows of a buffer nothing may be read, so tiles begin that
    many rows earlier there."""

    def __init__(self, f: Function, lhs: Lhs) -> None:
        super().__init__(f)
        self.lhs, self.lie = lhs, Rows(f.mul(4, lhs.stride), 4 * STEP)

    @staticmethod
    def fits(lhs: Lhs, k: int, m: Int) -> bool:
        """Whether `m` rows of `k` steps may be read in place."""
        is_short = isinstance(lhs.stride, int) and 4 * lhs.stride <= MAX_ROW_BYTES
        has_all = lhs.has_whole_groups or (isinstance(lhs, InPlace) and least(m) >= GROUP)
        return is_short and has_all and k % STEP == 0

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """See `TileRows`."""
        self.lhs.prepare(outer, m0, rows)

    def count(self, tile: RowTile) -> Int:
        """See `TileRows`."""
        return tile.rows

    def group_at(self, tile: RowTile, begin: Int, count: Int) -> tuple[Value, Int]:
        """See `TileRows`."""
        f, first, before = self.f, self.lhs.at(tile.batch, tile.m0), begin
        if not self.lhs.has_whole_groups:
            is_half = f.is_less(count, HALF + 1)
            known = HALF if is_half is True else GROUP
            size = f.select(is_half, HALF, GROUP) if isinstance(is_half, Value) else known
            before = f.sub(f.add(begin, count), size)
        return f.at(first, "i8", f.mul(before, self.lie.row)), f.sub(begin, before)


class BytesOnTiles:
    """Emits tiles of a `problem`, from A's rows `lhs`."""

    def __init__(self, f: Function, problem: Problem, lhs: Lhs, epilogue: Epilogue, places: Places) -> None:
        assert isinstance(problem.k, int)
        self.f, self.k, self.epilogue = f, problem.k, epilogue
        self.dtype = problem.arithmetic.dtype
        k, m = problem.k, problem.m
        self.rows: TileRows
        if isinstance(lhs, TileRows):
            self.rows = lhs
        elif WhereTheyLie.fits(lhs, k, m):
            self.rows = WhereTheyLie(f, lhs)
        else:
            self.rows = Copied(f, k, lhs, places.rows)
        self.sums = places.sums if self.rows.sums is None else self.rows.sums
        self.n_steps = -(-k // self.rows.lie.length)

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """Emit the preparation of a block of `rows` rows before its first tile."""
        self.rows.prepare(outer, m0, rows)

    def multiply(self, tile: RowTile, b: Value) -> None:
        """Emit one tile of the kernel: chunks of its panel at `b`, each for all groups of 32 rows.

        A group's epilogue follows its last chunk.
        """
        f, n_steps = self.f, self.n_steps
        chunk_steps, n_rows = chunk_of(n_steps), self.rows.count(tile)
        with f.loop(0, n_steps, chunk_steps) as chunk:
            first, end = chunk.index, f.minimum(f.add(chunk.index, chunk_steps), n_steps)
            with f.loop(0, f.ceildiv(n_rows, GROUP)) as group:
                begin = f.mul(group.index, GROUP)
                self._add(tile, (begin, f.minimum(GROUP, f.sub(n_rows, begin))), b, first, end)

    def _add(self, tile: RowTile, group: tuple[Int, Int], b: Value, first: Int, end: Int) -> None:
        """Emit steps `first` to `end` of a group's rows."""
        f, (begin, count), lie = self.f, group, self.rows.lie
        rows, before = self.rows.group_at(tile, begin, count)
        sums = f.at(self.sums, "i8", f.mul(begin, ROW_BYTES))
        place = (lie, rows, b, first, end, self.k, sums, f.i64(begin), self.dtype)
        f.either(
            f.is_less(count, HALF + 1),
            lambda: amx_bytes.add(f, 1, *place),
            lambda: amx_bytes.add(f, 2, *place),
        )
        with f.when(f.less(self.n_steps - 1, end)):
            there = f.at(sums, "i8", f.mul(before, ROW_BYTES))
            self.rows.finish(tile, begin, count, there, self.epilogue.emit)
