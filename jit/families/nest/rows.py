"""Row reductions: the passes of a `plan` over the row loop, and rows whose lanes are along it.

Rows that run across memory are handled by `columns`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from ...llvm.abi import RT_SCRATCH
from ...llvm.dtypes import DTYPES, vector
from ...llvm.function import Function, Int, Value, multiple_of
from ...loops.bodies import LANES, BodyEmitter, Position
from ...loops.loops import Loops
from ...loops.nontemporal import AHEAD, bypasses, either_way, read_ahead
from ...loops.strip_mining import State, each, strip
from ...loops.tiling import Range
from ...spec import Instr, Size, Terms
from .plan import Pass, plan_of
from .reduce import CHAIN, MAX_ACCUMULATORS, Accumulator, repaired

SHORT_UNROLL = 4  # chunks of an iteration of a short pass
BLOCK = MAX_ACCUMULATORS * CHAIN * LANES
LONG_ROW = 128 * 1024  # bytes; more than one such row would crowd the second-level cache
SHORT_ROW = 8 * 1024
HALF_PAGE = 2048  # bytes: accesses whole pages apart wait for each other
FIRST_CACHE = 48 * 1024  # bytes of the first-level cache
Values = dict[int, Value]  # instruction ids -> their values in one vector of lanes


class Passes(ABC):
    """The passes over rows, for any direction of lanes; construct it in the entry block.

    `scratch`: the code object's.
    """

    def __init__(self, f: Function, loops: Loops, bodies: BodyEmitter) -> None:
        self.f = f
        self.bodies = bodies
        self.row = len(loops.domain) - 1
        self.length = loops.extent(self.row)
        self.hoisted = bodies.hoistable(self.row)
        self.plan = plan_of(bodies, self.row)
        self.accumulators = {i: self._accumulator(self.body[i]) for i in self.plan.reductions}
        self.places: dict[int, Value] = {}
        self.scratch: Terms = ()

    @property
    def body(self) -> tuple[Instr, ...]:
        """The instructions of the loops' body."""
        return self.bodies.body

    @property
    def passes(self) -> Sequence[Pass]:
        """The passes, in order."""
        return self.plan.passes

    def _accumulator(self, instr: Instr) -> Accumulator:
        return Accumulator(self.f, instr, self.body, self.plan.varying[instr.args[0]])

    def _place_kept(self, length: Size, width: int, gap: int = 0) -> None:
        """Place each kept value in scratch: `width` elements for each iteration of the row and `gap`, whole
        vectors."""
        f = self.f
        kept = [i for p in self.passes for i in p.kept]
        if not kept:
            return
        place = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)
        elements = f.add(f.mul(self.length, width), gap)
        padded = elements if width % LANES == 0 else f.mul(f.ceildiv(elements, LANES), LANES)
        for i in kept:
            n_bytes = 8 if self._register(i) == "double" else 4
            self.places[i] = place
            place = f.at(place, "i8", f.mul(padded, n_bytes))
            self.scratch += ((n_bytes * width, (length,)),)
            self.scratch += ((n_bytes * gap, ()),) if gap else ()
            self.scratch += () if width % LANES == 0 else ((n_bytes * LANES, ()),)

    def _register(self, i: int) -> str:
        return DTYPES[self.body[i].dtype].register

    def emit_passes(self, places: Sequence[Position]) -> None:
        """Emit all passes for the vectors of lanes at `places`, at which the row loop is 0."""
        given = self.start(places)
        for n, p in enumerate(self.passes):
            given = self.known_after(n, places, given, self.run(p, places, given))
        stores = [i for i, instr in enumerate(self.body) if instr.op == "store" and not self.plan.varying[i]]
        for at, values in zip(places, given, strict=True):
            self.bodies.emit(stores, at, values)

    def start(self, places: Sequence[Position]) -> list[Values]:
        """Return the values known before the first pass."""
        return [self.bodies.emit(self.hoisted, at) for at in places]

    def known_after(
        self, n: int, places: Sequence[Position], given: Sequence[Values], results: Sequence[Values]
    ) -> list[Values]:
        """Return the values known after pass number n with these `results`."""
        given = [{**old, **new} for old, new in zip(given, results, strict=True)]
        fixed = [i for i in self.bodies.ids if self._is_row_value(i, n + 1) and i not in given[0]]
        return [self.bodies.emit(fixed, at, values) for at, values in zip(places, given, strict=True)]

    def can_repeat(self, p: Pass) -> bool:
        """Whether a pass has reductions that may need another attempt, and stores nothing along the row."""
        return not p.stores and any(self.accumulators[i].is_scaled for i in p.reduces)

    def _is_row_value(self, i: int, level: int) -> bool:
        """Whether instruction i is fixed in a row, and known after `level` passes."""
        is_value = self.body[i].op != "store" and i not in self.plan.reductions
        return is_value and not self.plan.varying[i] and self.plan.levels[i] <= level

    @abstractmethod
    def run(self, p: Pass, places: Sequence[Position], given: Sequence[Values]) -> list[Values]:
        """Emit one pass with the values `given` at each place; return the results of its reductions."""

    def keep(self, p: Pass, values: Values, element: Int) -> None:
        """Write the values that later passes need to scratch, from element `element` of each value's area."""
        for i in p.kept:
            self.f.store(values[i], self.f.at(self.places[i], self._register(i), element), align=4)

    def reread(self, p: Pass, element: Int) -> Values:
        """Read the values that earlier passes kept."""
        return {
            i: self.f.load(
                vector(self._register(i), LANES),
                self.f.at(self.places[i], self._register(i), element),
                align=4,
            )
            for i in p.reread
        }


