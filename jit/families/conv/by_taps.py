"""A Conv by taps with weights packed for Winograd's algorithm: all taps of a channel are adjacent.

In a small image many rows, those at its sides, have a line of taps outside. If a block's rows are known,
those that miss the same side are grouped, and row tiles skip the taps that are outside for all of their rows:
in an image of 7 x 7 these are 16 % of all. An element outside of the image is 0 and weights in this layout
are finite, so the skipped terms would be zeros, and the bits stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod

from ...llvm.abi import Generated, resolve
from ...llvm.function import Function, Int, Value
from ...spec import Terms, Unknown
from ..matmul import variants
from ..matmul.arithmetic import F32
from ..matmul.epilogue import RowTile
from ..matmul.problem import Problem
from ..matmul.product import Emission, Product
from ..matmul.row_tiles import Finish, RowTiles
from ..matmul.strides import Strides
from . import winograd
from .indirection import ADDRESSES, WIDE, Indirection
from .pixels import geometry_of
from .spec import Conv, Window
from .winograd_points import TAPS

MAX_PIXELS = 64  # of an image's outputs: with more, the share at the sides is too small to pay for sorting
LEAST_WEIGHTS = 64 * 64  # under a tap: with fewer, sorting a block of rows costs as much as it saves
SIDES = 4  # of an image


def has_few_pixels(window: Window[Unknown]) -> bool:
    """Whether an image is known to have so few outputs that sorting their rows pays."""
    sizes = [size for size in window.out if isinstance(size, int)]
    return len(sizes) == len(window.out) and prod(sizes) <= MAX_PIXELS


class SortedRows(Indirection):
    """The addresses of a block's rows, sorted by their side of the image, followed by bit masks of the taps
    inside of the image for each row. Construct it in the entry block."""

    def __init__(self, f: Function, problem: Problem, spec: Conv, image: Value, place: Value) -> None:
        super().__init__(f, geometry_of(f, spec, problem.sizes), image, place, problem.block)
        n_addresses = (self.taps + 1) * self.apart
        self.sorted = f.at(self.table, "i64", n_addresses)
        self.order = f.at(self.sorted, "i64", n_addresses)
        self.sides = f.at(self.order, "i64", self.apart)

    def scratch(self) -> Terms:
        """See `Lhs`."""
        numbers = 2 * (self.taps + 1) * self.apart + 2 * self.apart
        return ((4 * self.n_zeros + 8 * numbers, ()),)

    def of(self, strides: Strides) -> Strides:
        """See `Lhs`."""
        return super().of(strides).of_taps(seen=self.taps * self.apart)

    def at(self, batch: Sequence[Int], m0: Int) -> Value:
        """See `Lhs`."""
        return self.sorted

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """See `Lhs`."""
        super().prepare(outer, m0, rows)
        f = self.f
        self._see(rows)
        with f.loop(0, rows) as row:
            f.store(f.i64(self._side(self._bits(row.index))), f.at(self.sides, "i64", row.index), align=8)
        count: Int = 0
        for side in range(SIDES + 1):
            count = self._append(side, rows, count)
        with f.loop(0, rows) as row, f.loop(0, self.taps + 1) as tap:
            begin = f.mul(tap.index, self.apart)
            there = f.at(self.table, "i64", f.add(begin, self.row(row.index)))
            here = f.at(self.sorted, "i64", f.add(begin, row.index))
            f.store(f.load("i64", there, align=8), here, align=8)

    def row(self, place: Int) -> Value:
        """Return the row of the block at a position of the sorted order."""
        return self.f.load("i64", self.f.at(self.order, "i64", place), align=8)

    def _bits(self, row: Int) -> Value:
        """Return the bit mask of the taps inside of the image for a row."""
        place = self.f.at(self.table, "i64", self.f.add(self.taps * self.apart, row))
        return self.f.load("i64", place, align=8)

    def _see(self, rows: Int) -> None:
        """Emit the bit masks of taps of all rows, after the addresses."""
        f = self.f
        zeros = f.splat(f.op("i64", f"ptrtoint ptr {self.zeros.name} to i64"), ADDRESSES)
        with f.loop(0, rows, ADDRESSES) as row:
            seen = Value(WIDE, "zeroinitializer")
            for tap in range(self.taps):
                place = f.at(self.table, "i64", f.add(tap * self.apart, row.index))
                inside = f.op(
                    f"<{ADDRESSES} x i1>", f"icmp ne {WIDE} {f.load(WIDE, place, align=8).name}, {zeros.name}"
                )
                bit = f.splat(f.i64(1 << tap), ADDRESSES).name
                chosen = f.op(
                    WIDE, f"select {inside.type} {inside.name}, {WIDE} {bit}, {WIDE} zeroinitializer"
                )
                seen = f.op(WIDE, f"or {WIDE} {seen.name}, {chosen.name}")
            f.store(seen, f.at(self.table, "i64", f.add(self.taps * self.apart, row.index)), align=8)

    def _side(self, seen: Value) -> Int:
        """Return the number of the side beyond which a row's taps reach, corners clockwise; SIDES inside of
        the image."""
        f, along, down = self.f, range(TAPS), range(TAPS)
        line, column = sum(1 << x for x in along), sum(1 << TAPS * y for y in down)
        lines = (line, column << TAPS - 1, line << TAPS * (TAPS - 1), column)
        is_outside = [f.less(f.op("i64", f"and i64 {seen.name}, {bits}"), 1) for bits in lines]
        side: Int = SIDES
        for i in reversed(range(SIDES)):
            after = is_outside[(i + 1) % SIDES]
            assert isinstance(is_outside[i], Value) and isinstance(after, Value)
            belongs = f.op(
                "i1", f"and i1 {is_outside[i].name}, {f.op('i1', f'xor i1 {after.name}, true').name}"
            )
            side = f.select(belongs, i, side)
        return side

    def _append(self, side: int, rows: Int, count: Int) -> Int:
        """Append the rows of a side to the order of `count` rows; return the new count."""
        f = self.f
        with f.loop(0, rows, carried=[f.i64(count)]) as row:
            f.store(f.i64(row.index), f.at(self.order, "i64", row.carried[0]), align=8)
            here = f.load("i64", f.at(self.sides, "i64", row.index), align=8)
            belongs = f.op("i1", f"icmp eq i64 {here.name}, {side}")
            row.next(f.i64(f.add(row.carried[0], f.op("i64", f"zext i1 {belongs.name} to i64"))))
        return row.results[0]


class SortedProduct(Product):
    """The tiles of a product whose rows are sorted: they are put back in order after their sums, which
    therefore go through scratch."""

    def finish(self, tile: RowTile) -> Finish:
        """See `Product`."""
        f, epilogue, lhs = self.emission.f, self.emission.epilogue, self.lhs
        assert isinstance(lhs, SortedRows)

        def done(begin: Int, count: Int, sums: Value) -> None:
            with f.loop(0, count, nonempty=True) as at:
                row = lhs.row(f.add(begin, at.index))
                place = f.at(sums, "float", f.mul(at.index, self.emission.problem.width))
                epilogue.emit(tile._replace(m0=f.add(tile.m0, row), rows=1), place)

        return Finish(done, lambda begin, count: None)


def alone(f: Function, spec: Conv, problem: Problem) -> Product:
    """Return the product of a kernel without an alternative: its tiles are those of any matmul. Known rows
    are sorted. Call in the entry block."""
    n, k = problem.n, problem.k
    has_many = isinstance(n, int) and isinstance(k, int) and n * k >= LEAST_WEIGHTS * TAPS * TAPS
    if not (has_many and problem.is_exact):
        return _product(f, spec, problem)
    f.takes("sorted-rows")
    emission, image, place = _opened(f, spec, problem)
    lhs = SortedRows(f, problem, spec, image, place)
    made = SortedProduct.of(emission, lhs)
    return SortedProduct(emission, lhs, emission.row_tiles.steps.all_taps(made.strides, lhs.width, 0))


def beside(f: Function, spec: Conv, problem: Problem) -> Product:
    """Return the product of a kernel with an alternative: shares of rows are as long as the alternative's
    blocks, for any number of rows. Call in the entry block."""
    most = winograd.PIXELS_OF_TILE * winograd.MAX_TILES + winograd.PIXELS_OF_WEIGHTS + 1
    problem = replace(problem, block=most)
    made = _product(f, spec, problem)
    given = (problem.block, problem.k, problem.width, problem.schedule, F32, problem.pieces)
    row_tiles = RowTiles(f, f.i64(problem.m), *given)
    return replace(made, emission=replace(made.emission, row_tiles=row_tiles))


def _product(f: Function, spec: Conv, problem: Problem) -> Product:
    """Return the product with rows in their order."""
    f.takes("indirection")
    emission, image, place = _opened(f, spec, problem)
    lhs = Indirection(f, geometry_of(f, spec, problem.sizes), image, place, problem.block)
    made = Product.of(emission, lhs)
    return replace(made, strides=emission.row_tiles.steps.all_taps(made.strides, lhs.width, 0))


def _opened(f: Function, spec: Conv, problem: Problem) -> tuple[Emission, Value, Value]:
    """Return the emission of a product, the image, and the address in scratch for addresses."""
    emission = Emission.open(f, problem)
    place = emission.scratch.behind_copy(f, problem)
    return emission, emission.bodies.addresses[spec.product.a], place


def emit_shares(product: Product, generated: Generated) -> None:
    """Emit the loop over the tiles of another kernel, `generated`, with the same columns as innermost tiles:
    each block has an even share of all rows, cut at iterations of batch loops."""
    emission, lhs, problem = product.emission, product.lhs, product.emission.problem
    assert isinstance(lhs, Indirection)
    f, m, width = emission.f, problem.m, problem.width
    lhs.clear()
    counts = [f.ceildiv(resolve(size, problem.sizes), divisor) for size, divisor in generated.work.tiles[:-1]]
    outer = [problem.groups, *problem.batch]
    n_blocks, total = (reduce(f.mul, factors) for factors in (counts, [*outer, m]))
    with f.loop(f.params[3], f.params[4]) as tile:
        panels = f.ceildiv(problem.n, width)
        block, panel = f.udiv(tile.index, panels), f.urem(tile.index, panels)
        first, end = (f.udiv(f.mul(total, at), n_blocks) for at in (block, f.add(block, 1)))
        last = f.udiv(f.add(end, f.sub(m, 1)), m)
        with f.when(f.less(first, end)), f.loop(f.udiv(first, m), last) as at:
            start = f.mul(at.index, m)
            m0 = f.maximum(f.sub(first, start), 0)
            rows = f.sub(f.minimum(f.sub(end, start), m), m0)
            place = f.unravel(at.index, outer[1:])
            lhs.prepare(place, m0, rows)
            product.tile(
                place, m0, rows, panel, f.mul(panel, width), lambda found: variants.emit_tile(product, found)
            )
