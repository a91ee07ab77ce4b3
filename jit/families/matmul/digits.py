"""Rows of f32 as fixed-point numbers of three limbs ("digits" in names), which are multiplied by small
integers exactly.

A row x of A becomes integers of 24 bits times a power of two: rint(x / 2^e), with the smallest e such that
its greatest magnitude is below 2^23 - 2^16 times 2^e. An integer consists of three limbs of -128 .. 127, in
units of 1, 256 and 65,536. So a row becomes PLANES rows of bytes, and each is multiplied by the integers of B
like an A in bytes (`grouped`), by instructions that multiply four bytes where a multiply-add multiplies one
number. A group's sum of a column is high * 65,536 + (middle * 256 + low) of its three sums, the inner one
exactly in i32, the outer one by a fused multiply-add. The total of all groups is multiplied by 2^e.

Bytes of B are unsigned here: `MIDDLES` is added to its integers. Its contribution to a group's sum depends
only on the limbs, so sums start with its negative: an i32 after the limbs of a group.

A row that holds an infinity or NaN is multiplied in f32, slowly. So is a row whose greatest number would
leave the others few bits: its binary exponent is more than SPREAD above the mean of those of the nonzero
numbers. And so is a row of nonzero numbers below 2^-104, for which 2^-e is not an f32. `sums.digit_products`
is the definition.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np

from ...llvm.function import Function, Int, Value
from ...llvm.target import find_target
from ...llvm.vector import Vec, fma
from ...loops.bodies import LANES, splat
from ...spec import Terms
from .arithmetic import VECTOR
from .byte_dots import BYTES, INTEGERS, by_plane, dot, lanes_of
from .grouped import MIDDLES, SIZES, Groups
from .lhs import Represented
from .schedules import PANEL
from .strides import Strides
from .sums import LEAST_FIELD, SPREAD

#: The bits of an infinity without its sign, shifted left by one, where an exponent field is a byte; those of
#: NaNs are greater.
INFINITE = 0xFF000000
FIELD_AT, FRACTION_BITS, BIAS = (
    24,
    23,
    127,
)  # bit positions of the exponent field there and in f32, and its bias
ROOM = 1 << 18  # added to a magnitude's bits there, so that one close to the next power of two counts as that
#: A magnitude of exponent field E is below 2^(E - 126): times 2^(SHIFT - E) it is below 2^23.
SHIFT = 126 + 23
MIDDLE_OF_DIGITS = 0x808080  # 128 in each limb: the bytes of an integer plus this are its limbs plus 128
LEAST_STEPS = 32  # of a group
LEAST_SCALE = 2.0**-64
#: Costs of a row in vector multiply-adds of f32 (benchmarks/log/quantised.md): a step of a vector of columns,
#: the limbs of LANES steps, the sums of a group, those of all groups.
DOTS, MAKING, SCALING, ENDING = 0.75, 9, 3, 8
SMALL = 1 << 20  # bytes of a weight in f32 that is usually in a cache
FEW_ROWS = 8  # cost as much as reading a weight from memory


def pays(k: int, n: int, group: int, targets: Iterable[str]) -> bool:
    """Whether products with a weight [k, n] are faster in limbs than in f32: they are large enough, all
    targets multiply bytes faster than f32, and none multiplies f32 faster by AMX tiles. `group`: the steps
    that share scales."""
    if not multiply_bytes(targets) or group < LEAST_STEPS:
        return False
    vectors = PANEL // LANES * -(-n // PANEL)
    in_digits = vectors * (DOTS * k + SCALING * k / group + ENDING) + MAKING * k / LANES
    return in_digits <= k * -(-n // LANES)


def multiply_bytes(targets: Iterable[str]) -> bool:
    """Whether targets multiply bytes faster than f32, and none f32 by AMX tiles."""
    found = [find_target(name) for name in targets]
    return bool(found) and all(target.dot and target.extension != "amx" for target in found)


def is_slower(k: int, n: int, group: int, rows: int, targets: Iterable[str]) -> bool:
    """Whether products of at least `rows` rows with a weight [k, n] of integers are slower than in f32 on
    targets that `multiply_bytes`: limbs do not pay, nor does reading fewer bytes. For other targets, see
    there."""
    if not multiply_bytes(targets) or pays(k, n, group, targets):
        return False
    return rows > FEW_ROWS or 4 * k * n < SMALL


def fit(k: int, scales: np.ndarray) -> bool:
    """Whether the `k` steps of a weight with scales [groups, N] have long enough groups, and products of
    limbs with these scales neither overflow nor lose bits."""
    sizes = np.abs(scales[scales != 0])
    has_usual_sizes = bool((sizes > LEAST_SCALE).all() and (sizes < 1 / LEAST_SCALE).all())
    return has_usual_sizes and k >= LEAST_STEPS * len(scales)


def steps(k: int) -> int:
    """Return the steps of the groups of a sum of `k` steps with one scale, 0: it has none."""
    return next((size for size in sorted(SIZES, reverse=True) if k % size == 0 and size >= LEAST_STEPS), 0)


def ones(k: int, n: int) -> np.ndarray:
    """Return the scales [groups, N] of integers without scales."""
    return np.ones((k // steps(k), n), np.float32)


class InDigits(Represented):
    """Rows in limbs, followed by the initial value of sums; behind all rows are the factors of their sums."""

    @property
    def _factors(self) -> Value:
        """The address of the factors of the sums, one for each row: a power of two, or NaN."""
        return self.f.at(self.place, "float", self.floats)

    def scratch(self) -> Terms:
        """See `Lhs`."""
        return (*super().scratch(), (4 * self.problem.block, ()))

    # Digits -----------------------------------------------------------------------------------------------

    def measured(self, row: Value, number: Int) -> Vec:
        """Return the power of two by which the row becomes integers."""
        f = self.f
        return Vec(f, f.splat(self._power_of(row, f.at(self._factors, "float", number)), LANES))

    def _power_of(self, row: Value, factor: Value) -> Value:
        """Return the power of two by which the row at `row` becomes integers; store the factor of its sums at
        `factor`, NaN for a row without limbs."""
        f = self.f
        greatest, total, count = self._measured(row)
        near = f.op("i32", f"add i32 {greatest.name}, {ROOM}")
        found = f.op("i32", f"lshr i32 {near.name}, {FIELD_AT}")
        field = f.call("i32", "llvm.umax.i32", found, _i32(LEAST_FIELD))
        exponent = f.op("i32", f"sub i32 {SHIFT}, {field.name}")
        has_digits = self._has_digits(greatest, found, total, count)
        back = power_of_two(f, f.op("i32", f"sub i32 0, {exponent.name}")).name
        nan = Value("float", "0x7FF8000000000000").name
        f.store(f.op("float", f"select i1 {has_digits.name}, float {back}, float {nan}"), factor, align=4)
        return power_of_two(f, exponent)

    def _has_digits(self, greatest: Value, field: Value, total: Value, count: Value) -> Value:
        """Whether a row has limbs: its numbers are finite, large enough, and none is far above the others."""
        f = self.f
        wide = [f.op("i64", f"zext i32 {x.name} to i64") for x in (greatest, total, count)]
        spread = f.sub(f.op("i64", f"lshr i64 {wide[0].name}, {FIELD_AT}"), SPREAD)
        is_even = f.op("i1", f"icmp sle i64 {f.i64(f.mul(spread, wide[2])).name}, {wide[1].name}")
        is_finite = f.op("i1", f"icmp ult i32 {greatest.name}, {INFINITE}")
        is_large = f.op("i1", f"icmp uge i32 {field.name}, {LEAST_FIELD}")
        is_zero = f.op("i1", f"icmp eq i32 {greatest.name}, 0")
        has_size = f.op("i1", f"or i1 {is_large.name}, {is_zero.name}")
        is_usual = f.op("i1", f"and i1 {is_finite.name}, {is_even.name}")
        return f.op("i1", f"and i1 {is_usual.name}, {has_size.name}")

    def _measured(self, row: Value) -> tuple[Value, Value, Value]:
        """Return for the row at `row` the bits of the greatest magnitude, shifted left by one, the sum of its
        exponent fields, and the number of nonzero ones."""
        f, zeros = self.f, Value(INTEGERS, "zeroinitializer")
        ones = Value(BYTES, f"<{', '.join(['i8 0, i8 0, i8 0, i8 1'] * LANES)}>")
        n = self.groups.count * self.groups.steps
        side_by_side = 2 if n % (2 * LANES) == 0 else 1  # so that sums do not wait for each other
        with f.loop(0, n, side_by_side * LANES, carried=[zeros] * 3 * side_by_side) as k:
            after: list[Value] = []
            for i in range(side_by_side):
                greatest, fields, counted = k.carried[3 * i : 3 * i + 3]
                place = f.at(row, "float", f.add(k.index, LANES * i))
                bits = Vec(f, f.load(VECTOR, place, align=4)).bits()
                moved = bits + bits
                is_counted = moved.compare("uge", 1 << FIELD_AT).convert("zext", "i32")
                bytes = f.op(BYTES, f"bitcast {INTEGERS} {moved.value.name} to {BYTES}")
                after.append(moved.intrinsic("umax", Vec(f, greatest)).value)
                after.append(dot(f, fields, bytes, ones))
                after.append((Vec(f, counted) + is_counted).value)
            k.next(*after)
        parts = [k.results[i : i + 3] for i in range(0, 3 * side_by_side, 3)]
        greatest = reduce(lambda x, y: x.intrinsic("umax", y), (Vec(f, part[0]) for part in parts)).value
        sums = [reduce(operator.add, (Vec(f, part[i]) for part in parts)).value for i in (1, 2)]
        reduced = f"llvm.vector.reduce.add.v{LANES}i32"
        total, count = (f.call("i32", reduced, x) for x in sums)
        return f.call("i32", f"llvm.vector.reduce.umax.v{LANES}i32", greatest), total, count

    def represent(self, source: Value, to: Value, given: Vec | None) -> None:
        """See Represented: the limbs times the power of two `given`.

        Four steps are stored together: four bytes of each plane, and four of zeros. So a vector of integers
        becomes limbs by one permutation of bytes in each quarter of it.
        """
        f, groups = self.f, self.groups
        assert given is not None
        start = Value(INTEGERS, "zeroinitializer")
        middles = Value(BYTES, f"splat (i8 {MIDDLES[groups.dtype]})")
        for k in range(0, groups.steps, LANES):
            x = Vec(f, f.load(VECTOR, f.at(source, "float", k), align=4))
            number = (x * given).nearest_integers()
            digits = by_plane(f, (number + MIDDLE_OF_DIGITS) ^ MIDDLE_OF_DIGITS)
            f.store(digits, f.at(to, "float", k), align=4)
            start = dot(f, start, middles, digits)
        for lanes in (LANES // 2, LANES // 4):
            halves = [lanes_of(f, start, range(first, first + lanes)) for first in (0, lanes)]
            start = (Vec(f, halves[0]) + Vec(f, halves[1])).value
        f.store((0 - Vec(f, start)).value, f.at(to, "float", groups.steps), align=4)

    # Sums -------------------------------------------------------------------------------------------------

    def scale(
        self, batch: Sequence[Int], m0: Int, begin: Int, rows: Int, b: Value, sums: Value, width: int,
        columns: int,
    ) -> None:  # fmt: skip
        """Multiply sums by the powers of two of their rows: those at `sums` of `rows` rows and `columns`
        columns of the panels at `b`, `width` floats from a row to the next. `begin`: the number of previous
        rows of the block that begins with row `m0`."""
        f, first = self.f, self.rows.at(batch, m0)
        with f.loop(0, rows) as r:
            number, to = f.add(begin, r.index), f.at(sums, "float", f.mul(r.index, width))
            factor = f.load("float", f.at(self._factors, "float", number), align=4)
            row = f.at(first, "float", f.mul(number, self.rows.stride))
            is_nan = f.op("i1", f"fcmp uno float {factor.name}, {factor.name}")
            f.either(
                is_nan,
                lambda: self._slowly(row, b, to, columns),
                lambda: self._multiplied(to, columns, Vec(f, f.splat(factor, LANES))),
            )

    def _multiplied(self, sums: Value, columns: int, factor: Vec) -> None:
        """Emit the products of a row's sums with its factor."""
        f = self.f
        with f.loop(0, columns, PANEL) as panel:
            for at in range(0, PANEL, LANES):
                place = f.at(sums, "float", f.add(panel.index, at))
                f.store((Vec(f, f.load(VECTOR, place, align=4)) * factor).value, place, align=4)

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


def power_of_two(f: Function, exponent: Value) -> Value:
    """Return 2 to the power of an i32, if that is a normal number."""
    field = f.op("i32", f"add i32 {exponent.name}, {BIAS}")
    bits = f.op("i32", f"shl i32 {field.name}, {FRACTION_BITS}")
    return f.op("float", f"bitcast i32 {bits.name} to float")


def _i32(number: int) -> Value:
    return Value("i32", str(number))
