"""Rows of f32 as 16-bit integers, which are multiplied by small integers exactly: `precision="i16"`.

The steps of a row that share scales of B, a group, become integers times a power of two: rint(x / 2^e), with
the smallest e such that the group's greatest magnitude is below 2^15 - 1/2 times 2^e. So each number changes
by at most 2^-15 of the greatest one of its group, or by 2^-127. Instructions multiply two adjacent steps
where a multiply-add multiplies one number, and B needs no conversion to f32. A group's sum of a column is
exact in i32; converted to f32 and multiplied by 2^e it is added, times the column's scale, by one more fused
multiply-add.

4-bit integers of B are unsigned here: MIDDLE is added to them. Its contribution to a group's sum depends only
on the row, so sums start with its negative: an i32 after the integers of a group, followed by 2^e, or NaN if
the group holds an infinity or NaN. `sums.short_products` is the definition.
"""

from __future__ import annotations

import operator
from functools import reduce

from ...llvm.function import Value
from ...llvm.vector import Vec
from ...loops.bodies import LANES
from .arithmetic import VECTOR
from .digits import FRACTION_BITS, power_of_two
from .grouped import MIDDLE, NIBBLE
from .lhs import Represented
from .sums import SHORT_LEAST, SHORT_ROOM, SHORT_SHIFT

INFINITE = 0x7F800000  # the bits of an infinity


class InShorts(Represented):
    """Rows in i16, each group followed by the initial value of sums and their factor."""

    def represent(self, source: Value, to: Value, given: Vec | None) -> None:
        """See Represented."""
        f, groups = self.f, self.groups
        places = range(0, groups.steps, LANES)
        parts = [Vec(f, f.load(VECTOR, f.at(source, "float", k), align=4)) for k in places]
        magnitudes = reduce(lambda x, y: x.intrinsic("umax", y), (x.bits() & 0x7FFFFFFF for x in parts))
        greatest = f.call("i32", f"llvm.vector.reduce.umax.v{LANES}i32", magnitudes.value)
        exponent, factor = self._powers(greatest)
        power = Vec(f, f.splat(power_of_two(f, exponent), LANES))
        numbers = [(x * power).nearest_integers() for x in parts]
        for k, number in zip(places, numbers, strict=True):
            f.store(number.convert("trunc", "i16").value, f.at(to, "i16", k), align=4)
        total = reduce(operator.add, numbers).value
        start = f.call("i32", f"llvm.vector.reduce.add.v{LANES}i32", total)
        middle = -MIDDLE if groups.dtype == NIBBLE else 0
        behind = f.at(to, "float", groups.rows)
        f.store(f.op("i32", f"mul i32 {start.name}, {middle}"), behind, align=4)
        f.store(factor, f.at(behind, "float", 1), align=4)

    def _powers(self, greatest: Value) -> tuple[Value, Value]:
        """Return the exponent of the power of two by which a group becomes integers, given the bits of its
        greatest magnitude, and the factor of its sums."""
        f = self.f
        near = f.op("i32", f"add i32 {greatest.name}, {SHORT_ROOM}")
        found = f.op("i32", f"lshr i32 {near.name}, {FRACTION_BITS}")
        field = f.call("i32", "llvm.umax.i32", found, Value("i32", str(SHORT_LEAST)))
        exponent = f.op("i32", f"sub i32 {SHORT_SHIFT}, {field.name}")
        back = power_of_two(f, f.op("i32", f"sub i32 0, {exponent.name}"))
        is_finite = f.op("i1", f"icmp ult i32 {greatest.name}, {INFINITE}")
        nan = "0x7FF8000000000000"
        return exponent, f.op("float", f"select i1 {is_finite.name}, float {back.name}, float {nan}")
