"""Prefetching by row tiles while they compute: their shares of the next part of B.

If B is a weight in panels, the next panels follow in memory. Each iteration of a micro-kernel's loop
prefetches some cache lines of them: fewer if more row tiles share them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...llvm.function import Function, Int, Value
from .microkernel import MicroKernels
from .row_shares import row_counts, shares
from .strides import UNROLL

SPREAD = (1, 2, 4)  # lines that an iteration of a micro-kernel may prefetch: each choice is a part to compile


@dataclass(frozen=True)
class Ahead:
    """The next part of B: `size` elements at `first`, and as many `apart` elements later (0: no more).

    `is_new`: A's rows come from memory. Then the rows after a row tile's own are prefetched: a core's
    prefetcher predicts only the rest of each row. `is_only`: there are no other columns of B, and the first
    row tile reads its rows from memory. `is_copied`: several row tiles read a copy of B.
    """

    first: Value
    size: Int
    apart: Int = 0
    is_new: Value | bool = False
    is_only: bool = False
    is_copied: bool = False

    def share(
        self, f: Function, kernels: MicroKernels, steps: Int, number: Int, lines: int, near: Value
    ) -> Value:
        """Return the address from which row tile `number` prefetches `lines` an iteration in its `steps`
        steps; `near`, which is in the first-level cache, if none are left."""
        begin = f.mul(number, f.mul(f.udiv(steps, UNROLL), lines * kernels.line))
        if begin == 0:
            return self.first
        place, end = kernels.unread(f, self.first, begin), self.size
        if self.apart != 0:
            second = kernels.unread(f, place, f.sub(self.apart, self.size))
            is_first = f.less(begin, self.size)
            place = f.select(is_first, place, second)
            end = f.mul(end, 2)
        is_left = f.less(begin, end)
        return f.select(is_left, place, near)


@dataclass(frozen=True)
class Spread:
    """The number of cache lines that each iteration of row tiles prefetches, for at most `most` of `m` rows
    in blocks of `block` rows. `n_lines`: the lines of a step of B, of all its columns. `is_tall`: whether row
    tiles are.
    """

    m: Int
    block: int
    most: int
    n_lines: int
    is_tall: bool

    def choices(self, least_rows: int) -> list[tuple[int, int, list[int]]]:
        """Return, for blocks of at least `least_rows` rows, (the least number of rows, the cache lines that
        an iteration then prefetches, the numbers of rows of row tiles), fewest rows first."""
        lines = self.lines_of_trips()[::-1]
        begins = [least_rows, *(max(least_rows, self.enough(n)) for n in lines[1:])]
        ends = [*begins[1:], None]
        counts = [self.counts_of(*bounds) for bounds in zip(begins, ends, strict=True)]
        return list(zip(begins, lines, counts, strict=True))

    def lines_of_trips(self) -> tuple[int, ...]:
        """Return the cache lines that an iteration may prefetch: the same for all known numbers of rows above
        a limit, so that their kernels are shared. Code of any number of rows has a micro-kernel for each
        number of lines and of rows of a tile: of tall tiles for one number of lines."""
        if not isinstance(self.m, int):
            return SPREAD[-1:] if self.is_tall else SPREAD
        return SPREAD[:-1] if min(self.m, self.block) >= self.enough(SPREAD[-2]) else SPREAD[-1:]

    def counts_of(self, begin: int, end: int | None) -> list[int]:
        """Return the numbers of rows of the tiles into which `begin` to below `end` rows (None: any more) are
        split."""
        past_all = max(begin, self.most**2) + self.most  # from most**2 on they are most and most - 1 alone
        found = set[int]().union(*(shares(n, self.most) for n in range(begin, end or past_all + 1)))
        counts = row_counts(self.m, self.block, self.most)
        return [n for n in counts if n in found] or counts

    def enough(self, lines: int) -> int:
        """Return the rows from which row tiles that prefetch `lines` an iteration cover all of `ahead`."""
        wanted = self.n_lines * UNROLL  # each iteration, of all row tiles together
        return self.most * (-(-wanted // lines) - 1) + 1
