"""A block of A's rows against one tile of B's columns: row tiles for the micro-kernel, and what they
prefetch.

The rows are split evenly into row tiles of at most `Schedule.rows`. Where B is a weight in panels, the panels
that come next follow in memory, and each row tile prefetches its share of them; where it is the first of many
to read its rows of A, it prefetches the next row tile's instead. Rows of many steps are computed in chunks of
CHUNK steps, each for all row tiles: the first-level cache holds a chunk of B, the second A's block and the
next chunk. Sums wait in scratch between chunks, so k still ascends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...llvm.function import Function, Int, Value, least, most
from ...llvm.prefetch import unread
from ...loops.bodies import LANES
from .microkernel import (
    PANEL,
    SCHEDULES,
    UNROLL,
    VECTOR,
    Ending,
    MicroKernels,
    Schedule,
    Strides,
    default_schedule,
    dispatch,
    each_tile,
    line,
    row_counts,
)

CHUNK = 128  # steps of k, of two panels 32 KB: the first-level cache holds them for all row tiles
LONG = 384  # steps of k of sums that are split into chunks; at 256 that takes 1.04 to 1.15 times as long
NEAR = 32  # rows of B that a lone row tile reads ahead
SPREAD = (1, 2, 4)  # lines that a trip of a micro-kernel may prefetch: each is a part to compile


@dataclass(frozen=True)
class Finish:
    """What a row tile's sums are for: `done(first row, rows, sums)` takes them, and `soon(first row, rows)`
    comes before they are computed, to prefetch what `done` will read and write. `ending(first row, rows)`, if
    given, does what `done` does, from the registers, for row tiles of all columns."""

    done: Callable[[Int, Int, Value], None]
    soon: Callable[[Int, Int], None]
    ending: Callable[[Int, Int], Ending] | None = None


@dataclass(frozen=True)
class Ahead:
    """What comes next of B: `size` elements at `first`, and as many `apart` elements later (0: no more).

    `is_new`: A's rows come from memory. Then those behind a row tile's own come next: of rows read side by
    side a core foresees no more than the rest of each.
    """

    first: Value
    size: Int
    apart: Int = 0
    is_new: Value | bool = False


def is_chunked(k: Int) -> bool:
    """Return True where sums of `k` steps are computed in chunks."""
    return isinstance(k, int) and k >= LONG


def _chunk_of_pieces(piece: int) -> int:
    """Return the steps of a chunk of rows that lie in pieces: some pieces or an even share of one."""
    if piece <= CHUNK:
        return CHUNK // piece * piece
    share = -(-piece // -(-piece // CHUNK))
    return -(-share // LANES) * LANES


class RowTiles:
    """The row tiles of blocks of at most `block` of `m` rows, `k` steps, against tiles of `width` columns.

    `dtype`: that of a weight in panels. If it is not f32, panels are read by lone row tiles only. `taps`: of
    rows that lie in pieces (`Strides.taps`), else 0. `together`: steps under each tap that make a chunk; all
    taps of a step lie side by side in B then (0: taps follow one another).
    """

    def __init__(
        self, f: Function, m: Int, block: int, k: Int, width: int, tile: Schedule, dtype: str, taps: int = 0,
        together: int = 0,
    ) -> None:  # fmt: skip
        self.f, self.dtype, self.taps, self.together = f, dtype, taps, together
        self.m, self.block, self.k, self.width = m, block, k, width
        self.chunk = _chunk_of_pieces(k // taps) if taps and isinstance(k, int) else CHUNK
        if together:
            self.chunk = together * taps
        self.most, self.vectors = tile.rows, tile.vectors
        self.is_tall = tile == SCHEDULES["14x32"]  # fills the registers: one more address and it is spilled

    def sums_bytes(self, in_panels: bool) -> int:
        """Return the bytes of scratch for sums; `in_panels`: of a weight in panels."""
        is_kept = in_panels and is_chunked(self.k)
        tall = self._tall_counts() if in_panels else []
        return 4 * self.width * max([self.most, *tall, self.block if is_kept else 0])

    def counts(self) -> list[int]:
        """Return the numbers of rows that a row tile may have."""
        return row_counts(self.m, self.block, self.most)

    def from_panels(
        self,
        strides: Strides,
        a: Value,
        b: Value,
        rows: Int,
        columns: Int | None,
        sums: Value,
        finish: Finish,
        is_new: Value | bool = False,
    ) -> None:
        """Compute `rows` rows of `columns` (None: all) of a weight in panels; `finish` gets each row tile.

        `is_new`: whether A's rows lie one behind the other and come from memory.
        """
        f = self.f
        kernels = MicroKernels(f, "micro", strides, self._used(columns), dtype=self.dtype)
        after = kernels.unread(f, b, f.mul(self.k, self.width))
        if not is_chunked(self.k):
            ahead = Ahead(after, f.mul(self.k, self.width), is_new=is_new)
            self._each(kernels, a, b, rows, sums, ahead, finish)
            return
        self._clear(rows, sums)
        n_chunks = self._n_chunks()
        with f.loop(0, n_chunks) as number:
            is_last = f.less(n_chunks - 2, number.index)
            begin, left_rows, chunk_strides = self._chunk(strides, a, number.index)
            here = f.at(b, kernels.element, f.mul(begin, PANEL))
            steps = f.mul(chunk_strides.k, chunk_strides.taps if self.taps else 1)
            first = f.select(is_last, after, kernels.unread(f, here, f.mul(steps, PANEL)))
            ahead = Ahead(first, self.chunk * PANEL, f.mul(self.k, PANEL) if self.width > PANEL else 0)
            adding = MicroKernels(f, "chunk", chunk_strides, kernels.vectors, adds=True, dtype=self.dtype)

            def done(begin: Int, count: Int, at: Value) -> None:
                with f.when(is_last):
                    finish.done(begin, count, at)

            def soon(begin: Int, count: Int) -> None:
                with f.when(is_last):
                    finish.soon(begin, count)

            self._each(adding, left_rows, here, rows, sums, ahead, Finish(done, soon))

    def _n_chunks(self) -> int:
        """Return the chunks of a row."""
        assert isinstance(self.k, int)
        if not self.taps or self.together:
            return -(-self.k // self.chunk)
        return -(-self.taps // self._taps_of_chunk()) * -(-(self.k // self.taps) // self.chunk)

    def _taps_of_chunk(self) -> int:
        """Return the taps of a chunk of rows that lie in pieces."""
        assert isinstance(self.k, int)
        return max(self.chunk * self.taps // self.k, 1)

    def _chunk(self, strides: Strides, a: Value, number: Value) -> tuple[Int, Value, Strides]:
        """Return (first step, A's rows there, strides) of chunk `number`: some steps, of pieces some taps or
        a part of one."""
        f, size = self.f, self.chunk
        if not self.taps:
            begin = f.mul(number, size)
            steps = size if f.urem(self.k, size) == 0 else f.minimum(size, f.sub(self.k, begin))
            return begin, f.at(a, "float", begin), replace(strides, k=steps)
        if self.together:
            chunk = self.all_taps(strides, self.together, f.mul(number, self.together))
            return f.mul(number, size), a, chunk
        piece, taps = f.udiv(self.k, self.taps), self._taps_of_chunk()
        parts = f.ceildiv(piece, size)
        tap, offset = f.mul(f.udiv(number, parts), taps), f.mul(f.urem(number, parts), size)
        there = f.at(a, "ptr", f.mul(tap, strides.apart))
        if taps == 1:
            steps = size if f.urem(piece, size) == 0 else f.minimum(size, f.sub(piece, offset))
            chunk = replace(strides, k=steps, taps=1, offset=offset)
        else:
            left = f.sub(self.taps, tap)
            chunk = replace(strides, taps=taps if self.taps % taps == 0 else f.minimum(taps, left))
        return f.add(f.mul(tap, piece), offset), there, chunk

    def all_taps(self, strides: Strides, steps: int, offset: Int) -> Strides:
        """Return the strides of `steps` steps under each tap, all taps of a step side by side in B."""
        row = self.taps * PANEL
        return replace(strides, k=steps, ldb=row, offset=offset, b_skip=PANEL - steps * row)

    def from_rows(
        self,
        strides: Strides,
        a: Value,
        b: Value,
        rows: Int,
        columns: Int | None,
        sums: Value,
        finish: Finish,
    ) -> None:
        """The same for rows of B in scratch."""
        kernels = MicroKernels(self.f, "rows", strides, self._used(columns))
        self._each(kernels, a, b, rows, sums, None, finish)

    def in_place(self, strides: Strides, a: Value, b: Value, rows: Int, sums: Value, finish: Finish) -> None:
        """The same for at most `most` rows and B in place."""
        kernels = MicroKernels(self.f, "in_place", strides, self.vectors)

        def row_tile(number: Int, begin: Int, count: Int) -> None:
            finish.soon(begin, count)
            self._alone(kernels, count, a, b, sums)
            finish.done(begin, count, sums)

        each_tile(self.f, rows, self.most, row_tile)

    def _used(self, columns: Int | None) -> int:
        """Return the vectors of a micro-kernel for `columns`: at least one, else those known to be there."""
        return min(self.vectors, max(1, -(-columns // LANES))) if isinstance(columns, int) else self.vectors

    def _clear(self, rows: Int, sums: Value) -> None:
        f = self.f
        with f.loop(0, f.mul(rows, self.width), LANES) as place:
            f.store(Value(VECTOR, "zeroinitializer"), f.at(sums, "float", place.index), align=4)

    def _each(
        self,
        kernels: MicroKernels,
        a: Value,
        b: Value,
        rows: Int,
        sums: Value,
        ahead: Ahead | None,
        finish: Finish,
    ) -> None:
        """Compute every row tile; sums of chunks (kernels that add) keep their places."""
        f = self.f
        is_whole = LANES * kernels.vectors == self.width and not kernels.adds
        ending = finish.ending if is_whole else None

        def row_tile(number: Int, begin: Int, count: Int) -> None:
            left = kernels.strides.row(f, a, begin)
            place = f.at(sums, "float", f.mul(begin, self.width)) if kernels.adds else sums
            finish.soon(begin, count)
            if ending is not None:
                ended = kernels.ended_by(ending(begin, count))
                self._multiply(ended, rows, count, left, b, number, place, ahead)
                return
            self._multiply(kernels, rows, count, left, b, number, place, ahead)
            finish.done(begin, count, place)

        tall = self._tall_counts() if ahead is not None and kernels.vectors == self.vectors else []
        f.either(
            self._is_one_of(rows, tall),
            lambda: self._tall(kernels, a, b, rows, sums, finish),
            lambda: each_tile(f, rows, self.most, row_tile),
        )

    def _is_one_of(self, rows: Int, counts: Sequence[int]) -> Value | bool:
        """Whether `rows` is one of `counts`, which are successive."""
        if not counts:
            return False
        behind = self.f.i64(self.f.sub(rows, counts[0]))
        return self.f.op("i1", f"icmp ult i64 {behind.name}, {len(counts)}")

    def _tall_counts(self) -> list[int]:
        """Return the numbers of rows that one tall row tile for each panel takes, where they may turn up.

        Three row tiles of so few rows would wait for B from the second-level cache (13 x 384 x 1536: 1.2
        times as long). A kernel of known rows has tall tiles alone then.
        """
        if isinstance(self.m, int) or self.dtype != "f32" or self.width == PANEL:
            return []
        low, top, most_tall = least(self.m), most(self.m), SCHEDULES[default_schedule(self.f)].rows
        last = most_tall if top is None else min(most_tall, top)
        return [n for n in range(2 * self.most + 1, last + 1) if n >= low]

    def _tall(
        self, kernels: MicroKernels, a: Value, b: Value, rows: Int, sums: Value, finish: Finish
    ) -> None:
        """Compute all rows by one row tile for each panel; their number is one of `_tall_counts`."""
        f = self.f
        strides = replace(kernels.strides, b_panel=0)
        one = MicroKernels(f, kernels.name, strides, PANEL // LANES, adds=kernels.adds)
        finish.soon(0, rows)
        with f.loop(0, self.width, PANEL) as panel:
            there = f.at(b, one.element, f.mul(panel.index, self.k))
            place, near = f.at(sums, "float", panel.index), one.unread(f, there, NEAR * PANEL)
            dispatch(f, rows, self._tall_counts(), lambda n: one.call(n, a, there, place, near, near=True))
        finish.done(0, rows, sums)

    def _multiply(
        self,
        kernels: MicroKernels,
        rows: Int,
        count: Int,
        a: Value,
        b: Value,
        number: Int,
        sums: Value,
        ahead: Ahead | None,
    ) -> None:
        """Compute row tile `number`, of `count` rows, of a block of `rows`.

        A lone row tile is fed straight from memory: it reads ahead in its own panels.
        """
        f = self.f

        def alone() -> None:
            self._alone(kernels, count, a, b, sums)

        def spread(lines: int) -> None:
            assert ahead is not None
            if ahead.is_new is not False:  # as many as a trip reads of A
                lines = max(lines, -(-self.most * UNROLL // LANES))

            def place(r: int) -> Value:
                if ahead.is_new is False:
                    return self._share(kernels, ahead, b, number, lines)
                rows_of_a = unread(f, a, f.mul(kernels.strides.lda, r))
                if ahead.is_new is True:
                    return rows_of_a
                return f.select(ahead.is_new, rows_of_a, self._share(kernels, ahead, b, number, lines))

            self._call(kernels, count, a, b, sums, place, lines)

        if ahead is None:
            self._call(kernels, count, a, b, sums, lambda _: b, 0)
        elif self.dtype != "f32" or self.is_tall:
            alone()
        else:
            *fewer, dense = self._spread()
            choice = partial(spread, dense)
            for lines in reversed(fewer):
                is_low = f.is_less(rows, self._enough(lines))
                choice = partial(f.either, is_low, choice, partial(spread, lines))
            is_lone = f.is_less(self.m if isinstance(self.m, int) else rows, self.most + 1)
            f.either(is_lone, alone, choice)

    def _alone(self, kernels: MicroKernels, count: Int, a: Value, b: Value, sums: Value) -> None:
        near = kernels.unread(self.f, b, self.f.mul(NEAR, kernels.strides.ldb))
        self._call(kernels, count, a, b, sums, lambda _: near, 0, near=True)

    def _spread(self) -> tuple[int, ...]:
        """Return the cache lines that a trip may prefetch: for all known numbers of rows from some on the
        same, so that their kernels are."""
        if not isinstance(self.m, int):
            return SPREAD
        return SPREAD[:-1] if min(self.m, self.block) >= self._enough(SPREAD[-2]) else SPREAD[-1:]

    def _enough(self, lines: int) -> int:
        """Return the rows from which on row tiles that prefetch `lines` a trip ask for all of `ahead`."""
        wanted = self.width // line(self.dtype) * UNROLL  # each trip, of all row tiles together
        return self.most * (-(-wanted // lines) - 1) + 1

    def _share(self, kernels: MicroKernels, ahead: Ahead, b: Value, number: Int, lines: int) -> Value:
        """Return where row tile `number` prefetches `lines` a trip: in `ahead` while some are left.

        Then what is near stands in for them.
        """
        f = self.f
        steps = self.chunk if is_chunked(self.k) else self.k
        begin = f.mul(number, f.mul(f.udiv(steps, UNROLL), lines * kernels.line))
        if begin == 0:
            return ahead.first
        place, end = kernels.unread(f, ahead.first, begin), ahead.size
        if ahead.apart != 0:
            second = kernels.unread(f, place, f.sub(ahead.apart, ahead.size))
            is_first = f.less(begin, ahead.size)
            place = f.select(is_first, place, second)
            end = f.mul(end, 2)
        is_left = f.less(begin, end)
        return f.select(is_left, place, b)

    def _call(
        self,
        kernels: MicroKernels,
        count: Int,
        a: Value,
        b: Value,
        sums: Value,
        ahead: Callable[[int], Value],
        lines: int,
        near: bool = False,
    ) -> None:
        """Call the micro-kernel for `count` rows; `ahead(rows)` is where it prefetches."""
        f = self.f
        step = LANES * kernels.vectors

        def call(rows: int) -> None:
            from_here = ahead(rows)
            for first in range(0, self.width if kernels.vectors == self.vectors else step, step):
                there = f.at(sums, "float", first)
                kernels.call(rows, a, f.at(b, kernels.element, first), there, from_here, lines, near)

        dispatch(f, count, self.counts(), call)
