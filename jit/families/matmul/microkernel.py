"""The register-tiled inner kernel of matmul and attention: C[r, :] = sum over k of A[r, k] * B[k, :].

`rows` x `vectors` accumulators of 16 f32 stay in registers; each step of k loads `vectors` vectors of B
and broadcasts `rows` elements of A in place. The order of a sum is that of `sums`, so its bits depend neither
on the tile (`schedules`) nor on the caller. A micro-kernel is an internal function of the kernel's module:
one for each number of rows (`row_shares`), with many call sites; ints are compiled in, Values are passed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial, reduce

from ...llvm.function import Function, Int, Value, least, multiple_of
from ...llvm.prefetch import prefetch, unread
from ...llvm.transpose import lower_half, with_zeros
from ...llvm.vector import Vec
from ...loops.bodies import LANES, splat
from .arithmetic import F32, VECTOR, Arithmetic
from .schedules import PANEL
from .strides import UNROLL, Strides


@dataclass(frozen=True)
class Ending:
    """The use of a micro-kernel's sums instead of storing them in c: `emit(g, parameters, sums)`, with
    `sums` by row and vector. `parameters` replace `arguments` there. `key`, if given: everything that `emit`
    depends on. `name`: in the names of parts with this ending. `others`: the endings for later columns of a
    tile."""

    arguments: list[Value]
    emit: Callable[[Function, Sequence[Value], list[list[Value]]], None]
    key: Hashable = None
    name: str = "ended"
    others: Mapping[int, Ending] = field(default_factory=dict)


class Into(Enum):
    """How a micro-kernel's sums are combined with c."""

    CHAIN = "c is one chain from 0, or where strides have a block, a sum of such chains"
    TOTALS = "the same, with the sum of chains in registers, if they hold it"
    ADDED = "one chain from 0, or where strides have a block, each of such chains, is added to c"
    GOES_ON = "the chain that c holds goes on"
    ENDS = "the chain that c holds goes on and is added to its total, which lies elsewhere"
    SCALED = "one chain from 0 times the scales behind B's rows is added to c"


@dataclass(frozen=True)
class Work:
    """What a micro-kernel reads: `rows` of A, whose steps lie at `a` (in pieces if there are several), and B
    at `b`; and what it prefetches from `ahead` on: `lines`, or `near`, see `MicroKernels.call`."""

    strides: Strides
    a: Sequence[Value]
    b: Value
    ahead: Value
    rows: int
    lines: int
    near: bool

    @property
    def moving(self) -> list[Value]:
        """The addresses that move along from step to step."""
        return [] if self.near else [self.b, self.ahead]


