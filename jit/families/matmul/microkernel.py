"""The register-tiled inner kernel of matmul and attention: C[r, :] = sum over k of A[r, k] * B[k, :].

`rows` x `vectors` accumulators of 16 f32 stay in registers; each step of k loads `vectors` vectors of B
and broadcasts `rows` elements of A in place. The order of a sum is that of `sums`, so its bits depend neither
on the tile nor on who calls. A micro-kernel is an internal function of the
kernel's module: one for each number of rows, called from everywhere; what is an int is compiled in, what
is a Value is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import reduce
from typing import NamedTuple

from ...llvm.function import Bounded, Function, Int, Value, least, most, multiple_of
from ...llvm.prefetch import prefetch, unread
from ...llvm.transpose import lower_half, with_zeros
from ...llvm.vector import Vec
from ...loops.bodies import LANES, splat, tail_mask
from .arithmetic import F32, VECTOR, Arithmetic
from .tile_choice import IN_PLACE, UNASKED
from .walkers import NO_WALKERS, Walkers

PANEL = 32  # columns of a packed panel of B; a micro-kernel reads one or two side by side
UNROLL = 4  # steps of k in one trip
MAX_WALKED = 13  # rows; beside 28 sums of 14 rows one address more is spilled


@dataclass(frozen=True)
class Schedule:
    """A register tile: at most `rows` rows of `vectors` vectors. `asks`: whether few rows ask for lines of
    a weight before they read them (`gemv`). `tiles_in_place`: the row tiles up to which each widens a
    narrow weight as it reads it; more of them read a copy in f32. `keeps_totals`: whether a row tile reads
    its rows of A from front to back, with the totals of blocks in registers beside the sums of one, instead
    of leaving them in scratch from chunk to chunk."""

    rows: int
    vectors: int
    asks: bool = True
    tiles_in_place: int = 1
    keeps_totals: bool = False

    @property
    def rows_in_place(self) -> int:
        """The rows up to which a narrow weight is widened as it is read."""
        return self.rows * self.tiles_in_place


# 24 or 28 accumulators for targets with 32 registers of 16 lanes; 12 for those with 16 of 8 (2 per vector of
# 16). 6x64 takes 10 loads for 24 FMAs, 14x32 takes 16 for 28; 12x32 takes 14 for 24, and half the bytes of B.
# 12x16 takes 13 loads for 12, of which FMAs do 12, and stores nothing before its sums are complete.
SCHEDULES = {
    "6x64": Schedule(6, 4),
    "14x32": Schedule(14, 2),
    "12x32": Schedule(12, 2),
    "12x16": Schedule(12, 1, keeps_totals=True),
    "6x16": Schedule(6, 1),
}

IN_PLACE_ENDING = f"-{IN_PLACE}"  # of the names of those with TILES_IN_PLACE
TILES_IN_PLACE = 6  # the copy, which costs the same for any number of rows, pays from some number on
WITHOUT_ASKING = f"-{UNASKED}"  # ends the names of those that leave it to the processor to read ahead


def schedule_of(name: str) -> Schedule:
    """Return the schedule of a name."""
    tile = tile_of(name)
    ends = name.removeprefix(tile)
    n_tiles = TILES_IN_PLACE if ends.startswith(IN_PLACE_ENDING) else 1
    return replace(SCHEDULES[tile], asks=not ends.endswith(WITHOUT_ASKING), tiles_in_place=n_tiles)


def tile_of(name: str) -> str:
    """Return the name of the register tile of a schedule, "" of one that leaves it to the generator."""
    return name.removesuffix(WITHOUT_ASKING).removesuffix(IN_PLACE_ENDING)


def default_schedule(f: Function) -> str:
    """Return the name of the schedule whose tile fits the vector registers of the function's target."""
    return "14x32" if f.register_bytes >= 32 * 4 * LANES else "6x16"


def fits_registers(f: Function, name: str) -> bool:
    """Whether the vector registers of the function's target hold the sums of a schedule's tile."""
    tile = SCHEDULES[name]
    return tile.rows * tile.vectors * 4 * LANES < f.register_bytes


def narrow_schedules() -> tuple[str, ...]:
    """Return the names of the register tiles that are no wider than one panel."""
    return tuple(name for name, tile in SCHEDULES.items() if LANES * tile.vectors <= PANEL)


