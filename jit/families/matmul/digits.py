"""Rows of f32 as integers of three digits, which are multiplied by small integers exactly.

A row x of A becomes integers of 24 bits times a power of two: rint(x / 2^e), where its greatest magnitude is
below 2^23 - 2^16 times 2^e and no smaller e has that. An integer is written in three digits of -128 .. 127,
of 1, 256 and 65,536. So a row becomes PLANES rows of bytes, and each is multiplied by the integers of B as A
in bytes is (`grouped`), by instructions that multiply four bytes where a multiply-add multiplies one number.
Of a group's three sums of a column high * 65,536 + (middle * 256 + low) is its sum, the inner one exactly in
i32, the outer one by a fused multiply-add. The total of all groups is multiplied by 2^e, in two powers of
two, which neither overflow nor vanish.

Bytes of B are not negative there: `MIDDLES` is added to its integers. What that adds to a group's sum depends
on the digits alone, so sums begin with what takes it off again: an i32 behind the digits of a group.

A row that holds an infinity or NaN is multiplied in f32, as slowly as need be. So is one whose greatest
number would leave little of the others: its binary exponent is more than SPREAD above the mean of those of
the numbers that are not zero. `sums.digit_products` is the definition of all that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...llvm.function import Function, Int, Value
from ...llvm.target import find_target
from ...llvm.vector import Vec, fma
from ...loops.bodies import LANES, splat
from ...spec import Terms
from .arithmetic import PLANES, VECTOR
from .byte_dots import INTEGERS
from .grouped import FOUR, MIDDLES, SIZES, Groups, pack_grouped
from .lhs import Lhs
from .problem import Problem
from .schedules import PANEL
from .strides import Strides
from .sums import SPREAD

SIGNLESS = 0x7FFFFFFF  # of the bits of an f32
INFINITE = 0x7F800000  # the bits of an infinity; those of NaNs are greater
FRACTION_BITS, BIAS = 23, 127
ROOM = 1 << 17  # added to a magnitude's bits: where it is close to the next power of two, that counts
#: A magnitude of exponent field E is below 2^(E - 126): times 2^(SHIFT - E) it is below 2^23.
SHIFT = 126 + 23
BASE = 256
LEAST_COLUMNS = 128  # of B: digits cost as much as a product with 64
LEAST_STEPS = 32  # of a group
LEAST_SCALE = 2.0**-64


def pays(k: int, n: int, targets: Iterable[str]) -> bool:
    """Whether products with a weight [k, n] are faster in digits: there is enough to do, all targets multiply
    bytes faster than f32, and none multiplies f32 faster by AMX tiles."""
    found = [find_target(name) for name in targets]
    has_dots = bool(found) and all(target.dot and target.extension != "amx" for target in found)
    return has_dots and n >= LEAST_COLUMNS and steps(k) > 0


def fit(k: int, scales: np.ndarray) -> bool:
    """Whether the `k` steps of a weight with scales [groups, N] have groups long enough, and products of
    digits with scales so large and small neither overflow nor lose bits."""
    sizes = np.abs(scales[scales != 0])
    has_usual_sizes = bool((sizes > LEAST_SCALE).all() and (sizes < 1 / LEAST_SCALE).all())
    return has_usual_sizes and k >= LEAST_STEPS * len(scales)


def steps(k: int) -> int:
    """Return the steps of the groups of a sum of `k` steps with one scale, 0: it has none."""
    return next((size for size in sorted(SIZES, reverse=True) if k % size == 0 and size >= LEAST_STEPS), 0)


def pack(integers: np.ndarray) -> np.ndarray:
    """Return integers of a byte [K, N], without scales, as kernels read them."""
    k, n = integers.shape
    ones = np.ones((k // steps(k), n), np.float32)
    return pack_grouped(integers.astype(np.int8), ones, FOUR, PLANES)


@dataclass(frozen=True)
class Scaling:
    """How a row is scaled: the bits that its numbers keep (all, or none where it has no digits), and two
    powers of two, by which they are multiplied."""

    kept: Value
    factors: Sequence[Value]


class InDigits:
    """Rows of another left operand, of f32, in digits in scratch at `place`: see `Lhs`. Those of a group of
    steps lie side by side, by row and plane."""

    has_whole_groups = True

    def __init__(self, f: Function, problem: Problem, rows: Lhs, place: Value) -> None:
        assert problem.grouped is not None
        self.f, self.problem, self.rows = f, problem, rows
        self.groups: Groups = problem.grouped
        self.place = f.at(place, "float", self._floats_before)
        self.stride: Int = self.groups.left

    @property
    def _factors(self) -> Value:
        """Where the factors of the sums lie, two for each row: powers of two, or NaN."""
        return self.f.at(self.place, "float", self._floats)

    @property
    def _floats_before(self) -> Int:
        """The floats in scratch of the rows themselves."""
        return self.f.mul(self.problem.block, self.rows.stride) if self.rows.has_whole_groups else 0

    @property
    def _floats(self) -> int:
        return self.problem.block * self.groups.count * self.groups.left_of_planes

    def scratch(self) -> Terms:
        """See `Lhs`."""
        return (*self.rows.scratch(), (4 * (self._floats + 2 * self.problem.block), ()))

    def of(self, strides: Strides) -> Strides:
        """See `Lhs`."""
        return replace(strides, lda=self.stride)

    def at(self, batch: Sequence[Int], m0: Int) -> Value:
        """See `Lhs`: the digits of row `m0`, the first of the block."""
        return self.place

    # Digits -----------------------------------------------------------------------------------------------

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """See `Lhs`."""
        f = self.f
        self.rows.prepare(outer, m0, rows)
        first = self.rows.at(outer, m0)
        with f.loop(0, rows) as r:
            row = f.at(first, "float", f.mul(r.index, self.rows.stride))
            scaling = self._scaling(row, f.at(self._factors, "float", f.mul(r.index, 2)))
            with f.loop(0, self.groups.count) as group:
                source = f.at(row, "float", f.mul(group.index, self.groups.steps))
                number = f.add(f.mul(group.index, rows), r.index)
                to = f.at(self.place, "float", f.mul(number, self.groups.left_of_planes))
                self._group(source, to, scaling)

    def _scaling(self, row: Value, factors: Value) -> Scaling:
        """Return how the row at `row` is scaled; leave what its sums are multiplied by at `factors`."""
        f = self.f
        greatest, has_digits = self._greatest(row)
        near = f.op("i32", f"add i32 {greatest.name}, {ROOM}")
        field = f.op("i32", f"lshr i32 {near.name}, {FRACTION_BITS}")
        exponent = f.op("i32", f"sub i32 {SHIFT}, {f.call('i32', 'llvm.umax.i32', field, _i32(1)).name}")
        half = f.op("i32", f"ashr i32 {exponent.name}, 1")
        other = f.op("i32", f"sub i32 {exponent.name}, {half.name}")
        for i, power in enumerate((half, other)):
            factor = self._power(f.op("i32", f"sub i32 0, {power.name}")).name
            nan = Value("float", "0x7FF8000000000000").name
            number = f.op("float", f"select i1 {has_digits.name}, float {factor}, float {nan}")
            f.store(number, f.at(factors, "float", i), align=4)
        kept = f.op("i32", f"sext i1 {has_digits.name} to i32")
        powers = [f.splat(self._power(power), LANES) for power in (half, other)]
        return Scaling(f.splat(kept, LANES), powers)

    def _greatest(self, row: Value) -> tuple[Value, Value]:
        """Return the bits of the greatest magnitude of the row at `row`, and whether it has digits."""
        f = self.f
        zeros = [Value(INTEGERS, "zeroinitializer")] * 3
        with f.loop(0, self.groups.count * self.groups.steps, LANES, carried=zeros) as k:
            greatest, fields_so_far, counted = (Vec(f, x) for x in k.carried)
            bits = Vec(f, f.load(VECTOR, f.at(row, "float", k.index), align=4)).bits() & SIGNLESS
            fields = bits.binary("lshr", FRACTION_BITS)
            is_counted = fields.compare("ne", 0).convert("zext", "i32")
            k.next(
                bits.intrinsic("smax", greatest).value,
                (fields_so_far + fields).value,
                (counted + is_counted).value,
            )
        found = f.call("i32", f"llvm.vector.reduce.smax.v{LANES}i32", k.results[0])
        sums = (f.call("i32", f"llvm.vector.reduce.add.v{LANES}i32", x) for x in k.results[1:])
        total, count = (f.op("i64", f"zext i32 {x.name} to i64") for x in sums)
        field = f.op("i64", f"zext i32 {f.op('i32', f'lshr i32 {found.name}, {FRACTION_BITS}').name} to i64")
        least = f.op("i64", f"mul i64 {f.op('i64', f'sub i64 {field.name}, {SPREAD}').name}, {count.name}")
        is_even = f.op("i1", f"icmp sle i64 {least.name}, {total.name}")
        is_finite = f.op("i1", f"icmp ult i32 {found.name}, {INFINITE}")
        return found, f.op("i1", f"and i1 {is_finite.name}, {is_even.name}")

    def _power(self, exponent: Value) -> Value:
        """Return 2 to the power of an i32."""
        f = self.f
        field = f.op("i32", f"add i32 {exponent.name}, {BIAS}")
        bits = f.op("i32", f"shl i32 {field.name}, {FRACTION_BITS}")
        return f.op("float", f"bitcast i32 {bits.name} to float")

    def _group(self, source: Value, to: Value, scaling: Scaling) -> None:
        """Emit the digits of a group of steps at `source`, and what sums begin with, to `to` and the planes
        behind it."""
        f, groups = self.f, self.groups
        zeros = [Value(INTEGERS, "zeroinitializer")] * PLANES
        with f.loop(0, groups.steps, LANES, carried=zeros) as k:
            x = Vec(f, f.load(VECTOR, f.at(source, "float", k.index), align=4))
            scaled = (x.bits() & Vec(f, scaling.kept)).floats()
            for factor in scaling.factors:
                scaled = scaled * Vec(f, factor)
            number, numbers = scaled.rint().convert("fptosi", "i32"), []
            for i in range(PLANES):
                numbers.append(number)
                there = f.at(f.at(to, "float", i * groups.left), "i8", k.index)
                f.store(number.convert("trunc", "i8").value, there, align=4)
                number = (number + BASE // 2).binary("ashr", 8)  # less its digit
            k.next(*((Vec(f, total) + x).value for total, x in zip(k.carried, numbers, strict=True)))
        totals = [f.call("i32", f"llvm.vector.reduce.add.v{LANES}i32", x) for x in k.results]
        for i, total in enumerate(totals):
            digits = total
            if i + 1 < PLANES:
                higher = f.op("i32", f"mul i32 {totals[i + 1].name}, {BASE}")
                digits = f.op("i32", f"sub i32 {total.name}, {higher.name}")
            start = f.op("i32", f"mul i32 {digits.name}, {-MIDDLES[groups.dtype]}")
            f.store(start, f.at(to, "float", i * groups.left + groups.rows), align=4)

    # Sums -------------------------------------------------------------------------------------------------

    def scale(
        self, batch: Sequence[Int], m0: Int, rows: Int, b: Value, sums: Value, width: int, columns: int
    ) -> None:
        """Multiply sums by the powers of two of their rows: those at `sums` of `rows` rows from `m0` on and
        `columns` columns of the panels at `b`, `width` floats from a row to the next."""
        f, first = self.f, self.rows.at(batch, m0)
        with f.loop(0, rows) as r:
            factors = [
                f.load("float", f.at(self._factors, "float", f.add(f.mul(r.index, 2), i)), align=4)
                for i in range(2)
            ]
            to = f.at(sums, "float", f.mul(r.index, width))
            row = f.at(first, "float", f.mul(r.index, self.rows.stride))
            is_nan = f.op("i1", f"fcmp uno float {factors[0].name}, {factors[0].name}")
            f.either(
                is_nan,
                lambda: self._slowly(row, b, to, columns),
                lambda: self._multiplied(to, columns, [f.splat(x, LANES) for x in factors]),
            )

    def _multiplied(self, sums: Value, columns: int, factors: Sequence[Value]) -> None:
        """Emit the products of a row's sums with its factors."""
        f = self.f
        with f.loop(0, columns, LANES) as at:
            place = f.at(sums, "float", at.index)
            total = Vec(f, f.load(VECTOR, place, align=4))
            for factor in factors:
                total = total * Vec(f, factor)
            f.store(total.value, place, align=4)

    def _slowly(self, row: Value, b: Value, to: Value, columns: int) -> None:
        """Emit the products of the row at `row` in f32."""
        groups = self.groups

        def define(g: Function) -> None:
            row, b, to = g.params
            with g.loop(0, columns, PANEL) as panel:
                here = g.at(b, "i8", g.mul(panel.index, groups.panel_bytes // PANEL))
                nothing = [splat(g, "f32", 0.0)] * (PANEL // LANES)
                with g.loop(0, groups.count, carried=nothing) as group:
                    at = g.at(here, "i8", g.mul(group.index, groups.bytes))
                    left = g.at(row, "float", g.mul(group.index, groups.steps))
                    group.next(*_group_in_f32(g, groups, left, at, group.carried))
                for v, total in enumerate(group.results):
                    g.store(total, g.at(to, "float", g.add(panel.index, LANES * v)), align=4)

        self.f.call_part(f"in_f32_{columns}", define, row, b, to)


def _group_in_f32(
    g: Function, groups: Groups, row: Value, b: Value, totals: Sequence[Value]
) -> Iterable[Value]:
    """Return `totals`, of the vectors of a panel, after the steps of a group at `row` and `b`."""
    vectors, strides = range(PANEL // LANES), Strides(0, groups.row_bytes // 4, 0, groups.rows)
    scales = [Vec(g, g.load(VECTOR, strides.scales(g, b, "i32", v), align=4)) for v in vectors]
    with g.loop(0, groups.rows, carried=totals) as step:
        here, sums = g.at(b, "i8", g.mul(step.index, groups.row_bytes)), [Vec(g, x) for x in step.carried]
        row_of_b = groups.arithmetic.row(g, here, [LANES * v for v in vectors])
        quads = [Vec(g, x).bits() for x in row_of_b]
        for j in range(groups.together):
            x = g.load("float", g.at(row, "float", g.add(g.mul(step.index, groups.together), j)), align=4)
            for v in vectors:
                integers = (quads[v].binary("lshr", 8 * j) & 255) - MIDDLES[groups.dtype]
                sums[v] = fma(
                    integers.convert("sitofp", "float") * scales[v], Vec(g, g.splat(x, LANES)), sums[v]
                )
        step.next(*(x.value for x in sums))
    return step.results


def _i32(number: int) -> Value:
    return Value("i32", str(number))
