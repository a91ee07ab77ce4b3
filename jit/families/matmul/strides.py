"""The layout of a micro-kernel's operands: rows of A, steps of B, rows of C, and the taps of a window."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...llvm.function import Bounded, Function, Int, Value, least, most, multiple_of
from ...loops.bodies import LANES
from .schedules import PANEL
from .walkers import NO_WALKERS, Walkers

UNROLL = 4  # steps of k in one iteration
ROOM_OF_PLANES = 4  # elements of the planes of a row for a step, which are adjacent
MAX_WALKED = 13  # rows; beside 28 sums of 14 rows one more address is spilled


class Taps(NamedTuple):
    """`n` taps of a window, under each of which A's rows have a piece.

    `a` is then a table of addresses, a row for each tap, `apart` addresses from one to the next; pieces begin
    `offset` elements after them. `b_skip`: elements from the end of a tap's rows of B to the next tap's.
    `seen`: addresses from a row's first one to the bit mask of the taps with elements, an i64; other taps are
    zeros, and taps without elements for any row of a tile are skipped (0: none are skipped).
    """

    n: Int = 0
    apart: Int = 0
    offset: Int = 0
    b_skip: Int = 0
    seen: Int = 0


NO_TAPS = Taps()


class Panels(NamedTuple):
    """Panels of `width` columns, `apart` elements from one to the next (0: no panels, rows are
    contiguous)."""

    apart: int = 0
    width: int = PANEL


NO_PANELS = Panels()


@dataclass(frozen=True)
class Strides:
    """Elements from one row to the next (`lda`, `ldb`, `ldc`), and the number of steps `k`.

    `a_panels`: in which A is stored. `b_panel`: the elements from one panel of PANEL columns of B to the next
    (0: its rows are contiguous). `table`: the offset of each step of k in A's rows, i64 (0: contiguous).
    `taps`: if there are any, A's rows are in pieces of `k` steps, one for each tap. `planes`: interleaved
    rows of A, each step of them in ROOM_OF_PLANES elements (1: not interleaved); `lda` then leads to the next
    such rows. `block`: steps of a block of the sums (0: they are one chain). `is_shared`: one micro-kernel
    serves sums of other lengths and strides, which are then arguments, unless sums fill the registers.
    `shares_all`: even then, which costs up to 6 % with 14 rows of many steps: in code for any number of rows.
    """

    lda: Int
    ldb: Int
    ldc: Int
    k: Int
    a_panels: Panels = NO_PANELS
    b_panel: Int = 0
    table: Int = 0
    taps: Taps = NO_TAPS
    block: Int = 0
    is_shared: bool = False
    shares_all: bool = False
    planes: int = 1

    def _all(self) -> tuple[Int, ...]:
        return (self.lda, self.ldb, self.ldc, self.k, self.b_panel, self.table, *self.taps, self.block)

    @property
    def has_taps(self) -> bool:
        """Whether A's rows are in pieces, at addresses."""
        return self.taps.n != 0

    def of_taps(self, **changes: Int) -> Strides:
        """Return these strides with other taps."""
        return replace(self, taps=self.taps._replace(**changes))

    def values(self) -> list[Value]:
        """Return the run-time values, which a micro-kernel takes as arguments."""
        return [x for x in self._all() if isinstance(x, Value)]

    def known(self) -> tuple[Hashable, ...]:
        """Return the values compiled into a micro-kernel, and what is known of its arguments."""
        return (self.a_panels, self.is_shared, self.planes, *map(_known, self._all()))

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
        """Return the counterpart of `a` for A's row `r`."""
        return g.at(a, "ptr", r) if self.has_taps else g.at(a, "float", self._row(g, r))

    def _row(self, g: Function, r: Int) -> Int:
        """Return the address of A's row `r`."""
        if self.planes == 1:
            return g.mul(r, self.lda)
        return g.add(g.mul(g.udiv(r, self.planes), self.lda), g.urem(r, self.planes))

    @property
    def a_step(self) -> int:
        """The elements from a step of a row of A to the next."""
        return 1 if self.planes == 1 else ROOM_OF_PLANES

    def behind(self, g: Function, a: Value, r: Int) -> Value:
        """Return the address after all steps of A's row `r`."""
        return g.at(self.row(g, a, r), "float", g.mul(self.k, self.a_step))

    def pieces(self, g: Function, a: Value, tap: Int, rows: int) -> list[Value]:
        """Return the addresses of the rows under a tap."""
        first = g.at(a, "ptr", g.mul(tap, self.taps.apart))
        addresses = [g.load("ptr", g.at(first, "ptr", r), align=8) for r in range(rows)]
        return [g.at(address, "float", self.taps.offset) for address in addresses]

    def vector(self, g: Function, v: int) -> Int:
        """Return the address of vector `v` of a row of B."""
        column = LANES * v
        if self.b_panel == 0:
            return column
        return g.add(g.mul(column // PANEL, self.b_panel), column % PANEL)

    def scales(self, g: Function, b: Value, element: str, v: int) -> Value:
        """Return the address of the scales of vector `v`, in f32 after all steps' rows of B at `b`."""
        panel = LANES * v // PANEL if self.b_panel != 0 else 0
        behind = g.add(g.mul(self.k, self.ldb), g.mul(panel, self.b_panel))
        return g.at(g.at(b, element, behind), "float", LANES * v - panel * PANEL)

    def column(self, g: Function, k: Int) -> Int:
        """Return the position of step k of A's rows."""
        if isinstance(self.table, Value):
            return g.load("i64", g.at(self.table, "i64", k), align=8)
        apart, width = self.a_panels
        if not apart:
            return g.mul(k, self.a_step)
        return g.add(g.mul(g.udiv(k, width), apart), g.urem(k, width))

    def walkers(self, g: Function, a: Sequence[Value], first: Int, rows: int) -> Walkers:
        """Return the walkers along several rows, from step `first` on; none if rows are found in other
        ways."""
        if rows == 1 or not self.is_shared or self.has_taps or isinstance(self.lda, int):
            return NO_WALKERS
        return Walkers.begin(g, g.at(a[0], "float", first), self.lda, rows)

    def steps(self, g: Function, a: Sequence[Value], k: Int, n: int, rows: int) -> list[list[Value]]:
        """Return the addresses of n successive steps of A's rows, by step and row; an iteration does not
        cross panels. `a`: the address of the first row, or of each."""
        if isinstance(self.table, Value):
            firsts = [[g.at(row, "float", self.column(g, g.add(k, step))) for row in a] for step in range(n)]
        else:
            begins = [g.at(row, "float", self.column(g, k)) for row in a]
            firsts = [[g.at(row, "float", step * self.a_step) for row in begins] for step in range(n)]
        if self.has_taps:
            return firsts
        return [[g.at(first, "float", self._row(g, r)) for r in range(rows)] for (first,) in firsts]


def _known(x: Int) -> Hashable:
    """Return what is known of a number, on which the code depends."""
    return x if isinstance(x, int) else (least(x), most(x), multiple_of(x))