class Taps(NamedTuple):
    """`n` taps of a window, under each of which A's rows have a piece.

    `a` is a table of addresses then, a row for each tap, `apart` addresses from one to the next; pieces begin
    `offset` elements behind them. `b_skip`: elements from behind a tap's rows of B to the next tap's.
    `seen`: addresses from a row's first one to the bits of the taps under which it has elements, an i64; the
    rows of others are zeros, and taps that no row of a tile sees are left out (0: all are taken).
    """

    n: Int = 0
    apart: Int = 0
    offset: Int = 0
    b_skip: Int = 0
    seen: Int = 0


NO_TAPS = Taps()


@dataclass(frozen=True)
class Strides:
    """Elements from one row to the next (`lda`, `ldb`, `ldc`), and the number of steps `k`.

    `a_panel`, `b_panel`: A, B is stored in panels of `a_width`, PANEL columns, so many elements apart (0: its
    rows are contiguous). `table`: where each step of k lies in A's rows, i64 (0: side by side).
    `taps`: if there are any, A's rows lie in pieces of `k` steps, one for each tap.
    `block`: steps of a block of the sums (0: they are one chain). `is_shared`: one micro-kernel serves sums
    of other lengths and rows elsewhere, which are arguments then, but where sums fill the registers.
    `shares_all`: there too, which costs up to 6 % with 14 rows of many steps: in code of any number of rows.
    """

    lda: Int
    ldb: Int
    ldc: Int
    k: Int
    a_panel: int = 0
    b_panel: Int = 0
    table: Int = 0
    a_width: int = PANEL
    taps: Taps = NO_TAPS
    block: Int = 0
    is_shared: bool = False
    shares_all: bool = False

    def _all(self) -> tuple[Int, ...]:
        return (self.lda, self.ldb, self.ldc, self.k, self.b_panel, self.table, *self.taps, self.block)

    @property
    def has_taps(self) -> bool:
        """Whether A's rows lie in pieces, at addresses."""
        return self.taps.n != 0

    def of_taps(self, **changes: Int) -> Strides:
        """Return these strides with other taps."""
        return replace(self, taps=self.taps._replace(**changes))

    def values(self) -> list[Value]:
        """Return those known only at run time, which a micro-kernel takes as arguments."""
        return [x for x in self._all() if isinstance(x, Value)]

    def known(self) -> tuple[Hashable, ...]:
        """Return what is compiled into a micro-kernel, of an argument what is known of it."""
        return (self.a_panel, self.a_width, self.is_shared, *map(_known, self._all()))

    def for_rows(self, f: Function, rows: int) -> Strides:
        """Return the strides of a micro-kernel for `rows` rows: if it is shared, the numbers by which sums of
        other lengths differ are arguments."""
        if not self.is_shared or (rows > MAX_WALKED and not self.shares_all):
            return replace(self, is_shared=False)
        k, block = self.k, self.block
        whole = block if isinstance(block, int) and block else UNROLL
        if isinstance(k, int) and isinstance(block, int) and k and k % whole == 0 and whole % UNROLL == 0:
            value = f.i64(k)
            k = Bounded(value.type, value.name, whole, None, whole)
        lda, b_panel, apart, b_skip = (
            f.i64(x) if x != 0 else x for x in (self.lda, self.b_panel, self.taps.apart, self.taps.b_skip)
        )
        taps = self.taps._replace(apart=apart, b_skip=b_skip)
        return replace(self, lda=lda, k=k, b_panel=b_panel, taps=taps)

    def bound(self, params: Sequence[Value]) -> Strides:
        """Return these strides with a micro-kernel's parameters in place of its caller's values."""
        given = iter(params)
        bound = (next(given) if isinstance(x, Value) else x for x in self._all())
        lda, ldb, ldc, k, b_panel, table, *taps, block = bound
        return replace(
            self, lda=lda, ldb=ldb, ldc=ldc, k=k, b_panel=b_panel, table=table, taps=Taps(*taps), block=block
        )

    def row(self, g: Function, a: Value, r: Int) -> Value:
        """Return what stands for A's row `r` as `a` does for the first."""
        return g.at(a, "ptr", r) if self.has_taps else g.at(a, "float", g.mul(r, self.lda))

    def pieces(self, g: Function, a: Value, tap: Int, rows: int) -> list[Value]:
        """Return where the rows begin under a tap."""
        first = g.at(a, "ptr", g.mul(tap, self.taps.apart))
        addresses = [g.load("ptr", g.at(first, "ptr", r), align=8) for r in range(rows)]
        return [g.at(address, "float", self.taps.offset) for address in addresses]

    def vector(self, g: Function, v: int) -> Int:
        """Return where vector `v` of a row of B lies."""
        column = LANES * v
        if self.b_panel == 0:
            return column
        return g.add(g.mul(column // PANEL, self.b_panel), column % PANEL)

    def scales(self, g: Function, b: Value, element: str, v: int) -> Value:
        """Return the address of the scales of vector `v`, in f32 behind all steps' rows of B at `b`."""
        panel = LANES * v // PANEL if self.b_panel != 0 else 0
        behind = g.add(g.mul(self.k, self.ldb), g.mul(panel, self.b_panel))
        return g.at(g.at(b, element, behind), "float", LANES * v - panel * PANEL)

    def column(self, g: Function, k: Int) -> Int:
        """Return where step k of A's rows lies."""
        if isinstance(self.table, Value):
            return g.load("i64", g.at(self.table, "i64", k), align=8)
        if not self.a_panel:
            return k
        return g.add(g.mul(g.udiv(k, self.a_width), self.a_panel), g.urem(k, self.a_width))

    def walkers(self, g: Function, a: Sequence[Value], first: Int, rows: int) -> Walkers:
        """Return what moves along several rows, from step `first` on; nothing where they are found in other
        ways."""
        if rows == 1 or not self.is_shared or self.has_taps or isinstance(self.lda, int):
            return NO_WALKERS
        return Walkers.begin(g, g.at(a[0], "float", first), self.lda, rows)

    def steps(self, g: Function, a: Sequence[Value], k: Int, n: int, rows: int) -> list[list[Value]]:
        """Return the addresses of n successive steps of A's rows, by step and row; a trip does not cross
        panels. `a`: where the first row begins, or each of them."""
        if isinstance(self.table, Value):
            firsts = [[g.at(row, "float", self.column(g, g.add(k, step))) for row in a] for step in range(n)]
        else:
            begins = [g.at(row, "float", self.column(g, k)) for row in a]
            firsts = [[g.at(row, "float", step) for row in begins] for step in range(n)]
        if self.has_taps:
            return firsts
        return [[g.at(first, "float", g.mul(r, self.lda)) for r in range(rows)] for (first,) in firsts]


def _known(x: Int) -> Hashable:
    """Return what is known of a number, which is all that code depends on."""
    return x if isinstance(x, int) else (least(x), most(x), multiple_of(x))


@dataclass(frozen=True)
class Ending:
    """What a micro-kernel does with its sums instead of storing them in c: `emit(g, parameters, sums)`, with
    `sums` by row and vector. `parameters` stand for `arguments` there. `key`, if given: says all that `emit`
    depends on. `name`: in the names of parts that end so. `others`: the ends for columns further on in a
    tile."""

    arguments: list[Value]
    emit: Callable[[Function, Sequence[Value], list[list[Value]]], None]
    key: Hashable = None
    name: str = "ended"
    others: Mapping[int, Ending] = field(default_factory=dict)


class Into(Enum):
    """What becomes of a micro-kernel's steps."""

    CHAIN = "c is one chain from 0, or where strides have a block, a sum of such chains"
    TOTALS = "the same, with the sum of chains in registers, if they hold it"
    ADDED = "one chain from 0, or where strides have a block, each of such chains, is added to c"
    GOES_ON = "the chain that c holds goes on"
    ENDS = "the chain that c holds goes on and is added to its total, which lies elsewhere"
    SCALED = "one chain from 0 times the scales behind B's rows is added to c"


class MicroKernels:
    """The micro-kernels of one module that share strides; each is emitted when first called.

    `name`: distinguishes them from others of the module. `vectors`: vectors in a row of the tile. `into`:
    what they do with c. `arithmetic`: what the operands are, and how they are multiplied and added; a row of
    A may have several planes, which lie one behind the other. `totals`:
    how far behind c the totals of chains lie. `ending`: None: sums are stored in c. `has_half`: there are no
    columns in the upper half of a row's last vector, which steps leave out then.
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
        """Return the same micro-kernels with another end, one for all their calls in the module."""
        made = copy(self)
        made.ending = ending
        return made

    def of_columns(self, columns: int) -> MicroKernels:
        """Return the same micro-kernels for a tile of which only so many columns count.

        Cores that compute vectors of 8 twice as fast as those of 16, as some with AVX-512 do, gain by that.
        """
        made = copy(self)
        rest = columns - LANES * (self.vectors - 1)
        made.has_half = self.arithmetic == F32 and 0 < rest <= LANES // 2
        return made

    def at(self, strides: Strides) -> MicroKernels:
        """Return the same micro-kernels for strides of which other values are known at run time only."""
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

        `lines`: successive cache lines for each trip of UNROLL steps, into the second-level cache.
        `near`: instead the rows of B that begin at `ahead`, one a step, into the first. `factors`: of the
        rows, which are multiplied by them at last (every call of these micro-kernels has them, or none).
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
        if in_c:
            sums = self._blocks(g, strides, [a], b, ahead, places, rows, lines, near)
        elif strides.block != 0:
            sums = self._blocks_in_registers(g, strides, a, b, ahead, rows, lines, near)
        else:
            given = rows * self.arithmetic.planes, lines, near
            sums = self._whole(g, strides, a, b, ahead, places, *given)
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

    def _whole(
        self, g: Function, strides: Strides, a: Value, b: Value, ahead: Value, places: Sequence[Value],
        rows: int, lines: int, near: bool,
    ) -> list[Value]:  # fmt: skip
        """Return the sums after all steps, with what `places` of c hold if they are not the first; `rows`: of
        all planes."""
        if self.into in (Into.GOES_ON, Into.ENDS):
            sums = [g.load(VECTOR, place, align=4) for place in places]
        else:
            sums = [x for r in range(rows) for x in [self._first(g, strides, a, r)] * self.vectors]
        moving = [] if near else [b, ahead]
        if strides.taps.seen != 0:
            state = self._seen_taps(g, strides, a, b, ahead, [*sums, *moving], rows, lines)
        elif strides.has_taps:
            with g.loop(0, strides.taps.n, carried=[*sums, *moving]) as tap:
                tap.next(*self._tap(g, strides, a, b, ahead, tap.index, tap.carried, rows, lines))
            state = tap.results
        else:
            state = self._steps(g, strides, [a], b, ahead, [*sums, *moving], rows, lines)
        sums = state[: rows * self.vectors]
        if self.into is Into.ENDS:
            return self._added(g, sums, [g.at(place, "float", self.totals) for place in places])
        if self.into is Into.SCALED:
            return self._added_in_proportion(g, strides, sums, b, places)
        return self._added(g, sums, places) if self.into is Into.ADDED else sums

    def _first(self, g: Function, strides: Strides, a: Value, r: int) -> Value:
        """Return the sums of no steps of A's row `r`."""
        return self.arithmetic.first(g, lambda: g.at(strides.row(g, a, r), "float", strides.k))

    def _seen_taps(
        self, g: Function, strides: Strides, a: Value, b: Value, ahead: Value, state: Sequence[Value],
        rows: int, lines: int,
    ) -> list[Value]:  # fmt: skip
        """Return the state after the steps under the taps that a row sees."""
        n, one = rows * self.vectors, Value("i1", "true")
        by_row = [g.load("i64", g.at(a, "i64", g.add(strides.taps.seen, r)), align=8) for r in range(rows)]
        seen = reduce(lambda x, y: g.op("i64", f"or i64 {x.name}, {y.name}"), by_row)
        with g.loop(0, g.call("i64", "llvm.ctpop.i64", seen), carried=[*state, seen]) as number:
            *before, left = number.carried
            tap = g.call("i64", "llvm.cttz.i64", left, one)
            if len(before) > n:
                apart = g.mul(tap, g.add(g.mul(strides.k, strides.ldb), strides.taps.b_skip))
                before[n] = self.unread(g, b, apart)
            after = self._tap(g, strides, a, b, ahead, tap, before, rows, lines)
            number.next(*after, g.op("i64", f"and i64 {left.name}, {g.i64(g.sub(left, 1)).name}"))
        return number.results[:-1]

    def _tap(
        self, g: Function, strides: Strides, a: Value, b: Value, ahead: Value, tap: Int,
        before: Sequence[Value], rows: int, lines: int,
    ) -> list[Value]:  # fmt: skip
        """Return the state `before`, after the steps under one tap."""
        n = rows * self.vectors
        is_near = len(before) == n
        pieces, here, then = strides.pieces(g, a, tap, rows), b, ahead
        if is_near:
            apart = g.mul(tap, g.add(g.mul(strides.k, strides.ldb), strides.taps.b_skip))
            here, then = self.unread(g, b, apart), self.unread(g, ahead, apart)
        found = self._steps(g, strides, pieces, here, then, before, rows, lines)
        if not is_near:
            found[n] = self.unread(g, found[n], strides.taps.b_skip)
        return found

    def _blocks(
        self, g: Function, strides: Strides, a: Sequence[Value], b: Value, ahead: Value,
        places: Sequence[Value], rows: int, lines: int, near: bool,
    ) -> list[Value]:  # fmt: skip
        """Leave the sums of any number of steps in c, and return them. Their blocks are added there, since
        the registers are full."""
        zero, k, size = Value(VECTOR, "zeroinitializer"), strides.k, strides.block

        def block(begin: Int, steps: Int, moving: Sequence[Value]) -> list[Value]:
            state = [*[zero] * len(places), *moving]
            found = self._steps(g, strides, a, b, ahead, state, rows, lines, begin, steps)
            sums = found[: len(places)]
            g.either(
                self.into is not Into.ADDED and g.is_less(begin, 1),
                lambda: self._store(g, sums, places),
                lambda: self._store(g, self._added(g, sums, places), places),
            )
            return found[len(places) :]

        moving: Sequence[Value] = [] if near else [b, ahead]
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

    def _blocks_in_registers(
        self, g: Function, strides: Strides, a: Value, b: Value, ahead: Value, rows: int, lines: int,
        near: bool,
    ) -> list[Value]:  # fmt: skip
        """Return the sums of any number of steps, blocks of which are added up in registers."""
        n, k, size = rows * self.vectors, strides.k, strides.block
        zero, nothing = Value(VECTOR, "zeroinitializer"), Vec(g, splat(g, "f32", -0.0)).value

        def block(begin: Int, steps: Int, state: Sequence[Value]) -> list[Value]:
            found = self._steps(
                g, strides, [a], b, ahead, [*[zero] * n, *state[n:]], rows, lines, begin, steps
            )
            pairs = zip(state[:n], found[:n], strict=True)
            return [*(self.arithmetic.add(g, before, x) for before, x in pairs), *found[n:]]

        state: Sequence[Value] = [*[nothing] * n, *([] if near else [b, ahead])]
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
        self, g: Function, strides: Strides, sums: Sequence[Value], b: Value, places: Sequence[Value]
    ) -> list[Value]:
        """Return c's sums plus those of one more chain times the scales of their columns."""
        found, planes = [], self.arithmetic.planes
        for v in range(self.vectors):
            scales = g.load(VECTOR, strides.scales(g, b, self.element, v), align=4)
            of_columns = sums[v :: self.vectors]
            for r, place in enumerate(places[v :: self.vectors]):
                total = self.arithmetic.total(g, *of_columns[r * planes : (r + 1) * planes])
                found.append(F32.multiply_add(g, total, scales, g.load(VECTOR, place, align=4)))
        n_rows = len(places) // self.vectors
        return [found[v * n_rows + r] for r in range(n_rows) for v in range(self.vectors)]

    @staticmethod
    def _store(g: Function, sums: Sequence[Value], places: Sequence[Value]) -> None:
        for value, place in zip(sums, places, strict=True):
            g.store(value, place, align=4)

    def _steps(
        self, g: Function, strides: Strides, a: Sequence[Value], b: Value, ahead: Value,
        state: Sequence[Value], rows: int, lines: int, first: Int = 0, count: Int | None = None,
    ) -> list[Value]:  # fmt: skip
        """Return `state`, that is the sums, after `count` steps (None: all) from step `first` on.

        The state may hold two addresses that move along: where B's next row lies, and what is prefetched
        next. Computing them from k takes more instructions a trip, which cost time beside another thread of
        the core (3 to 8 % of a product's). Without them a micro-kernel reads `near`: of 14 x 32 registers are
        too few for two addresses more, and sums are spilled.
        """
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
                right = g.at(b, self.element, begins) if is_near else moving[0]
                for step in range(steps):
                    there = g.at(right, self.element, g.mul(step, strides.ldb))
                    self._step(g, strides, sums, left[step], there)
                if is_near:
                    self._prefetch_rows(g, strides, self.unread(g, ahead, begins), steps)
                else:
                    following = g.at(right, self.element, g.mul(steps, strides.ldb))
                    moving = [following, self._prefetch_lines(g, moving[1], lines if steps > 1 else 0)]
                k.next(*sums, *moving, *walkers.moved(g, steps))
            state = k.results
        return [*self._of_lasts(g, with_zeros, state[:n]), *state[n:n_state]]

    def _of_lasts(
        self, g: Function, change: Callable[[Function, Value], Value], sums: Sequence[Value]
    ) -> list[Value]:
        """Return `sums`, those of each row's last vector changed if that has only half its columns."""
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
        """Prefetch successive cache lines; return where the next ones lie."""
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


# Rows shared out to micro-kernels ---------------------------------------------------------------------


def shares(count: int, most: int) -> set[int]:
    """Return the numbers of rows of the tiles that `each_tile` makes of `count` rows."""
    if count == 0:
        return set()
    n = -(-count // most)
    return {count // n, -(-count // n)}


def split(count: int, most: int) -> list[tuple[int, int]]:
    """Return the first row and the rows of each of the tiles that `each_tile` makes of `count` rows."""
    n = -(-count // most)
    base, extra = divmod(count, n)
    return [(i * base + min(i, extra), base + (i < extra)) for i in range(n)]


def row_counts(m: Int, block: int, most_rows: int) -> list[int]:
    """Return the numbers of rows that `each_tile` may make tiles of, at most `most_rows`, in blocks of
    `block` of `m` rows."""
    low, high = least(m), most(m)
    if high is None or high - low > block:
        return list(range(1, most_rows + 1))
    found = shares(block, most_rows) if high >= block else set()
    for rows in range(low, high + 1):
        found |= shares(rows % block, most_rows)
    return sorted(found)


def each_tile(f: Function, count: Int, most: int, tile: Callable[[Int, Int, Int], None]) -> None:
    """Emit a loop over `count` rows (at run time > 0) in ceil(count / most) tiles of sizes as even as can be.

    `tile(number, begin, rows)` emits the work of one tile.
    """
    if count == 0:
        return
    n = f.ceildiv(count, most)
    base, extra = f.udiv(count, n), f.urem(count, n)
    if n == 1:
        tile(0, 0, base)
        return
    with f.loop(0, n, carried=[f.i64(0)]) as loop:
        begin = loop.carried[0]
        rows = base
        if extra != 0:
            larger = f.less(loop.index, extra)
            rows = f.add(base, f.op("i64", f"zext i1 {larger.name} to i64"))
        tile(loop.index, begin, rows)
        loop.next(f.i64(f.add(begin, rows)))


def dispatch(f: Function, value: Int, cases: Sequence[int], emit: Callable[[int], None]) -> None:
    """Emit `emit(case)` for the one of `cases` that equals `value`; no other value may occur."""
    if len(cases) == 1 or isinstance(value, int):
        emit(value if isinstance(value, int) else cases[0])
        return
    labels = [f.label("case") for _ in cases]
    after = f.label("after")
    table = " ".join(f"i64 {case}, label %{label}" for case, label in zip(cases[1:], labels[1:], strict=True))
    f.do(f"switch i64 {value.name}, label %{labels[0]} [ {table} ]")
    for case, label in zip(cases, labels, strict=True):
        f.start(label)
        emit(case)
        f.do(f"br label %{after}")
    f.start(after)


# Vectors with some lanes missing ------------------------------------------------------------------------


def tail(f: Function, remaining: Int) -> Value:
    """Return the mask of the lanes l < remaining, for any `remaining`."""
    return tail_mask(f, f.maximum(remaining, 0))


def load(f: Function, address: Value, mask: Value | None) -> Value:
    """Load a vector; lanes outside `mask` are 0 and not read."""
    if mask is None:
        return f.load(VECTOR, address, align=4)
    nothing = Value(VECTOR, "zeroinitializer")
    return f.call(VECTOR, f"llvm.masked.load.v{LANES}f32.p0", address, Value("i32", "4"), mask, nothing)


def store(f: Function, value: Value, address: Value, mask: Value | None) -> None:
    """Store a vector; lanes outside `mask` are not written."""
    if mask is None:
        f.store(value, address, align=4)
    else:
        f.call("void", f"llvm.masked.store.v{LANES}f32.p0", value, address, Value("i32", "4"), mask)
