"""Copies of 4-byte elements with another last axis and known sizes: image layouts.

Whole blocks of 16 x 16 are transposed in registers, as in `tiled_transpose`, the remainder by quarters. If
the rows written share few sets of the cache and those read do not, upright quarters do everything: RUN
elements of 4 rows are written before others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd

from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int
from ...llvm.prefetch import LINE_BYTES
from ...loops.bodies import LANES, BodyEmitter
from ...loops.loops import Loops
from ...loops.strip_mining import each, rounded_down
from ...loops.tiling import Range
from ...spec import Terms
from .quarters import N_BYTES, SHORT, Rows, blocks, flat, upright
from .tiled_transpose import (
    FEW_SETS,
    SET_BYTES,
    STREAM_BYTES,
    Places,
    is_copy,
    scatters_writes,
    transposed_loads,
)

TILE = 128  # iterations of both loops in a tile
RUN = 8 * LANES  # elements of a row that are written before other rows
SHORT_ROW = 1024  # bytes
WAYS = 8  # lines that a set of the first-level cache holds
LARGE = 2 * STREAM_BYTES  # results of this many bytes may bypass the caches
LOAD, STORE = 0, 1  # the body


def changes_layout(loops: Loops, transposed: int | None, asks: bool) -> bool:
    """Whether loops are such a copy. One that `asks` (prefetches) is done in blocks, if it is large
    enough."""
    if transposed is None or not is_copy(loops) or transposed_loads(loops, transposed) != [LOAD]:
        return False
    sizes = [loops.domain[loop] for loop in (transposed, len(loops.domain) - 1)]
    small, large = sorted(size if isinstance(size, int) else 0 for size in sizes)
    fits = small >= SHORT and large >= LANES and not (asks and small >= LANES)
    return fits and DTYPES[loops.body[LOAD].dtype].bytes == N_BYTES and not _streams(loops)


def _streams(loops: Loops) -> bool:
    """Whether the result may bypass the caches, as blocks do."""
    total = N_BYTES
    *_, row = shape = loops.buffers[loops.body[STORE].buffer or 0].shape
    for size in shape:
        total *= size if isinstance(size, int) else LARGE
    return total >= LARGE and (not isinstance(row, int) or row * N_BYTES % LINE_BYTES == 0)


class LayoutChange:
    """Emits the work of a tile of such a copy; construct it in the entry block."""

    scratch: Terms = ()

    def __init__(self, f: Function, loops: Loops, bodies: BodyEmitter, transposed: int) -> None:
        last = len(loops.domain) - 1
        self.f, self.places = f, Places(f, bodies, transposed, last)
        self.transposed, self.last = transposed, last
        start = self.places.at((0,) * (last + 1), 0, 0)
        self.read = self.places.stride(LOAD, start, last)
        self.written = self.places.stride(STORE, start, transposed)
        self.sizes = loops.domain[transposed], loops.domain[last]

    def emit(self, parts: Sequence[Range]) -> None:
        """Emit the work of a tile: `parts` of the loops."""
        crossing = (self.transposed, self.last)
        others = [part if i not in crossing else Range(0, 1) for i, part in enumerate(parts)]
        each(self.f, others, lambda outer: _Tile(self, outer, *(parts[i] for i in crossing)).emit())

    @property
    def has_runs(self) -> bool:
        """Whether rows are written in runs: if all writes of a block map to one set of the first-level cache,
        or to few and rows are short, and the lines that a run reads stay there."""
        read, written = _bytes(self.read), _bytes(self.written)
        are_short = read <= SHORT_ROW and written <= 4 * SHORT_ROW
        share_sets = written % SET_BYTES == 0 or (written % FEW_SETS == 0 and are_short)
        return share_sets and RUN * gcd(read, SET_BYTES) <= WAYS * SET_BYTES


def _bytes(stride: Int) -> int:
    assert isinstance(stride, int)
    return stride * N_BYTES


Part = Callable[[Function, str, Rows, Rows, Int], None]  # calls a part for a number of quarters or blocks
Place = Callable[[Int], tuple[Rows, Rows]]  # the rows read and written


@dataclass(frozen=True)
class _Tile:
    """One tile: `columns`, which are adjacent when read, of `rows`."""

    of: LayoutChange
    outer: tuple[Int, ...]
    columns: Range
    rows: Range

    def emit(self) -> None:
        n_columns, n_rows = self.of.sizes
        assert isinstance(n_columns, int) and isinstance(n_rows, int)
        if n_columns < LANES:
            with self._steps(self.rows, LANES) as row:
                self._across(row)
        elif n_rows < LANES:
            with self._steps(self.rows, SHORT) as row:
                self._flats(row)
        elif self.of.has_runs:
            self._runs()
        else:
            self._blocks()

    @contextmanager
    def _steps(self, part: Range, step: int) -> Iterator[Int]:
        """Emit a loop over `part`, whose last step ends at its end and overlaps the previous one."""
        f, end = self.of.f, part.end(self.of.f)
        with f.loop(part.begin, end, step) as at:
            yield at.index if part.is_multiple(step) else f.minimum(at.index, f.sub(end, step))

    @contextmanager
    def _rest(self, part: Range, step: int) -> Iterator[Int]:
        """Emit a loop over the remainder of `part` after whole blocks."""
        f, end = self.of.f, part.end(self.of.f)
        with f.loop(self._after(part), end, step) as at:
            yield f.minimum(at.index, f.sub(end, step))

    def _after(self, part: Range) -> Int:
        return self.of.f.add(part.begin, rounded_down(self.of.f, part, LANES))

    def _whole(self, part: Range) -> Range:
        """Return the whole blocks of `part`."""
        return Range(part.begin, rounded_down(self.of.f, part, LANES), LANES)

    def _rows(self, column: Int, row: Int, read: Int, written: Int) -> tuple[Rows, Rows]:
        """Return the rows that a quarter reads and writes, and the steps to the next one."""
        of, at = self.of, self.of.places.at(self.outer, column, row)
        load, store = (of.places.address(i, at) for i in (LOAD, STORE))
        return Rows(load, of.read, read), Rows(store, of.written, written)

    def _below(self, column: Int) -> Place:
        """Return the locator of a row's quarter or block at `column`, with those below as the next ones."""
        return lambda row: self._rows(column, row, self.of.f.mul(self.of.read, LANES), LANES)

    def _beside(self, row: Int) -> Place:
        """Return the locator of a column's flat quarter or block at `row`, with those beside as the next
        ones."""
        return lambda column: self._rows(column, row, LANES, self.of.f.mul(self.of.written, LANES))

    def _line(self, emit: Part, part: Range, place: Place) -> None:
        """Emit `part` by steps of 16, the last of which may overlap the previous one."""
        f = self.of.f
        emit(f, self._element, *place(part.begin), f.udiv(part.count, LANES))
        if not part.is_multiple(LANES):
            with self._rest(part, LANES) as last:
                emit(f, self._element, *place(last), 1)

    def _down(self, column: Int, row: Int, count: Int) -> None:
        """Emit `count` upright quarters one below the other."""
        upright(self.of.f, self._element, *self._below(column)(row), count)

    def _across(self, row: Int) -> None:
        """Emit upright quarters of all columns."""
        f, columns = self.of.f, self.columns
        places = self._rows(columns.begin, row, SHORT, f.mul(self.of.written, SHORT))
        upright(f, self._element, *places, f.udiv(columns.count, SHORT))
        if not columns.is_multiple(SHORT):
            self._down(f.sub(columns.end(f), SHORT), row, 1)

    def _flats(self, row: Int) -> None:
        """Emit flat quarters of all columns."""
        self._line(flat, self.columns, self._beside(row))

    def _runs(self) -> None:
        f, end = self.of.f, self.rows.end(self.of.f)
        with f.loop(self.rows.begin, end, RUN) as run, self._steps(self.columns, SHORT) as column:
            self._down(column, run.index, f.udiv(f.minimum(f.sub(end, run.index), RUN), LANES))
        self._last_rows()

    def _last_rows(self) -> None:
        """Emit the rows after whole blocks, if there are any."""
        if self.rows.is_multiple(LANES):
            return
        if self._has_few(1):
            with self._rest(self.rows, SHORT) as row:
                self._flats(row)
        else:
            with self._rest(self.rows, LANES) as row:
                self._across(row)

    def _has_few(self, axis: int) -> bool:
        """Whether so few columns (0) or rows (1) remain after whole blocks that quarters are faster."""
        size = self.of.sizes[axis]
        return isinstance(size, int) and 0 < size % LANES <= 2 * SHORT

    def _blocks(self) -> None:
        of = self.of
        columns, rows = (
            self._whole(part) if self._has_few(axis) else part
            for axis, part in enumerate((self.columns, self.rows))
        )
        if scatters_writes(_bytes(of.read), _bytes(of.written)):
            with self._steps(rows, LANES) as row:
                self._line(blocks, columns, self._beside(row))
        else:
            with self._steps(columns, LANES) as column:
                self._line(blocks, rows, self._below(column))
        if self._has_few(0):
            with self._rest(self.columns, SHORT) as column:
                self._line(upright, rows, self._below(column))
        if self._has_few(1):
            self._last_rows()

    @property
    def _element(self) -> str:
        return self.of.places.element(LOAD)
