"""Row reductions across memory: lanes are adjacent iterations of another loop, the columns, and move down the
rows.

Each lane reduces one column, so the result does not depend on how many vectors are processed together or
which columns share a vector. The order within a column is that of `reduce`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...loops.bodies import LANES, BodyEmitter, Position, find_depends
from ...loops.loops import Loops
from ...loops.strip_mining import State, each, rounded_down, strip
from ...loops.tiling import Range
from ...spec import Index, Nest
from .plan import Pass
from .reduce import BLOCK, GROUP, REDUCTIONS, Accumulator, repaired
from .rows import Passes, Values

MIN_COLUMNS = 3  # fewer, if the spec fixes them, do not fill the lanes
SIDE_BY_SIDE = 4  # vectors of columns that are reduced together: 256 bytes of f32 from each row


def find_columns(spec: Nest) -> int | None:
    """Return the loop along which memory is contiguous, if rows run across it.

    The loads that depend on the row and on most other loops decide, weighted by bytes: along the row, or
    along the columns. This depends only on the spec, so all tiers agree.
    """
    row = len(spec.domain) - 1
    if not any(instr.op in REDUCTIONS for instr in spec.body):
        return None
    depends = find_depends(spec.body, row)
    loads = [
        i
        for i, instr in enumerate(spec.body)
        if instr.op == "load" and row in depends[i] and len(depends[i]) > 1
    ]
    most = max((len(depends[i]) for i in loads), default=0)
    along: Counter[int] = Counter()
    for i in loads:
        place = _innermost(spec, spec.body[i].index, spec.body[i].buffer or 0)
        if len(depends[i]) == most and place.loop is not None and abs(place.scale) == 1:
            along[place.loop] += DTYPES[spec.body[i].dtype].bytes
    loop, _ = max(along.items(), key=lambda item: (item[1], item[0]), default=(row, 0))
    size = spec.domain[loop]
    return None if loop == row or isinstance(size, int) and size < MIN_COLUMNS else loop


def _innermost(spec: Nest, index: Sequence[Index], buffer: int) -> Index:
    """Return the place along the last axis that is not known to have size 1."""
    axes = zip(index, spec.buffers[buffer].shape, strict=True)
    return next((place for place, size in reversed(list(axes)) if size != 1), Index())


class Columns(Passes):
    """The passes over rows that run across memory; the loops end with the columns and the row."""

    step = LANES * SIDE_BY_SIDE  # columns that are reduced together

    def __init__(self, f: Function, loops: Loops, bodies: BodyEmitter) -> None:
        super().__init__(f, loops, bodies)
        self.columns = self.row - 1
        self._place_kept(loops.domain[self.row], self.step)

    def emit(self, parts: Sequence[Range]) -> None:
        """Emit the work of a tile: `parts` of the loops."""
        each(self.f, parts[:-2], lambda outer: self._emit_columns(outer, parts[-2]))

    def _emit_columns(self, outer: tuple[Int, ...], part: Range) -> None:
        f = self.f
        whole = rounded_down(f, part, self.step)
        rest = f.add(part.begin, whole)
        if whole != 0:
            with f.loop(part.begin, rest, self.step) as loop:
                firsts = [f.add(loop.index, LANES * v) for v in range(SIDE_BY_SIDE)]
                self.emit_passes([Position((*outer, first, 0)) for first in firsts])
        if part.is_multiple(self.step):
            return
        part = Range(rest, f.sub(part.count, whole), gcd(part.known, self.step))

        def chunk(index: Int, mask: Value | None, state: State) -> State:
            self.emit_passes([Position((*outer, index, 0), mask)])
            return state

        strip(f, part, 1, chunk)

    def run(self, p: Pass, places: Sequence[Position], given: Sequence[Values]) -> list[Values]:
        """Emit one pass; see `Passes.run`."""
        if not p.reduces:
            with self.f.loop(0, self.length) as rows:
                self._add_row(p, places, given, None, rows.index, [])
            return [{} for _ in places]
        accumulators = [self.accumulators[i] for i in p.reduces] * len(places)
        totals = self._totals(p, places, given, accumulators)
        ends = iter(a.finish(total) for a, total in zip(accumulators, totals, strict=True))
        return [{i: next(ends) for i in p.reduces} for _ in places]

    def _totals(
        self,
        p: Pass,
        places: Sequence[Position],
        given: Sequence[Values],
        accumulators: Sequence[Accumulator],
    ) -> list[Value]:
        """Emit a pass, repeated if totals are out of range; return them."""
        totals = self._sweep(p, places, given, None, accumulators)
        if not self.can_repeat(p):
            return totals

        def again(scale: Value) -> list[Value]:
            return self._sweep(p, places, given, scale, accumulators)

        return repaired(self.f, accumulators, totals, places[0].mask, again)

    def _sweep(
        self,
        p: Pass,
        places: Sequence[Position],
        given: Sequence[Values],
        scale: Value | None,
        accumulators: Sequence[Accumulator],
    ) -> list[Value]:
        """Emit a pass, the elements of sums times `scale`; return the totals."""
        f = self.f
        with f.loop(0, self.length, BLOCK, [a.total for a in accumulators]) as blocks:
            part = Range(blocks.index, f.minimum(BLOCK, f.sub(self.length, blocks.index)))
            sums = self._block(p, places, given, scale, part, accumulators)
            folded = zip(accumulators, blocks.carried, sums, strict=True)
            blocks.next(*(a.fold(total, block) for a, total, block in folded))
        return blocks.results

    def _block(
        self,
        p: Pass,
        places: Sequence[Position],
        given: Sequence[Values],
        scale: Value | None,
        part: Range,
        accumulators: Sequence[Accumulator],
    ) -> State:
        """Emit a block of rows, group by group; return the sums."""
        f, start = self.f, [a.start for a in accumulators]

        def joined(sums: State, group: State) -> State:
            return [a.combine(x, y) for a, x, y in zip(accumulators, sums, group, strict=True)]

        def walked(begin: Int, end: Int) -> State:
            with f.loop(begin, end, 1, start) as rows:
                rows.next(*self._add_row(p, places, given, scale, rows.index, rows.carried))
            return rows.results

        if len(places) == 1 or scale is not None or not p.is_short(self.bodies):
            with f.loop(part.begin, part.end(f), GROUP, start) as groups:
                end = f.minimum(f.add(groups.index, GROUP), part.end(f))
                groups.next(*joined(groups.carried, walked(groups.index, end)))
            return groups.results
        rest = f.add(part.begin, rounded_down(f, part, GROUP))
        with f.loop(part.begin, rest, GROUP, start) as groups:
            group = None
            for row in range(GROUP):
                group = self._add_row(p, places, given, scale, f.add(groups.index, row), group)
            groups.next(*joined(groups.carried, group or []))
        return joined(groups.results, walked(rest, part.end(f)))

    def _add_row(
        self,
        p: Pass,
        places: Sequence[Position],
        given: Sequence[Values],
        scale: Value | None,
        row: Int,
        state: State | None,
    ) -> State:
        """Emit one row of a pass at `places`; return the new sums; None: they start with this row."""
        f, emit = self.f, self.bodies.emit
        here = [replace(at, loops=(*at.loops[:-1], row)) for at in places]
        elements = [f.add(f.mul(row, self.step), LANES * v) for v in range(len(here))]
        known = [given[v] | self.reread(p, element) for v, element in enumerate(elements)]
        uniform = [i for i in p.ids if self._is_uniform(i)]
        common = emit(uniform, here[0], known[0])
        after: State = []
        sums = None if state is None else iter(state)
        for at, element, before in zip(here, elements, known, strict=True):
            values = emit(p.ids, at, before | {i: common[i] for i in uniform})
            self.keep(p, values, element)
            for i in p.reduces:
                one = self.accumulators[i]
                after.append(one.element(values) if sums is None else one.add(next(sums), values, scale))
        return after

    def _is_uniform(self, i: int) -> bool:
        """Whether instruction i has the same value in all columns, so that one suffices for all vectors."""
        return self.body[i].op != "store" and self.columns not in self.bodies.depends[i]
