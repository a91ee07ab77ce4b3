"""Arithmetic of i64 that folds Python ints, and addresses.

Where both operands are ints, no instruction is written, so the code of an exact kernel falls out constant.
Where something is known of a run-time operand, it is known of the result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import gcd

from .constant_pool import LEAST_WRITTEN, NUMBER, WRITTEN_BELOW, FromSize, Pool
from .instructions import Instructions
from .values import Bounded, Int, Value, fold_most, have_facts, least, most, multiple_of, with_facts


class Integers(Instructions):
    """Instructions on sizes and addresses.

    `pool`: the numbers that are loaded from a table (see `constant_pool`), in the table's order; None: no
    table.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pool: Pool | None = None

    def i64(self, x: Int) -> Value:
        """Return `x` as a Value."""
        if isinstance(x, FromSize) and self.pool is not None:
            return self._pooled(x, self.pool)
        return Value("i64", str(x)) if isinstance(x, int) else x

    def _pooled(self, x: FromSize, pool: Pool) -> Value:
        """Return the value that represents `x`, a number of the table."""
        if not pool:
            self.declarations["!1"] = "!1 = !{}"
        name = f"%n{len(pool)}"
        if pool.is_patched and LEAST_WRITTEN <= x < WRITTEN_BELOW:
            name = f"ptrtoint (ptr @{NUMBER}{len(pool)} to i64)"
        return pool.setdefault((x.origin, int(x)), Value("i64", name))

    def _int(self, opcode: str, fold: Callable[[int, int], int], a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return fold(a, b)
        return self.op("i64", f"{opcode} i64 {self.i64(a).name}, {self.i64(b).name}")

    def add(self, a: Int, b: Int) -> Int:
        """a + b."""
        if a == 0:
            return b
        total = a if b == 0 else self._int("add nsw", operator.add, a, b)
        if b == 0 or not have_facts(a, b):
            return total
        multiple = gcd(multiple_of(a), multiple_of(b))
        return with_facts(total, least(a) + least(b), fold_most(operator.add, a, b), multiple)

    def sub(self, a: Int, b: Int) -> Int:
        """a - b."""
        if b == 0:
            return a
        rest = self._int("sub nsw", lambda x, y: x - y, a, b)
        if not isinstance(b, int) or b < 0 or least(a) < b:
            return rest
        return with_facts(rest, least(a) - b, fold_most(operator.sub, a, b), gcd(multiple_of(a), b))

    def mul(self, a: Int, b: Int) -> Int:
        """a * b."""
        if a == 1 or b == 0:
            return b
        if b == 1 or a == 0:
            return a
        product = self._int("mul nsw", operator.mul, a, b)
        if not have_facts(a, b):
            return product
        return with_facts(
            product, least(a) * least(b), fold_most(operator.mul, a, b), multiple_of(a) * multiple_of(b)
        )

    def udiv(self, a: Int, b: Int) -> Int:
        """a // b for a >= 0, b > 0."""
        if b == 1:
            return a
        quotient = self._int("udiv", operator.floordiv, a, b)
        if not isinstance(b, int) or not b or not isinstance(a, Bounded):
            return quotient
        multiple = a.multiple // b if a.multiple % b == 0 else 1
        return with_facts(quotient, a.least // b, None if a.most is None else a.most // b, multiple)

    def urem(self, a: Int, b: Int) -> Int:
        """a % b for a >= 0, b > 0."""
        if isinstance(b, int) and b and multiple_of(a) % b == 0:
            return 0
        top = most(a)
        if isinstance(b, int) and b and top is not None and least(a) // b == top // b:
            return self.sub(a, top // b * b)
        return self._int("urem", operator.mod, a, b)

    def minimum(self, a: Int, b: Int) -> Int:
        """min(a, b), signed."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        for x, y in ((a, b), (b, a)):
            top = most(x)
            if top is not None and isinstance(y, int | Bounded) and top <= least(y):
                return x
        found = self.call("i64", "llvm.smin.i64", self.i64(a), self.i64(b))
        if not have_facts(a, b):
            return found
        tops = [top for x in (a, b) if (top := most(x)) is not None]
        multiple = gcd(multiple_of(a), multiple_of(b))
        return with_facts(found, min(least(a), least(b)), min(tops, default=None), multiple)

    def maximum(self, a: Int, b: Int) -> Int:
        """max(a, b), signed."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.call("i64", "llvm.smax.i64", self.i64(a), self.i64(b))

    def unravel(self, number: Int, sizes: Sequence[Int]) -> list[Int]:
        """Return the row-major place of number >= 0 along an axis of any size and those of `sizes` in it."""
        found: list[Int] = []
        for size in reversed(sizes):
            found.append(self.urem(number, size))
            number = self.udiv(number, size)
        return [number, *found[::-1]]

    def ravel(self, place: Sequence[Int], sizes: Sequence[Int]) -> Int:
        """Return the row-major number of a place along axes of `sizes`."""
        number: Int = 0
        for at, size in zip(place, sizes, strict=True):
            number = self.add(self.mul(number, size), at)
        return number

    def ceildiv(self, a: Int, b: int) -> Int:
        """ceil(a / b) for a >= 0."""
        return self.udiv(a if multiple_of(a) % b == 0 else self.add(a, b - 1), b)

    def less(self, a: Int, b: Int) -> Value:
        """a < b, signed, as i1."""
        return self.op("i1", f"icmp slt i64 {self.i64(a).name}, {self.i64(b).name}")

    def is_less(self, a: Int, b: int) -> Value | bool:
        """a < b for a >= 0, as i1 only if the facts about `a` do not decide it."""
        top = most(a)
        if top is not None and top < b:
            return True
        return False if least(a) >= b else self.less(a, b)

    def select(self, condition: Value, then: Int, otherwise: Int) -> Value:
        """Return `then` where `condition` (i1) holds, else `otherwise`: two integers or two addresses."""
        a, b = self.i64(then), self.i64(otherwise)
        return self.op(a.type, f"select i1 {condition.name}, {a.type} {a.name}, {b.type} {b.name}")

    def at(self, base: Value, element: str, index: Int) -> Value:
        """Return the address of `base[index]` for elements of LLVM type `element`."""
        if index == 0:
            return base
        return self.op(
            "ptr", f"getelementptr inbounds {element}, ptr {base.name}, i64 {self.i64(index).name}"
        )

    def load(self, type: str, address: Value, align: int = 1) -> Value:
        """Load a `type` from `address`."""
        return self.op(type, f"load {type}, ptr {address.name}, align {align}")

    def store(self, value: Value, address: Value, align: int = 1) -> None:
        """Store `value` at `address`."""
        self.do(f"store {value.type} {value.name}, ptr {address.name}, align {align}")

    def stream(self, value: Value, address: Value) -> None:
        """Store `value`, whole cache lines, past the caches; `fence` before others read it."""
        self.declarations["!0"] = "!0 = !{i32 1}"
        self.do(f"store {value.type} {value.name}, ptr {address.name}, align 64, !nontemporal !0")

    def fence(self) -> None:
        """Order nontemporal stores before all that follows."""
        self.do("fence seq_cst")

    def splat(self, value: Value, lanes: int) -> Value:
        """Return the vector with `value` in every lane."""
        vector = f"<{lanes} x {value.type}>"
        one = self.op(vector, f"insertelement {vector} poison, {value.type} {value.name}, i32 0")
        return self.op(
            vector, f"shufflevector {vector} {one.name}, {vector} poison, <{lanes} x i32> zeroinitializer"
        )