@dataclass(frozen=True)
class Running:
    """A pass at a row, with the known values, and the first element of scratch for the row's values."""

    work: Pass
    outer: tuple[Int, ...]
    given: Values
    kept_at: Int = 0


class _Carried:
    """The known values of a row that are read later, carried from row to row."""

    def __init__(self, known: Values, read: set[int]) -> None:
        self.first = known
        self.ids = [i for i in known if i in read and known[i].name.startswith("%")]

    def of(self, known: Values) -> list[Value]:
        """Return the values to carry."""
        return [known[i] for i in self.ids]

    def known(self, values: Sequence[Value]) -> Values:
        """Return the known values, with the carried `values`."""
        return self.first | dict(zip(self.ids, values, strict=True))


class Rows(Passes):
    """The passes over rows that lie along memory: lanes are neighbours in the row.

    Rows whose results bypass the caches are pipelined: the last pass of a row is interleaved with the
    second-last pass of the next row and, if there are three, the first pass of the row after that, so memory
    reads and writes all the time rather than in separate passes.
    """

    def __init__(self, f: Function, loops: Loops, bodies: BodyEmitter) -> None:
        super().__init__(f, loops, bodies)
        stores = [self.body[i] for i in self.passes[-1].stores]
        self.bypasses, self.is_bypassing = bypasses(f, loops, bodies, stores), False
        self.is_late = self.bypasses is not False and self._can_be_late()
        self._place_kept(loops.domain[self.row], *((2, HALF_PAGE // 4) if self.is_late else (1,)))

    def _can_be_late(self) -> bool:
        """Whether there is one outer loop, all stores are along the row, and two rows fit."""
        stores = [i for i, instr in enumerate(self.body) if instr.op == "store"]
        is_plain = self.row == 1 and len(self.passes) > 1 and stores == self.passes[-1].stores
        return is_plain and self._row_bytes() <= LONG_ROW

    @property
    def is_deep(self) -> bool:
        """Whether rows are late, in three passes, and the data of three rows fits the first-level cache."""
        is_plain = len(self.passes) == 3 and not self.passes[0].kept
        return self.is_late and is_plain and self._bytes_in_use() <= FIRST_CACHE

    def _bytes_in_use(self) -> int:
        """Return the bytes of three rows, and of the kept values of two."""
        return self._row_bytes() * (3 + 2 * sum(len(p.kept) for p in self.passes))

    @property
    def kept_apart(self) -> Int:
        """Elements from the kept values of a row to those of the next."""
        return self.f.add(self.length, HALF_PAGE // 4)

    def _row_bytes(self) -> int:
        """Return the bytes of the longest row that the first pass computes with."""
        assert isinstance(self.length, int)
        return self.length * max(DTYPES[self.body[i].dtype].bytes for i in self.passes[0].ids)

    def emit(self, parts: Sequence[Range]) -> None:
        """Emit the work of a tile: `parts` of the loops."""

        def run(is_bypassing: bool) -> None:
            self.is_bypassing = is_bypassing
            if is_bypassing and self.is_late:
                with self.f.when(self.f.less(0, parts[0].count)):
                    self._emit_late(parts[0])
            else:
                each(self.f, parts[:-1], lambda outer: self.emit_passes([Position((*outer, 0))]))

        either_way(self.f, self.bypasses, run)

    def _emit_late(self, rows: Range) -> None:
        """Emit all passes of `rows`, the last of each row interleaved with passes of later rows."""
        if self.is_deep:
            self._emit_deep(rows)
            return
        f, last = self.f, self.passes[-1]
        first = self._known_before_last(rows.begin, 0, [])
        carried = _Carried(first, self._read_by([last]))
        start = [f.i64(0), *carried.of(first)]
        with f.loop(f.add(rows.begin, 1), rows.end(f), carried=start) as row:
            kept_at, *values = row.carried
            before = Running(last, (f.sub(row.index, 1),), carried.known(values), kept_at)
            other = f.sub(self.kept_apart, kept_at)
            known = self._known_before_last(row.index, other, [before])
            row.next(f.i64(other), *carried.of(known))
        kept_at, *values = row.results
        self._run([Running(last, (f.sub(rows.end(f), 1),), carried.known(values), kept_at)])

    def _emit_deep(self, rows: Range) -> None:
        """Emit the three passes of `rows`, interleaved across three rows.

        A tile of one row uses the first row again for its second row's first pass, which is harmless.
        """
        f = self.f
        end = f.sub(rows.end(f), 1)
        second = f.minimum(f.add(rows.begin, 1), end)
        (one,) = self._advance([(0, rows.begin, {}, 0)])
        ones = _Carried(one, self._read_by(self.passes[1:]))
        one, two = self._advance([(0, second, {}, 0), (1, rows.begin, one, 0)])
        twos = _Carried(two, self._read_by(self.passes[2:]))
        start = [f.i64(0), *ones.of(one), *twos.of(two)]
        n = len(ones.ids)
        with f.loop(f.add(rows.begin, 2), rows.end(f), carried=start) as row:
            kept_at, *values = row.carried
            other, at = f.sub(self.kept_apart, kept_at), row.index
            one, two, _ = self._advance(
                [
                    (0, at, {}, 0),
                    (1, f.sub(at, 1), ones.known(values[:n]), other),
                    (2, f.sub(at, 2), twos.known(values[n:]), kept_at),
                ]
            )
            row.next(f.i64(other), *ones.of(one), *twos.of(two))
        kept_at, *values = row.results
        other, before = f.sub(self.kept_apart, kept_at), f.maximum(f.sub(end, 1), rows.begin)
        two, _ = self._advance(
            [(1, end, ones.known(values[:n]), other), (2, before, twos.known(values[n:]), kept_at)]
        )
        with f.when(f.less(before, end)):
            self._advance([(2, end, two, other)])

    def _advance(self, steps: Sequence[tuple[int, Int, Values, Int]]) -> list[Values]:
        """Emit passes (number, row, known values, area of kept values) interleaved; return the values known
        after each.

        Passes that read come first: a load waits for an earlier store that is whole pages away.
        """
        places = [Position((row, 0)) for _, row, _, _ in steps]
        known = [
            given if n else self.start([at])[0] for at, (n, _, given, _) in zip(places, steps, strict=True)
        ]
        running = [
            Running(self.passes[n], (row,), given, kept_at)
            for given, (n, row, _, kept_at) in zip(known, steps, strict=True)
        ]
        results = self._run_all(running)
        return [
            self.known_after(n, [at], [given], [found])[0] if n + 1 < len(self.passes) else {}
            for (n, *_), at, given, found in zip(steps, places, known, results, strict=True)
        ]

    def _read_by(self, passes: Sequence[Pass]) -> set[int]:
        """Return the instructions whose values `passes` read."""
        ids = {i for p in passes for i in p.ids}
        stores = {i for p in passes for i in p.stores}
        roots = {self.body[i].args[0] for p in passes for i in p.reduces}
        return {source for i in ids for source in self.bodies.sources(self.body[i])} | stores | roots

    def _known_before_last(self, row: Int, kept_at: Int, beside: list[Running]) -> Values:
        """Emit the passes of a row except the last, the second-last interleaved with those `beside` it;
        return the values known then."""
        places = [Position((row, 0))]
        given = self.start(places)
        *others, last = self.passes[:-1]
        for n, p in enumerate((*others, last)):
            running = [Running(p, (row,), given[0], kept_at), *(beside if p is last else [])]
            given = self.known_after(n, places, given, [self._run(running)])
        return given[0]

    def _read_ahead(self, p: Pass, at: Position) -> None:
        """Prefetch in the second pass what the first reads later; in the first if there is no other, rows are
        very long, or all passes are interleaved.

        Rows are then loaded while others are computed, not in a separate pass. Short rows are prefetched two
        rows ahead, and into the first-level cache if it holds all rows in use.
        """
        first, row_bytes = self.passes[0].ids, self._row_bytes()
        in_first = len(self.passes) == 1 or row_bytes > LONG_ROW or self.is_deep
        if in_first and p is self.passes[0]:
            read_ahead(self.f, self.bodies, first, at)
        if not in_first and p is self.passes[1]:
            later = row_bytes if row_bytes > SHORT_ROW else 2 * row_bytes
            level = 3 if self._bytes_in_use() <= FIRST_CACHE else 2
            read_ahead(self.f, self.bodies, first, at, max(later, AHEAD), level)

    def run(self, p: Pass, places: Sequence[Position], given: Sequence[Values]) -> list[Values]:
        """Emit one pass; see `Passes.run`."""
        return [self._run([Running(p, places[0].loops[:-1], given[0])])]

    def _run(self, running: Sequence[Running]) -> Values:
        """Emit interleaved passes; return the results of the first one's reductions."""
        return self._run_all(running)[0]

    def _run_all(self, running: Sequence[Running]) -> list[Values]:
        """Emit interleaved passes; return the results of each one's reductions."""
        found = self._sweep(running, None)
        totals = [self._repaired(one, first) for one, first in zip(running, found, strict=True)]
        return [self._spread(one.work, t) for one, t in zip(running, totals, strict=True)]

    def _spread(self, p: Pass, totals: Sequence[Value]) -> Values:
        """Return the results of a pass from its totals, in every lane."""
        f, found = self.f, {}
        for i, total in zip(p.reduces, totals, strict=True):
            one = self.accumulators[i].finish(total)
            element = DTYPES[self.body[i].dtype].register
            found[i] = f.splat(f.op(element, f"extractelement {one.type} {one.name}, i32 0"), LANES)
        return found

    def _repaired(self, one: Running, totals: Sequence[Value]) -> Sequence[Value]:
        """Return the totals of one pass, recomputed if they are out of range."""
        if not self.can_repeat(one.work):
            return totals
        accumulators = [self.accumulators[i] for i in one.work.reduces]
        return repaired(self.f, accumulators, totals, None, lambda scale: self._sweep([one], scale)[0])

    def _sweep(self, running: Sequence[Running], scale: Value | None) -> list[list[Value]]:
        """Emit interleaved passes, with the elements of sums times `scale`; return each one's totals."""
        length = self.length
        each = [[self.accumulators[i] for i in one.work.reduces] for one in running]
        accumulators = [a for some in each for a in some]
        if not any(a.rounds for a in accumulators) or isinstance(length, int) and length <= BLOCK:
            sums = self._block(running, Range(0, length), scale)
            totals = [a.widened(x) for a, x in zip(accumulators, sums, strict=True)]
        else:
            totals = self._add_blocks(running, scale, accumulators)
        ends = iter(a.by_halves(total) for a, total in zip(accumulators, totals, strict=True))
        return [[next(ends) for _ in some] for some in each]

    def _add_blocks(
        self, running: Sequence[Running], scale: Value | None, accumulators: Sequence[Accumulator]
    ) -> list[Value]:
        """Emit the blocks of interleaved passes; return the totals, by lane."""
        f, length = self.f, self.length
        whole: Int = length
        rest: Int = 0
        if isinstance(length, int):  # the last block's length is known: it has separate code
            rest = f.urem(length, BLOCK)
            whole = f.sub(length, rest)

        def folded(totals: Sequence[Value], part: Range) -> list[Value]:
            sums = self._block(running, part, scale)
            return [a.fold(total, x) for a, total, x in zip(accumulators, totals, sums, strict=True)]

        with f.loop(0, whole, BLOCK, [a.total for a in accumulators]) as blocks:
            some = f.minimum(BLOCK, f.sub(length, blocks.index))
            count = BLOCK if multiple_of(whole) % BLOCK == 0 else some
            part = Range(blocks.index, count, gcd(BLOCK, multiple_of(length)))
            blocks.next(*folded(blocks.carried, part))
        return blocks.results if rest == 0 else folded(blocks.results, Range(whole, rest))

    def _block(self, running: Sequence[Running], part: Range, scale: Value | None) -> list[Value]:
        """Emit a block of interleaved passes; return each reduction's result of it, by lane."""
        n = MAX_ACCUMULATORS if all(len(p.reduces) < 2 for p in self.passes) else 2
        reduces = [(k, i) for k, one in enumerate(running) for i in one.work.reduces]

        def chunk(index: Int, mask: Value | None, state: State) -> State:
            values = [self._compute(one, index, mask) for one in running]
            after: State = []
            for at, (k, i) in enumerate(reduces):
                first, *others = state[at * n : at * n + n]
                after += [*others, self.accumulators[i].add(first, values[k], scale, mask)]
            return after

        start = [self.accumulators[i].start for _, i in reduces for _ in range(n)]
        is_short = len(running) == 1 and scale is None and running[0].work.is_short(self.bodies)
        end = strip(self.f, part, SHORT_UNROLL if is_short else 1, chunk, start)
        return [self.accumulators[i].join(end[at * n : at * n + n]) for at, (_, i) in enumerate(reduces)]

    def _compute(self, one: Running, index: Int, mask: Value | None) -> Values:
        """Emit the vector at `index` of a pass."""
        p, kept = one.work, self.f.add(one.kept_at, index)
        at = Position((*one.outer, index), mask, self.is_bypassing)
        if self.is_bypassing and mask is None:
            self._read_ahead(p, at)
        values = self.bodies.emit(p.ids, at, one.given | self.reread(p, kept))
        self.keep(p, values, kept)
        return values