class MicroKernels:
    """The micro-kernels of one module that share strides; each is emitted when first called.

    `name`: distinguishes them from others of the module. `vectors`: vectors in a row of the tile. `into`: how
    they combine with c. `arithmetic`: the operands, and how they are multiplied and added; a row of A may
    have several planes (`Strides.planes`). `totals`: the offset of the totals of chains from c. `ending`:
    None: sums are stored in c. `has_half`: the upper half of a row's last vector has no columns and is
    skipped.
    """

    def __init__(
        self,
        f: Function,
        name: str,
        strides: Strides,
        vectors: int,
        into: Into = Into.CHAIN,
        arithmetic: Arithmetic = F32,
        totals: int = 0,
    ) -> None:
        self.f = f
        self.into, self.totals = into, totals
        self.plain_name, self.name = name, f"{name}{arithmetic.suffix}"
        self.arithmetic = arithmetic
        self.element, self.line = arithmetic.element, arithmetic.line
        self.strides = strides
        self.vectors = vectors
        self.ending: Ending | None = None
        self.has_half = False

    def ended_by(self, ending: Ending) -> MicroKernels:
        """Return the same micro-kernels with another ending, the same for all their calls in the module."""
        made = copy(self)
        made.ending = ending
        return made

    def of_columns(self, columns: int) -> MicroKernels:
        """Return the same micro-kernels for a tile of which only `columns` count.

        Cores that compute vectors of 8 twice as fast as those of 16, as some with AVX-512 do, gain by that.
        """
        made = copy(self)
        rest = columns - LANES * (self.vectors - 1)
        made.has_half = self.arithmetic == F32 and 0 < rest <= LANES // 2
        return made

    def at(self, strides: Strides) -> MicroKernels:
        """Return the same micro-kernels for strides with different run-time values."""
        made = copy(self)
        made.strides = strides
        return made

    def call(
        self,
        rows: int,
        a: Value,
        b: Value,
        c: Value,
        ahead: Value,
        lines: int = 0,
        near: bool = False,
        factors: Value | None = None,
    ) -> None:
        """Compute `rows` rows from a, b into c, prefetching from `ahead`.

        `lines`: successive cache lines for each iteration of UNROLL steps, into the second-level cache.
        `near`: instead the rows of B from `ahead` on, one a step, into the first. `factors`: of the rows,
        which are finally multiplied by them (every call of these micro-kernels has them, or none).
        """
        half = "_half" if self.has_half else ""
        ending, strides = self.ending, self.strides.for_rows(self.f, rows)
        kind = self.name if ending is None else f"{self.name}_{ending.name}"
        name = f"{kind}_{rows}x{self.vectors}{half}_{'near' if near else lines}"
        arguments = [a, b, c, ahead, *strides.values(), *([] if factors is None else [factors])]
        what = (self.into, self.totals, self.arithmetic, self.vectors, self.has_half)
        key = (strides.known(), *what, rows, lines, near, factors is None)
        n = len(arguments)

        def define(part: Function) -> None:
            given = part.params[n:]
            bound = strides.bound(part.params[4:])
            self._define(
                part, bound, rows, lines, near, None if factors is None else part.params[n - 1], given
            )

        more = [] if ending is None else ending.arguments
        whole = key if ending is None else None if ending.key is None else (*key, ending.key)
        self.f.call_part(name, define, *arguments, *more, key=whole)

    def _define(
        self,
        g: Function,
        strides: Strides,
        rows: int,
        lines: int,
        near: bool,
        factors: Value | None,
        of_ending: Sequence[Value],
    ) -> None:
        """Emit the micro-kernel's body."""
        a, b, c, ahead = g.params[:4]
        places = [
            g.at(row, "float", LANES * v)
            for row in (g.at(c, "float", g.mul(r, strides.ldc)) for r in range(rows))
            for v in range(self.vectors)
        ]
        in_c = strides.block != 0 and not self._keeps_totals(g, rows)
        work = Work(strides, [a], b, ahead, rows, lines, near)
        if in_c:
            sums = self._blocks(g, work, places)
        elif strides.block != 0:
            sums = self._blocks_in_registers(g, work)
        else:
            sums = self._whole(g, replace(work, rows=rows * self.arithmetic.planes), places)
        if factors is not None:
            sums = self._scaled(g, sums, factors)
        if self.ending is not None:
            row_starts = range(0, len(sums), self.vectors)
            self.ending.emit(g, of_ending, [sums[i : i + self.vectors] for i in row_starts])
            return
        if self.into is Into.ENDS:
            places = [g.at(place, "float", self.totals) for place in places]
        if not in_c or factors is not None:
            self._store(g, sums, places)

    def _whole(self, g: Function, work: Work, places: Sequence[Value]) -> list[Value]:
        """Return the sums after all steps, plus `places` of c unless they are the first; the rows are of
        all planes."""
        strides, a = work.strides, work.a[0]
        if self.into in (Into.GOES_ON, Into.ENDS):
            sums = [g.load(VECTOR, place, align=4) for place in places]
        else:
            sums = [x for r in range(work.rows) for x in [self._first(g, strides, a, r)] * self.vectors]
        moving = work.moving
        if strides.taps.seen != 0:
            state = self._seen_taps(g, work, [*sums, *moving])
        elif strides.has_taps:
            with g.loop(0, strides.taps.n, carried=[*sums, *moving]) as tap:
                tap.next(*self._tap(g, work, tap.index, tap.carried))
            state = tap.results
        else:
            state = self._steps(g, work, [*sums, *moving])
        sums = state[: work.rows * self.vectors]
        if self.into is Into.ENDS:
            return self._added(g, sums, [g.at(place, "float", self.totals) for place in places])
        if self.into is Into.SCALED:
            return self._added_in_proportion(g, work, sums, places)
        return self._added(g, sums, places) if self.into is Into.ADDED else sums

    def _first(self, g: Function, strides: Strides, a: Value, r: int) -> Value:
        """Return the initial sums of A's row `r`."""
        return self.arithmetic.first(g, lambda: strides.behind(g, a, r))

    def _seen_taps(self, g: Function, work: Work, state: Sequence[Value]) -> list[Value]:
        """Return the state after the steps under the taps inside of the image for some row."""
        strides, a, rows = work.strides, work.a[0], work.rows
        n, one = rows * self.vectors, Value("i1", "true")
        by_row = [g.load("i64", g.at(a, "i64", g.add(strides.taps.seen, r)), align=8) for r in range(rows)]
        seen = reduce(lambda x, y: g.op("i64", f"or i64 {x.name}, {y.name}"), by_row)
        with g.loop(0, g.call("i64", "llvm.ctpop.i64", seen), carried=[*state, seen]) as number:
            *before, left = number.carried
            tap = g.call("i64", "llvm.cttz.i64", left, one)
            if len(before) > n:
                apart = g.mul(tap, g.add(g.mul(strides.k, strides.ldb), strides.taps.b_skip))
                before[n] = self.unread(g, work.b, apart)
            after = self._tap(g, work, tap, before)
            number.next(*after, g.op("i64", f"and i64 {left.name}, {g.i64(g.sub(left, 1)).name}"))
        return number.results[:-1]

    def _tap(self, g: Function, work: Work, tap: Int, before: Sequence[Value]) -> list[Value]:
        """Return the state `before`, after the steps under one tap."""
        n, strides = work.rows * self.vectors, work.strides
        is_near = len(before) == n
        under = replace(work, a=strides.pieces(g, work.a[0], tap, work.rows))
        if is_near:
            apart = g.mul(tap, g.add(g.mul(strides.k, strides.ldb), strides.taps.b_skip))
            under = replace(under, b=self.unread(g, work.b, apart), ahead=self.unread(g, work.ahead, apart))
        found = self._steps(g, under, before)
        if not is_near:
            found[n] = self.unread(g, found[n], strides.taps.b_skip)
        return found

    def _blocks(self, g: Function, work: Work, places: Sequence[Value]) -> list[Value]:
        """Leave the sums of any number of steps in c, and return them. Their blocks are added there, because
        the registers are full."""
        zero, k, size = Value(VECTOR, "zeroinitializer"), work.strides.k, work.strides.block

        def block(begin: Int, steps: Int, moving: Sequence[Value]) -> list[Value]:
            state = [*[zero] * len(places), *moving]
            found = self._steps(g, work, state, begin, steps)
            sums = found[: len(places)]
            g.either(
                self.into is not Into.ADDED and g.is_less(begin, 1),
                lambda: self._store(g, sums, places),
                lambda: self._store(g, self._added(g, sums, places), places),
            )
            return found[len(places) :]

        moving: Sequence[Value] = work.moving
        if isinstance(size, int) and least(k) >= size and multiple_of(k) % size == 0:
            moving = block(0, size, moving)
            with g.loop(size, k, size, moving) as each:
                each.next(*block(each.index, size, each.carried))
        elif isinstance(k, int) and isinstance(size, int):
            rest = k % size
            moving = block(0, size, moving)
            with g.loop(size, k - rest, size, moving) as each:
                each.next(*block(each.index, size, each.carried))
            if rest:
                block(k - rest, rest, each.results)
        else:
            with g.loop(0, k, size, moving, nonempty=True) as each:
                each.next(*block(each.index, g.minimum(size, g.sub(k, each.index)), each.carried))
        return [g.load(VECTOR, place, align=4) for place in places]

    def _keeps_totals(self, g: Function, rows: int) -> bool:
        """Whether registers hold totals of blocks beside the sums of one, a row of B and an element of A."""
        n = (2 * rows * self.vectors + self.vectors + 1) * 4 * LANES
        return self.into is Into.TOTALS and n <= g.register_bytes

    def _blocks_in_registers(self, g: Function, work: Work) -> list[Value]:
        """Return the sums of any number of steps, with blocks summed in registers."""
        n, k, size = work.rows * self.vectors, work.strides.k, work.strides.block
        zero, nothing = Value(VECTOR, "zeroinitializer"), Vec(g, splat(g, "f32", -0.0)).value

        def block(begin: Int, steps: Int, state: Sequence[Value]) -> list[Value]:
            found = self._steps(g, work, [*[zero] * n, *state[n:]], begin, steps)
            pairs = zip(state[:n], found[:n], strict=True)
            return [*(self.arithmetic.add(g, before, x) for before, x in pairs), *found[n:]]

        state: Sequence[Value] = [*[nothing] * n, *work.moving]
        rest = g.urem(k, size)
        with g.loop(0, g.sub(k, rest), size, state) as each:
            each.next(*block(each.index, size, each.carried))
        state = each.results
        if rest == 0:
            return list(state[:n])
        if isinstance(rest, int):
            return block(g.sub(k, rest), rest, state)[:n]
        with g.loop(g.sub(k, rest), k, size, state) as last:
            last.next(*block(last.index, rest, last.carried))
        return list(last.results[:n])

    def _added(self, g: Function, sums: Sequence[Value], places: Sequence[Value]) -> list[Value]:
        """Return c's sums plus those of one more chain."""
        pairs = [(g.load(VECTOR, place, align=4), x) for x, place in zip(sums, places, strict=True)]
        return [self.arithmetic.add(g, before, x) for before, x in pairs]

    def _added_in_proportion(
        self, g: Function, work: Work, sums: Sequence[Value], places: Sequence[Value]
    ) -> list[Value]:
        """Return c's sums plus those of one more chain times the scales of their columns."""
        strides, kind, n_rows = work.strides, self.arithmetic, len(places) // self.vectors
        found, planes = [], kind.planes
        factors = [kind.factor(g, partial(strides.behind, g, work.a[0], r * planes)) for r in range(n_rows)]
        for v in range(self.vectors):
            scales = g.load(VECTOR, strides.scales(g, work.b, self.element, v), align=4)
            of_columns = sums[v :: self.vectors]
            for r, place in enumerate(places[v :: self.vectors]):
                total = kind.total(g, *of_columns[r * planes : (r + 1) * planes])
                if (factor := factors[r]) is not None:
                    total = (Vec(g, total) * Vec(g, factor)).value
                found.append(F32.multiply_add(g, total, scales, g.load(VECTOR, place, align=4)))
        return [found[v * n_rows + r] for r in range(n_rows) for v in range(self.vectors)]

    @staticmethod
    def _store(g: Function, sums: Sequence[Value], places: Sequence[Value]) -> None:
        for value, place in zip(sums, places, strict=True):
            g.store(value, place, align=4)

    def _steps(
        self, g: Function, work: Work, state: Sequence[Value], first: Int = 0, count: Int | None = None
    ) -> list[Value]:
        """Return `state`, that is the sums, after `count` steps (None: all) from step `first` on.

        The state may hold two moving addresses: of B's next row, and of the next prefetch. Computing them
        from k takes more instructions an iteration, which costs time beside another thread of the core (3 to
        8 % of a product's). Without them a micro-kernel reads `near`: for 14 x 32 there are too few registers
        for two more addresses, and sums are spilled.
        """
        strides, a, rows = work.strides, work.a, work.rows
        n, n_state = rows * self.vectors, len(state)
        is_near = n_state == n
        count = strides.k if count is None else count
        walkers = strides.walkers(g, a, first, rows)
        state = [*self._of_lasts(g, lower_half, state[:n]), *state[n:], *walkers.places]
        rest = g.urem(count, UNROLL)
        whole, behind = g.add(first, g.sub(count, rest)), g.add(first, count)
        for begin, end, steps in ((first, whole, UNROLL), (whole, behind, 1)):
            if begin == end or (steps == 1 and rest == 0):
                continue
            with g.loop(begin, end, steps, state) as k:
                sums, moving = list(k.carried[:n]), k.carried[n:n_state]
                walkers = walkers.hidden(g, k.carried[n_state:])
                left = walkers.steps(g, steps, rows) or strides.steps(g, a, k.index, steps, rows)
                begins = g.mul(k.index, strides.ldb)
                right = g.at(work.b, self.element, begins) if is_near else moving[0]
                for step in range(steps):
                    there = g.at(right, self.element, g.mul(step, strides.ldb))
                    self._step(g, strides, sums, left[step], there)
                if is_near:
                    self._prefetch_rows(g, strides, self.unread(g, work.ahead, begins), steps)
                else:
                    following = g.at(right, self.element, g.mul(steps, strides.ldb))
                    moving = [following, self._prefetch_lines(g, moving[1], work.lines if steps > 1 else 0)]
                k.next(*sums, *moving, *walkers.moved(g, steps))
            state = k.results
        return [*self._of_lasts(g, with_zeros, state[:n]), *state[n:n_state]]

    def _of_lasts(
        self, g: Function, change: Callable[[Function, Value], Value], sums: Sequence[Value]
    ) -> list[Value]:
        """Return `sums`, with those of each row's last vector changed if only half of it is used."""
        lasts = range(self.vectors - 1, len(sums), self.vectors) if self.has_half else ()
        return [change(g, x) if i in lasts else x for i, x in enumerate(sums)]

    def _scaled(self, g: Function, sums: Sequence[Value], factors: Value) -> list[Value]:
        """Return each row's sums times its factor."""
        places = [g.at(factors, "float", r) for r in range(len(sums) // self.vectors)]
        by_row = [Vec(g, g.splat(g.load("float", place, align=4), LANES)) for place in places]
        return [(Vec(g, x) * by_row[i // self.vectors]).value for i, x in enumerate(sums)]

    def _prefetch_rows(self, g: Function, strides: Strides, ahead: Value, steps: int) -> None:
        """Prefetch this micro-kernel's part of `steps` rows of B."""
        panels, size = self.vectors * LANES // PANEL, strides.ldb
        if isinstance(size, int) and UNROLL * size <= self.line and strides.b_panel != 0 and panels:
            places = [g.mul(panel, strides.b_panel) for panel in range(panels)]  # one line each
        else:
            across = range(0, self.vectors, self.line // LANES)
            places = [g.add(g.mul(n, size), strides.vector(g, v)) for n in range(steps) for v in across]
        for place in places:
            prefetch(g, self.unread(g, ahead, place), 3)

    def _prefetch_lines(self, g: Function, ahead: Value, lines: int) -> Value:
        """Prefetch successive cache lines; return the address of the next ones."""
        for i in range(lines):
            prefetch(g, self.unread(g, ahead, i * self.line), 2)
        return self.unread(g, ahead, lines * self.line)

    def unread(self, g: Function, base: Value, index: Int) -> Value:
        """Return the address of an element of B that is only prefetched."""
        return unread(g, base, index, self.element)

    def _step(self, g: Function, strides: Strides, sums: list[Value], a: Sequence[Value], b: Value) -> None:
        """One k: sums[r, v] += a[r] * b[v]; `a`: addresses."""
        kind, places = self.arithmetic, range(self.vectors)
        right = self._of_lasts(g, lower_half, kind.row(g, b, [strides.vector(g, v) for v in places]))
        for r, address in enumerate(a):
            left = [kind.left(g, address)] * self.vectors
            if self.has_half:
                left[-1] = kind.left_half(g, address)
            for v in places:
                i = r * self.vectors + v
                sums[i] = kind.multiply_add(g, left[v], right[v], sums[i])
