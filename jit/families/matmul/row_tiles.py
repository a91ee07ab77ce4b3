"""A block of A's rows against one tile of B's columns: row tiles for the micro-kernel, and their prefetches.

The rows are split evenly into row tiles of at most `Schedule.rows`. If B is a weight in panels, each row tile
prefetches its share of the next panels (`read_ahead`); if it is the first of many to read its rows of A, it
prefetches the next row tile's instead. Sums of many steps are computed by chunks (`chunks`), each for all row
tiles: the first-level cache holds a chunk of B, the second A's block and the next chunk. Totals wait in
scratch between chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from ...llvm.function import Function, Int, Value, least, most
from ...llvm.prefetch import unread
from ...loops.bodies import LANES
from .arithmetic import F32, VECTOR, Arithmetic
from .chunks import WHOLE, Pieces, Steps
from .microkernel import Ending, Into, MicroKernels
from .read_ahead import Ahead, Spread
from .row_shares import dispatch, each_tile, row_counts
from .schedules import PANEL, SCHEDULES, Schedule, default_schedule
from .strides import UNROLL, Strides
from .sums import BLOCK, GROUP

NEAR = 32  # rows of B that a single row tile prefetches
#: Rows of a row tile by the vectors of the last columns, if fewer are left than a tile has: with 4 vectors 6
#: rows are 24 sums in registers; with fewer vectors as many sums are more rows.
LAST_ROWS = {1: 12, 2: 12, 3: 8}
MAX_ADDRESSES = 8  # of rows with addresses in the processor's 16 general registers


Copy = Callable[[Value, Int], Value]


@dataclass(frozen=True)
class Finish:
    """The use of a row tile's sums: `done(first row, rows, sums)` takes them, and `soon(first row, rows)` is
    called before they are computed, to prefetch what `done` will read and write. `ending(first row, rows,
    first column, columns)`, if given, does the same as `done`, from the registers, for the columns of a
    micro-kernel (None: all) that has whole sums."""

    done: Callable[[Int, Int, Value], None]
    soon: Callable[[Int, Int], None]
    ending: Callable[[Int, Int, int, int | None], Ending] | None = None


def copy_to(f: Function, to: Value, place: Value, count: Int) -> None:
    """Emit the copy of `count` f32, whole vectors."""
    with f.loop(0, count, LANES) as at:
        f.store(f.load(VECTOR, f.at(place, "float", at.index), align=4), f.at(to, "float", at.index), align=4)


class RowTiles:
    """The row tiles of blocks of at most `block` of `m` rows, `k` steps, against tiles of `width` columns.

    `arithmetic`: of a weight in panels. If that is widened, panels are read only by single row tiles.
    `pieces`: the layout of the steps, see there. `columns`: of a tile, those known to be real.
    """

    def __init__(
        self, f: Function, m: Int, block: int, k: Int, width: int, tile: Schedule,
        arithmetic: Arithmetic = F32, pieces: Pieces = WHOLE, chain: int = 0,
    ) -> None:  # fmt: skip
        self.f, self.arithmetic = f, arithmetic
        self.steps = Steps(f, k, pieces, chain)
        self.m, self.block, self.width, self.tile = m, block, width, tile
        self.columns = width

    @property
    def k(self) -> Int:
        """The steps of a sum."""
        return self.steps.k

    @property
    def most(self) -> int:
        """The most rows of a row tile."""
        return self.tile.rows

    @property
    def vectors(self) -> int:
        """The vectors of a row of a row tile."""
        return self.tile.vectors

    @property
    def is_tall(self) -> bool:
        """Whether sums fill the registers, so that one more address is spilled."""
        return self.most == SCHEDULES["14x32"].rows

    def sums_bytes(self, in_panels: bool) -> int:
        """Return the bytes of scratch for sums; `in_panels`: of a weight in panels."""
        return self._sums_bytes(in_panels) * (2 if self.steps.may_have_groups else 1)

    def _sums_bytes(self, in_panels: bool) -> int:
        """Return the bytes of sums without those of previous groups."""
        is_kept = in_panels and self.steps.is_chunked
        tall = self._tall_counts() if in_panels else []
        last = LAST_ROWS.values() if self._may_be_last() else []
        return 4 * self.width * max([self.most, *tall, *last, self.block if is_kept else 0])

    def _may_be_last(self) -> bool:
        """Whether a tile may have fewer columns than its register tile, and is then taller: not in code for
        any number of rows, which would take a third longer to compile."""
        is_wide = LANES * self.vectors > PANEL and not self.arithmetic.is_widened
        return is_wide and isinstance(self.m, int)

    def for_columns(self, columns: Int | None) -> Self:
        """Return the row tiles of a tile with `columns` real columns, None: all."""
        made = copy(self)
        made.columns = columns if isinstance(columns, int) else self.width
        return made

    def _for_last(self, columns: Int | None) -> RowTiles:
        """Return the row tiles of a tile of `columns`: of more rows where its register tile would hold fewer
        sums."""
        made = self.for_columns(columns)
        rows = LAST_ROWS.get(self.used_vectors(columns)) if self._may_be_last() else None
        if rows is not None:
            most_rows = min(rows, MAX_ADDRESSES) if self.steps.pieces.taps else rows
            made.tile = replace(self.tile, rows=most_rows)
        return made

    def _is_in_whole_rows(self, is_only: bool) -> bool:
        """Whether a row tile computes all of its sums at once."""
        return not self.steps.is_chunked or ((is_only or self.tile.keeps_totals) and self._are_streamed())

    def _are_streamed(self) -> bool:
        """Whether A's rows are read from front to back if there are no other columns: by chunks each would be
        read in as many pieces, which no prefetcher predicts."""
        is_plain = not self.steps.pieces.piece and not self.arithmetic.is_widened
        return is_plain and not self.steps.may_have_groups

    def counts(self) -> list[int]:
        """Return the numbers of rows that a row tile may have."""
        return row_counts(self.m, self.block, self.most)

    def from_panels(
        self, strides: Strides, a: Value, b: Value, rows: Int, columns: Int | None, sums: Value,
        finish: Finish, is_new: Value | bool = False, is_only: bool = False, copy: Copy | None = None,
    ) -> None:  # fmt: skip
        """Compute `rows` rows of `columns` (None: all) of a weight in panels; `finish` gets each row tile.

        `is_new`: whether A's rows are consecutive and come from memory. `is_only`: whether there are
        no other columns. `copy(b, steps)`: returns the address of the steps of the panels at `b` as rows of
        f32; given only if sums are chunked.
        """
        tiles = self._for_last(columns)
        tiles._from_panels(strides, a, b, rows, columns, sums, finish, is_new, is_only, copy)

    def _from_panels(
        self, strides: Strides, a: Value, b: Value, rows: Int, columns: Int | None, sums: Value,
        finish: Finish, is_new: Value | bool, is_only: bool, copy: Copy | None,
    ) -> None:  # fmt: skip
        f = self.f
        in_whole_rows = self._is_in_whole_rows(is_only)
        if in_whole_rows:
            strides = self.steps.in_blocks(strides)
        into = Into.TOTALS if self.tile.keeps_totals else Into.CHAIN
        kernels = MicroKernels(f, "micro", strides, self.used_vectors(columns), into, self.arithmetic)
        after = kernels.unread(f, b, f.mul(self.k, self.width))
        if in_whole_rows:
            ahead = Ahead(after, f.mul(self.k, self.width), is_new=is_new, is_only=is_only)
            self._each(kernels, a, b, rows, sums, ahead, finish)
            return
        n_chunks, floats = self.steps.n_chunks, f.mul(rows, self.width)
        if n_chunks <= GROUP:
            self.arithmetic.fill(f, sums, floats)
            with f.loop(0, n_chunks) as number:
                self._panel_chunk(kernels, a, b, rows, sums, after, number.index, finish, copy)
            return
        totals = f.at(sums, "i8", self._sums_bytes(in_panels=True))
        self.arithmetic.fill(f, totals, floats)

        def whole(begin: Int, count: Int, at: Value) -> None:
            place = f.at(totals, "float", f.mul(begin, self.width))
            self.arithmetic.add_to(f, place, at, f.mul(count, self.width))
            finish.done(begin, count, place)

        with f.loop(0, n_chunks, GROUP) as group:
            self.arithmetic.fill(f, sums, floats)
            with f.loop(group.index, f.minimum(f.add(group.index, GROUP), n_chunks), nonempty=True) as number:
                ending = replace(finish, done=whole)
                self._panel_chunk(kernels, a, b, rows, sums, after, number.index, ending, copy)
            with f.when(f.less(f.add(group.index, GROUP), n_chunks)):
                self.arithmetic.add_to(f, totals, sums, floats)

    def _panel_chunk(
        self, kernels: MicroKernels, a: Value, b: Value, rows: Int, sums: Value, after: Value, number: Value,
        finish: Finish, copy: Copy | None,
    ) -> None:  # fmt: skip
        """Add chunk `number` of a weight in panels to the sums of all row tiles; the last one finishes them.
        `after`: the data after the panels."""
        f = self.f
        is_last = f.less(self.steps.n_chunks - 2, number)
        begin, left_rows, strides = self.steps.of_chunk(kernels.strides, a, number)
        here = f.at(b, kernels.element, f.mul(begin, PANEL))
        steps = f.mul(strides.k, strides.taps.n if self.steps.pieces.taps else 1)
        first = f.select(is_last, after, kernels.unread(f, here, f.mul(steps, PANEL)))
        ahead: Ahead | None = Ahead(
            first, self.steps.chunk * PANEL, f.mul(self.k, PANEL) if self.width > PANEL else 0
        )
        adding = MicroKernels(f, "chunk", strides, kernels.vectors, Into.ADDED, self.arithmetic)
        if copy is not None:
            strides = replace(strides, ldb=self.width, b_panel=0)
            adding = MicroKernels(f, "copied", strides, kernels.vectors, Into.ADDED)
            here = copy(here, strides.k)
            ahead = None if self.is_tall else self._behind_copy(first)

        def done(begin: Int, count: Int, at: Value) -> None:
            with f.when(is_last):
                finish.done(begin, count, at)

        def soon(begin: Int, count: Int) -> None:
            with f.when(is_last):
                finish.soon(begin, count)

        self._each(adding, left_rows, here, rows, sums, ahead, Finish(done, soon))

    def _behind_copy(self, first: Value) -> Ahead:
        """Return the data to prefetch while a chunk's copy in f32 is read: narrow elements, counted as
        f32."""
        f, item = self.f, self.arithmetic.bytes
        apart = f.udiv(f.mul(self.k, PANEL * item), F32.bytes) if self.width > PANEL else 0
        return Ahead(first, self.steps.chunk * PANEL * item // F32.bytes, apart, is_copied=True)

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
        kernels = MicroKernels(self.f, "rows", self.steps.in_blocks(strides), self.used_vectors(columns))
        self._for_last(columns)._each(kernels, a, b, rows, sums, None, finish)

    def from_cache(self, kernels: MicroKernels, a: Value, b: Value, rows: Int, sums: Value) -> None:
        """Leave the products of `rows` rows with whole rows of B, which are in the caches, in `sums`."""
        f = self.f
        ahead = kernels.unread(f, b, f.mul(NEAR, kernels.strides.ldb))

        def row_tile(number: Int, begin: Int, count: Int) -> None:
            left = f.at(a, "float", f.mul(begin, kernels.strides.lda))
            place = f.at(sums, "float", f.mul(begin, self.width))
            self._call(kernels, count, left, b, place, lambda _: ahead, 0, near=self.is_tall)

        each_tile(f, rows, self.most, row_tile)

    def in_place(self, strides: Strides, a: Value, b: Value, rows: Int, sums: Value, finish: Finish) -> None:
        """The same for at most `most` rows and B in place."""
        kernels = MicroKernels(self.f, "in_place", self.steps.in_blocks(strides), self.vectors)

        def row_tile(number: Int, begin: Int, count: Int) -> None:
            finish.soon(begin, count)
            self._multiply_rows(kernels, count, a, b, sums, near=True)
            finish.done(begin, count, sums)

        each_tile(self.f, rows, self.most, row_tile)

    def used_vectors(self, columns: Int | None) -> int:
        """Return the vectors of a micro-kernel for `columns`: at least one, else those known to be real."""
        return min(self.vectors, max(1, -(-columns // LANES))) if isinstance(columns, int) else self.vectors

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
        """Compute every row tile; sums of chunks (kernels that add) keep their addresses."""
        f = self.f
        is_added = kernels.into is Into.ADDED
        is_one_call = LANES * self.vectors == self.width or kernels.vectors < self.vectors
        is_whole = (is_one_call or kernels.into is Into.TOTALS) and not is_added
        ending = finish.ending if is_whole else None
        step = LANES * kernels.vectors

        def part(begin: Int, count: Int, first: int) -> Ending:
            assert ending is not None
            columns = None if self.columns == step else min(step, self.columns - first)
            return ending(begin, count, first, columns)

        def row_tile(number: Int, begin: Int, count: Int) -> None:
            left = kernels.strides.row(f, a, begin)
            place = f.at(sums, "float", f.mul(begin, self.width)) if is_added else sums
            finish.soon(begin, count)
            if ending is not None:
                firsts = range(0, max(self.columns, 1), step)
                parts = {first: part(begin, count, first) for first in firsts}
                ended = kernels.ended_by(replace(parts[0], others=parts))
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
        """Return the possible numbers of rows that one tall row tile for each panel takes.

        Three row tiles of so few rows would wait for B from the second-level cache (13 x 384 x 1536: 1.2
        times as long). A kernel of known rows then has only tall tiles.
        """
        if isinstance(self.m, int) or self.arithmetic.is_widened or self.width == PANEL:
            return []
        low, top, most_tall = least(self.m), most(self.m), SCHEDULES[default_schedule(self.f)].rows
        last = most_tall if top is None else min(most_tall, top)
        return [n for n in range(2 * self.most + 1, last + 1) if n >= low]

    def _tall(
        self, kernels: MicroKernels, a: Value, b: Value, rows: Int, sums: Value, finish: Finish
    ) -> None:
        """Compute all rows by one row tile for each panel; their number is one of `_tall_counts`."""
        f = self.f
        strides = replace(kernels.strides, b_panel=0, shares_all=True)
        one = MicroKernels(f, kernels.plain_name, strides, PANEL // LANES, kernels.into, self.arithmetic)
        finish.soon(0, rows)
        with f.loop(0, self.width, PANEL) as panel:
            there = f.at(b, one.element, f.mul(panel.index, self.k))
            place, near = f.at(sums, "float", panel.index), one.unread(f, there, NEAR * PANEL)
            dispatch(f, rows, self._tall_counts(), lambda n: one.call(n, a, there, place, near, near=True))
        finish.done(0, rows, sums)

    @property
    def _spread(self) -> Spread:
        """The division of the next cache lines among row tiles."""
        is_tall = LANES * self.vectors == PANEL or self.tile.keeps_totals
        return Spread(self.m, self.block, self.most, self.width // self.arithmetic.line, is_tall)

    def _multiply(
        self, kernels: MicroKernels, rows: Int, count: Int, a: Value, b: Value, number: Int, sums: Value,
        ahead: Ahead | None,
    ) -> None:  # fmt: skip
        """Compute row tile `number`, of `count` rows, of a block of `rows`.

        A single row tile is fed straight from memory: it prefetches in its own panels.
        """
        f = self.f
        by_chunks = self.steps.is_chunked and kernels.into is not Into.TOTALS
        steps = self.steps.chunk if by_chunks else self.k

        def alone() -> None:
            self._alone(kernels, count, a, b, sums)

        def spread(lines: int, counts: Sequence[int]) -> None:
            assert ahead is not None
            if ahead.is_new is not False:  # as many as an iteration reads of A
                lines = max(lines, -(-self.most * UNROLL // LANES))

            def place(r: int) -> Value:
                if ahead.is_new is False:
                    return ahead.share(f, kernels, steps, number, lines, b)
                rows_of_a = unread(f, a, f.mul(kernels.strides.lda, r))
                if ahead.is_new is True:
                    return rows_of_a
                return f.select(ahead.is_new, rows_of_a, ahead.share(f, kernels, steps, number, lines, b))

            self._call(kernels, count, a, b, sums, place, lines, counts=counts)

        if ahead is None and kernels.into is Into.ADDED:
            self._call(kernels, count, a, b, sums, lambda _: b, 0)
        elif ahead is None:
            self._multiply_rows(kernels, count, a, b, sums, near=False)
        elif kernels.arithmetic.is_widened or self.is_tall:
            alone()
        else:
            first, *others = self._spread.choices(1 if ahead.is_copied or ahead.is_only else self.most + 1)
            choice = partial(spread, *first[1:])
            for begin, lines, counts in others:
                choice = partial(f.either, f.is_less(rows, begin), choice, partial(spread, lines, counts))
            is_lone = f.is_less(self.m if isinstance(self.m, int) else rows, self.most + 1)
            is_first = f.is_less(number, 1) if ahead.is_only else is_lone
            f.either(False if ahead.is_copied else is_first, alone, choice)

    def _alone(self, kernels: MicroKernels, count: Int, a: Value, b: Value, sums: Value) -> None:
        near = kernels.unread(self.f, b, self.f.mul(NEAR, kernels.strides.ldb))
        self._call(kernels, count, a, b, sums, lambda _: near, 0, near=True)

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
        counts: Sequence[int] = (),
    ) -> None:
        """Call the micro-kernel for `count` rows, one of `counts` (none: any); `ahead(rows)`: the address
        that it prefetches."""
        f = self.f
        step = LANES * kernels.vectors

        def call(rows: int) -> None:
            from_here = ahead(rows)
            for first in range(0, self.columns, step):
                there, used = f.at(sums, "float", first), kernels.of_columns(self.columns - first)
                if first and used.ending is not None:
                    used = used.ended_by(used.ending.others[first])
                used.call(rows, a, f.at(b, kernels.element, first), there, from_here, lines, near)

        dispatch(f, count, counts or self.counts(), call)

    def _multiply_rows(
        self, kernels: MicroKernels, count: Int, a: Value, b: Value, sums: Value, near: bool
    ) -> None:
        """Compute a row tile against rows of B, with any number of parts of its sums."""
        f = self.f
        in_pieces = self.steps.in_pieces

        def part(begin: Int, left: Value, strides: Strides) -> None:
            right = f.at(b, kernels.element, f.mul(begin, strides.ldb))
            added = MicroKernels(f, f"{kernels.name}_added", strides, kernels.vectors, Into.ADDED)
            ahead = kernels.unread(f, right, f.mul(NEAR, strides.ldb)) if near else right
            used = added if in_pieces else kernels.at(strides)
            self._call(used, count, left, right, sums, lambda _: ahead, 0, near)

        def group(begin: Int, end: Int) -> None:
            if not in_pieces:
                block = BLOCK if isinstance(self.k, int) else f.i64(BLOCK)
                strides = replace(kernels.strides, k=f.i64(f.sub(end, begin)), block=block)
                part(begin, f.at(a, "float", begin), strides)
                return
            self.arithmetic.fill(f, sums, f.mul(count, self.width))
            with f.loop(begin, end, nonempty=True) as number:
                part(*self.steps.of_chunk(kernels.strides, a, number.index))

        def whole() -> None:
            if in_pieces:
                group(0, self.steps.n_chunks)
            else:
                part(0, a, kernels.strides)

        total, size = (self.steps.n_chunks, GROUP) if in_pieces else (self.k, GROUP * BLOCK)
        if not self.steps.may_have_groups:
            whole()
        elif isinstance(total, int):
            self._groups(total, size, sums, count, group)
        else:
            is_one = f.less(total, size + 1)
            f.either(is_one, whole, lambda: self._groups(total, size, sums, count, group))

    def _groups(
        self, total: Int, size: int, sums: Value, count: Int, group: Callable[[Int, Int], None]
    ) -> None:
        """Emit `group(begin, end)`, which leaves sums, for each `size` of `total`; leave the sums of all."""
        f, floats = self.f, self.f.mul(count, self.width)
        totals = f.at(sums, "i8", self._sums_bytes(in_panels=False))
        self.arithmetic.fill(f, totals, floats)
        with f.loop(0, total, size) as at:
            group(at.index, f.minimum(f.add(at.index, size), total))
            self.arithmetic.add_to(f, totals, sums, floats)
        copy_to(f, sums, totals, floats)
