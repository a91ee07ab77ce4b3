"""Few rows against a weight in panels, read from memory: several panels at once.

A core prefetches a stream only a limited distance ahead, whatever the code prefetches, so reading panel after
panel leaves memory half idle. Here GEMV_PANELS panels are read in parallel, STEP_BYTES of each in turn, as
many of them in registers at once as there are accumulators for. The hardware prefetchers of other cores read
few streams faster than software prefetches do: there (`Schedule.asks` False) a weight is read from front to
back, panel after panel, as a single stream. If a step reads less than a line of a panel, sums would wait for
the previous step: then as many panels as there are accumulators for are read in parallel, at most
UNASKED_PANELS, and then the next ones. If these are short, cores would detect the next ones too late, so
those are prefetched line by line. The order of every sum is that of `sums`, so the bits are those of any
other tile.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from ...llvm.function import Function, Int, Value, least, most
from ...llvm.prefetch import LINE_BYTES, unread
from ...loops.bodies import LANES
from .arithmetic import fill
from .grouped import FOUR, NIBBLE, PAIR, GroupSums
from .microkernel import Into, MicroKernels
from .problem import Problem
from .row_shares import dispatch, each_tile, shares, split
from .row_tiles import copy_to
from .schedules import PANEL
from .strides import UNROLL, Strides
from .sums import BLOCK, GROUP, LONG, block_of_short

GEMV_PANELS = 6  # panels read side by side
UNASKED_PANELS = 4  # whose sums the epilogue takes if nothing is prefetched
STEP_BYTES = 1024  # of each panel in turn: a stream's next lines arrive while other panels are read
NEAR_BYTES = 2048  # of a panel that are prefetched; twice that fills all ways of a cache set
#: The same for groups of steps with scales, if whole groups are shorter, by the steps that are stored
#: together.
NEAR_GROUP_BYTES = {1: 640, PAIR: 640, FOUR: 1280}
NEAR_DIGITS_BYTES = 512  # with limbs, three panels in parallel: 1,280 are 1.3 times as slow on Zen 4
DOTS_IN_TIME = 8  # of a line of B with limbs that cost no more than a line from memory
SOON_BYTES = 128 << 10  # of parallel panels up to which the next ones are prefetched meanwhile
LEAST_STEPS = 32  # of k; shorter sums are left to the row tiles
MAX_ROWS = 8  # with more, arithmetic hides memory latency as well
READ_TWICE = 4  # rows for which widening a weight twice, with prefetches, is faster than a copy


def fits(problem: Problem) -> bool:
    """Whether a kernel of `problem` may have few enough rows."""
    is_one = not problem.groups and not problem.spec.product.batch
    return problem.in_panels and is_one and max_rows(problem) > 0


def max_rows(problem: Problem) -> int:
    """Return the most rows that are multiplied this way; 0: none."""
    if not isinstance(problem.k, int) or problem.k < LEAST_STEPS:
        return 0
    top, few = most(problem.m), _limit(problem)
    few = few if top is None else min(few, top)
    return few if least(problem.m) <= few else 0


def _limit(problem: Problem) -> int:
    """Return the most rows of any product: of a grouped weight that multiplies f32, READ_TWICE, or those
    whose sums of a panel fit in registers. More rows share a widened copy."""
    groups, tile = problem.grouped, problem.schedule
    if groups is None or groups.together > 1:
        return MAX_ROWS
    return min(MAX_ROWS, max(READ_TWICE, tile.rows * tile.vectors * LANES // PANEL))


def panels_of(problem: Problem) -> int:
    """Return the number of panels whose sums the epilogue takes."""
    return GEMV_PANELS if problem.schedule.asks else UNASKED_PANELS


def sums_bytes(problem: Problem) -> int:
    """Return the bytes of scratch for sums, those of previous groups and those of a block, plus those of a
    part if panels are read in parts."""
    areas = (3 if block_of(problem) else 1) + (not problem.schedule.asks)
    return 4 * max_rows(problem) * panels_of(problem) * PANEL * areas


def block_of(problem: Problem) -> int:
    """Return the steps of a block of a sum; 0: it is one chain."""
    if not isinstance(problem.k, int) or problem.k >= LONG:
        return BLOCK
    return block_of_short(problem.k, problem.spec.product.chain)


class Gemv:
    """Products of few rows with `panels` panels."""

    def __init__(self, f: Function, problem: Problem) -> None:
        self.f, self.k, self.tile = f, problem.k, problem.schedule
        self.max_rows, self.arithmetic = max_rows(problem), problem.arithmetic
        self.block = block_of(problem)
        self.groups, self.panels = problem.grouped, panels_of(problem)
        self.row_bytes = self.groups.row_bytes if self.groups else PANEL * self.arithmetic.bytes

    def vectors(self, rows: int) -> int:
        """Return the vectors of a micro-kernel for `rows` rows: whole panels if registers hold them."""
        panels = self.tile.rows * self.tile.vectors * LANES // (rows * PANEL)
        fitting = [n for n in range(1, self.panels + 1) if self.panels % n == 0 and n <= panels]
        return fitting[-1] * PANEL // LANES if fitting else self.tile.vectors

    def multiply(self, strides: Strides, a: Value, b: Value, rows: Int, sums: Value) -> None:
        """Leave the sums of `rows` <= `max_rows` rows and the panels at `b` in `sums`."""
        f, multiply = self.f, self._multiply if self.tile.asks else self._by_parts
        place = replace(strides, ldc=self.panels * PANEL, b_panel=f.mul(self.k, PANEL))
        counts = range(max(least(rows), 1), self.max_rows + 1) if not isinstance(rows, int) else [rows]
        dispatch(f, rows, list(counts), lambda n: multiply(place, a, b, n, sums))

    def _by_parts(self, strides: Strides, a: Value, b: Value, rows: int, sums: Value) -> None:
        """Multiply all steps of one panel, or of as many as registers have sums for, then the next ones."""
        f, part = self.f, copy(self)
        vectors = self.vectors(max(shares(rows, self.tile.rows)))
        part.panels = 1 if self.row_bytes >= LINE_BYTES else max(1, vectors * LANES // PANEL)
        if part.panels == self.panels:
            self._multiply(strides, a, b, rows, sums)
            return
        width, beside = part.panels * PANEL, f.at(sums, "float", rows * self.panels * PANEL)
        with f.loop(0, self.panels * PANEL, width) as at:
            here = f.at(b, self._element, f.mul(at.index, self._column))
            part._multiply(replace(strides, ldc=width), a, here, rows, beside)
            for r in range(rows):
                to = f.at(sums, "float", f.add(at.index, r * self.panels * PANEL))
                copy_to(f, to, f.at(beside, "float", r * width), width)

    def _soon(self, b: Value, place: Int, rows: int, vectors: int) -> Value | None:
        """Return the prefetches of micro-kernels of `vectors` vectors while they multiply the panels at `b`
        from `place` bytes on: the lines at the same offset in the next panels. None: no prefetches."""
        is_once = rows <= self.tile.rows and vectors * LANES == self.panels * PANEL
        is_short = self.row_bytes < LINE_BYTES and self.panels * self._panel_bytes <= SOON_BYTES
        if self.tile.asks or not (is_once and is_short):
            return None
        return unread(self.f, b, self.f.mul(self.f.add(self._panel_bytes, place), self.panels), "i8")

    @property
    def _lines_soon(self) -> int:
        """The lines of the next panels per iteration."""
        assert isinstance(self.k, int)
        return -(-UNROLL * self.panels * self._panel_bytes // (self.k * LINE_BYTES))

    @property
    def _panel_bytes(self) -> int:
        assert isinstance(self.k, int)
        return self.k * self.row_bytes

    @property
    def _element(self) -> str:
        return self.arithmetic.element

    @property
    def _column(self) -> Int:
        """The elements of a panel, by its columns."""
        return self.k

    def _multiply(self, strides: Strides, a: Value, b: Value, rows: int, sums: Value) -> None:
        f, k = self.f, self.k
        assert isinstance(k, int)
        if not self.block:
            self._chain(strides, a, b, 0, k, rows, sums)
            return
        floats, whole = rows * self.panels * PANEL, k // self.block * self.block
        groups, chain = (f.at(sums, "float", n * floats) for n in (1, 2))

        def block(begin: Int, steps: int) -> None:
            if self._has_groups():
                with f.when(f.less(f.i64(f.urem(begin, GROUP * BLOCK)), 1)):
                    self.arithmetic.add_to(f, groups, sums, floats)
                    self.arithmetic.fill(f, sums, floats)
            self._chain(strides, a, b, begin, steps, rows, chain, sums)

        for totals in (sums, groups) if self._has_groups() else (sums,):
            self.arithmetic.fill(f, totals, floats)
        with f.loop(0, whole, self.block) as at:
            block(at.index, self.block)
        if whole < k:
            block(whole, k - whole)
        if self._has_groups():
            self.arithmetic.add_to(f, groups, sums, floats)
            copy_to(f, sums, groups, floats)

    def _has_groups(self) -> bool:
        """Whether a sum has several groups of blocks."""
        return isinstance(self.k, int) and self.k > GROUP * BLOCK

    def _chain(
        self, strides: Strides, a: Value, b: Value, first: Int, count: int, rows: int, sums: Value,
        totals: Value | None = None,
    ) -> None:  # fmt: skip
        """Leave the chains of `count` steps from `first` on in `sums`, or add them to `totals`."""
        f = self.f
        vectors = self.vectors(max(shares(rows, self.tile.rows)))
        if vectors * LANES == self.panels * PANEL or not self.tile.asks:
            into, to = (Into.CHAIN, sums) if totals is None else (Into.ADDED, totals)
            name = f"streams{count}" if totals is not None else "streams"
            kernels = MicroKernels(f, name, replace(strides, k=count), vectors, into, self.arithmetic)
            here = f.at(b, kernels.element, f.mul(first, PANEL))
            soon = self._soon(b, f.mul(first, self.row_bytes), rows, vectors)
            self._panels(kernels, f.at(a, "float", first), here, rows, to, soon)
            return
        floats, in_turn = rows * self.panels * PANEL, STEP_BYTES // self.row_bytes
        fill(f, sums, floats, 0.0)
        whole = count // in_turn * in_turn
        for begin, end, steps in ((0, whole, in_turn), (whole, count, count - whole)):
            if begin == end:
                continue
            part = replace(strides, k=steps)
            kernels = MicroKernels(f, f"streams{steps}", part, vectors, Into.GOES_ON, self.arithmetic)
            with f.loop(f.add(first, begin), f.add(first, end), steps) as turn:
                here = f.at(b, kernels.element, f.mul(turn.index, PANEL))
                self._panels(kernels, f.at(a, "float", turn.index), here, rows, sums)
        if totals is not None:
            self.arithmetic.add_to(f, totals, sums, floats)

    def _panels(
        self, kernels: MicroKernels, a: Value, b: Value, rows: int, sums: Value, soon: Value | None = None
    ) -> None:
        """Multiply `kernels`' steps of all panels; `soon`: prefetches meanwhile."""
        f, width = self.f, LANES * kernels.vectors
        lines = self._lines_soon if soon else 0
        with f.loop(0, self.panels * PANEL, max(width, PANEL)) as panel:
            right = f.at(b, kernels.element, f.mul(panel.index, self.k))
            near = soon or right
            if self.tile.asks:
                near = kernels.unread(f, right, NEAR_BYTES // self.row_bytes * PANEL)

            for begin, count in split(rows, self.tile.rows):
                left = f.at(a, "float", f.mul(begin, kernels.strides.lda))
                line = f.at(sums, "float", f.add(panel.index, begin * self.panels * PANEL))
                for first in range(0, max(width, PANEL), width):
                    there, to = f.at(right, kernels.element, first), f.at(line, "float", first)
                    kernels.call(count, left, there, to, near, lines, near=self.tile.asks)


class GroupedGemv(Gemv):
    """The same for weights whose groups of steps have separate scales."""

    def vectors(self, rows: int) -> int:
        """See Gemv: whole panels."""
        return max(2, super().vectors(rows * self.arithmetic.planes))

    @property
    def _element(self) -> str:
        return "i8"

    @property
    def _panel_bytes(self) -> int:
        assert self.groups is not None
        return self.groups.panel_bytes

    @property
    def _column(self) -> Int:
        return self._panel_bytes // PANEL

    def _multiply(self, strides: Strides, a: Value, b: Value, rows: int, sums: Value) -> None:
        f, groups = self.f, self.groups
        assert groups is not None
        vectors, width = self.vectors(rows), self.panels * PANEL
        columns = GroupSums(f, groups, self.panels, width)
        kernels = GroupSums(f, groups, vectors * LANES // PANEL, width).kernels(
            "grouped_few", strides.lda, vectors
        )

        def group(number: Int) -> None:
            place = f.mul(number, groups.bytes)
            left, right = f.at(a, "float", f.mul(number, groups.left)), f.at(b, "i8", place)
            self._panels(kernels, left, right, rows, sums, self._soon(b, place, rows, vectors))

        floats = rows * width
        totals = columns.totals(sums, floats)
        columns.add_up(sums, totals, floats, group)
        if totals is not sums:
            copy_to(f, sums, totals, floats)

    def _panels(
        self, kernels: MicroKernels, a: Value, b: Value, rows: int, sums: Value, soon: Value | None = None
    ) -> None:
        """See Gemv: the group at `b`."""
        f, groups, vectors = self.f, self.groups, kernels.vectors
        assert groups is not None
        most = groups.most_rows(self.tile, vectors)
        with f.loop(0, self.panels, vectors * LANES // PANEL) as panel:
            right = f.at(b, "i8", f.mul(panel.index, groups.panel_bytes))
            there = f.at(sums, "float", f.mul(panel.index, PANEL))

            def row_tile(number: Int, begin: Int, count: Int) -> None:
                left = f.at(a, "float", f.mul(begin, kernels.strides.lda))
                line = f.at(there, "float", f.mul(begin, self.panels * PANEL))
                ahead = (soon, self._lines_soon, False) if soon else self._near(right, rows)
                each = sorted(shares(rows, most))
                dispatch(f, count, each, lambda n: kernels.call(n, left, right, line, *ahead))

            each_tile(f, rows, most, row_tile)

    def _near(self, right: Value, rows: int) -> tuple[Value, int, bool]:
        """Return a micro-kernel's prefetches in the panels at `right`, and their kind."""
        groups = self.groups
        assert groups is not None
        if groups.dots(rows) > DOTS_IN_TIME:
            return groups.ahead(self.f, right)
        if not self.tile.asks or (groups.together < FOUR and groups.dtype != NIBBLE):
            return right, 0, False  # or arithmetic is slower than memory
        near = NEAR_DIGITS_BYTES if groups.planes > 1 else NEAR_GROUP_BYTES[groups.together]
        return unread(self.f, right, near // groups.bytes * groups.bytes or near, "i8"), 0, True


def gemv_of(f: Function, problem: Problem) -> Gemv:
    """Return the products of few rows of `problem`."""
    return Gemv(f, problem) if problem.grouped is None else GroupedGemv(f, problem)
