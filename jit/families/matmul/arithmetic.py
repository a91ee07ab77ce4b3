"""How micro-kernels multiply and add: the table of operand kinds.

A step takes 4 bytes of A's row, broadcast to all lanes, a vector of B and a vector of sums. Sums are 4 bytes
in each lane, of any type. They are represented as f32 vectors, so tiles, scratch and prefetching are the same
for all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...llvm.conversion import widened
from ...llvm.dtypes import DTYPES, vector
from ...llvm.function import Function, Int, Value
from ...llvm.prefetch import LINE_BYTES
from ...llvm.vector import Vec, fma
from ...loops.bodies import LANES, splat
from . import pair_dots
from .byte_dots import BYTES, INTEGERS, SHORTS, dot, dot_of_shorts

VECTOR = vector("float", LANES)
QUADS = "u8i8"  # four u8 of A times four i8 of B, exactly, added to an i32
PLANES = 3  # rows of limbs that represent a row of f32
DIGITS = "i8u8"  # the same of i8 of A and u8 of B, for fixed-point limbs
PAIRS = "bf16bf16"  # two bf16 of A times two of B, added to an f32
SHORT_PAIRS = "i16i16"  # two i16 of A times two of B, added to an i32


@dataclass(frozen=True)
class Arithmetic:
    """f32 times B's element, by fused multiply-add. `dtype`: that of B in memory; narrow ones are widened."""

    dtype: str

    start = -0.0  # of sums to which others are added: it preserves zeros of either sign
    planes = 1  # rows that represent a row of A

    @property
    def element(self) -> str:
        """The LLVM type of B's element in memory."""
        return DTYPES[self.dtype].memory

    @property
    def bytes(self) -> int:
        """The bytes of B's element in memory."""
        return DTYPES[self.dtype].bytes

    @property
    def line(self) -> int:
        """The elements of B in a cache line."""
        return LINE_BYTES // self.bytes

    @property
    def suffix(self) -> str:
        """The suffix of names of its micro-kernels."""
        return "" if self.dtype == "f32" else f"_{self.dtype}"

    @property
    def is_widened(self) -> bool:
        """Whether B's elements are converted when they are read."""
        return self.dtype != "f32"

    def first(self, g: Function, behind: Callable[[], Value]) -> Value:
        """Return the initial sums; `behind` returns the address after the steps of A's row."""
        return Value(VECTOR, "zeroinitializer")

    def left(self, g: Function, address: Value) -> Value:
        """Return a step of A's row at `address` in all lanes."""
        return g.splat(g.load("float", address, align=4), LANES)

    def left_half(self, g: Function, address: Value) -> Value:
        """Return it in 8 lanes.

        The load is marked as one of memory that no micro-kernel changes, A's. Otherwise LLVM loads the
        element once for both widths, and then needs an instruction to broadcast it for each.
        """
        element = g.op("float", f"load float, ptr {address.name}, align 4, !invariant.load !{{}}")
        return g.splat(element, LANES // 2)

    def factor(self, g: Function, behind: Callable[[], Value]) -> Value | None:
        """Return the factor of the sums of a row of A, in all lanes, if it has one; `behind`: see `first`."""
        return None

    def right(self, g: Function, address: Value) -> Value:
        """Return a vector of B."""
        narrow = g.load(vector(self.element, LANES), address, align=self.bytes)
        return widened(Vec(g, narrow), self.dtype).value

    def row(self, g: Function, b: Value, places: Sequence[Int]) -> list[Value]:
        """Return the vectors of B at `places` elements after `b`."""
        return [self.right(g, g.at(b, self.element, place)) for place in places]

    def multiply_add(self, g: Function, left: Value, right: Value, sums: Value) -> Value:
        """Return sums + left * right, whole vectors or halves."""
        lanes = LANES if sums.type == VECTOR else LANES // 2
        return g.call(sums.type, f"llvm.fma.v{lanes}f32", left, right, sums)

    def add(self, g: Function, x: Value, y: Value) -> Value:
        """Return x + y, both sums."""
        return g.op(VECTOR, f"fadd {VECTOR} {x.name}, {y.name}")

    def total(self, g: Function, *sums: Value) -> Value:
        """Return the sums of a row of A in f32, from those of its planes."""
        return sums[0]

    def fill(self, f: Function, place: Value, count: Int) -> None:
        """Emit the filling of `count` sums, whole vectors, with `start`."""
        fill(f, place, count, self.start)

    def add_to(self, f: Function, totals: Value, sums: Value, count: Int) -> None:
        """Emit the addition of `count` sums, whole vectors, to `totals`."""
        with f.loop(0, count, LANES) as at:
            to = f.at(totals, "float", at.index)
            pair = [f.load(VECTOR, place, align=4) for place in (to, f.at(sums, "float", at.index))]
            f.store(self.add(f, *pair), to, align=4)


@dataclass(frozen=True)
class Pairs(Arithmetic):
    """bf16 times bf16, two products a lane and step, in f32.

    B lies in panels of [K / 2, PANEL, 2]; `pair_dots` has the instructions.
    """

    @property
    def element(self) -> str:
        """Four bytes: two bf16."""
        return "i32"

    @property
    def bytes(self) -> int:
        """The bytes of an element."""
        return 4

    @property
    def is_widened(self) -> bool:
        """They are multiplied without conversion."""
        return False

    def left(self, g: Function, address: Value) -> Value:
        """See Arithmetic. Rows may begin anywhere."""
        return g.splat(g.load("float", address, align=1), LANES)

    def right(self, g: Function, address: Value) -> Value:
        """See Arithmetic."""
        return g.load(VECTOR, address, align=4)

    def multiply_add(self, g: Function, left: Value, right: Value, sums: Value) -> Value:
        """See Arithmetic."""
        return pair_dots.dot(g, sums, left, right)


@dataclass(frozen=True)
class Quads(Pairs):
    """u8 times i8, four products a lane and step, in i32 modulo 2^32: exact in any order.

    B lies in panels of [K / 4, PANEL, 4]; `byte_dots` has the instructions.
    """

    start = 0.0

    def multiply_add(self, g: Function, left: Value, right: Value, sums: Value) -> Value:
        """See Arithmetic."""
        total = _cast(g, sums, INTEGERS)
        return _cast(g, dot(g, total, _cast(g, left, BYTES), _cast(g, right, BYTES)), VECTOR)

    def add(self, g: Function, x: Value, y: Value) -> Value:
        """See Arithmetic."""
        left, right = (_cast(g, value, INTEGERS) for value in (x, y))
        return _cast(g, g.op(INTEGERS, f"add {INTEGERS} {left.name}, {right.name}"), VECTOR)

    def total(self, g: Function, *sums: Value) -> Value:
        """See Arithmetic; exact below 2^24."""
        return g.op(VECTOR, f"sitofp {INTEGERS} {_cast(g, sums[0], INTEGERS).name} to {VECTOR}")


@dataclass(frozen=True)
class ShortPairs(Quads):
    """i16 times i16, two products a lane and step, in i32 modulo 2^32.

    B lies in rows of [K / 2, columns, 2]; `byte_dots` has the instructions.
    """

    def multiply_add(self, g: Function, left: Value, right: Value, sums: Value) -> Value:
        """See Arithmetic."""
        total = _cast(g, sums, INTEGERS)
        return _cast(g, dot_of_shorts(g, total, _cast(g, left, SHORTS), _cast(g, right, SHORTS)), VECTOR)


@dataclass(frozen=True)
class Shorts(ShortPairs):
    """The same for rows of f32 in i16 (see `shorts`): after the steps of each are the initial value of its
    sums, an i32, and their factor."""

    def first(self, g: Function, behind: Callable[[], Value]) -> Value:
        """See Arithmetic."""
        return self.left(g, behind())

    def factor(self, g: Function, behind: Callable[[], Value]) -> Value | None:
        """See Arithmetic."""
        return g.splat(g.load("float", g.at(behind(), "float", 1), align=4), LANES)


@dataclass(frozen=True)
class Digits(Quads):
    """i8 times u8, four products a lane and step, in i32: PLANES rows of limbs represent a row of A. After
    the steps of each is the initial value of its sums, an i32 (see `digits`)."""

    planes = PLANES

    def first(self, g: Function, behind: Callable[[], Value]) -> Value:
        """See Arithmetic."""
        return self.left(g, behind())

    def multiply_add(self, g: Function, left: Value, right: Value, sums: Value) -> Value:
        """See Arithmetic."""
        return super().multiply_add(g, right, left, sums)

    def total(self, g: Function, *sums: Value) -> Value:
        """See Arithmetic: (high * 256 + middle) * 256 + low, the lower two stay below 2^31."""
        low, middle, high = (Vec(g, _cast(g, x, INTEGERS)) for x in sums)
        lower = (middle << 8) + low
        return fma(high.convert("sitofp", "float"), 65536.0, lower.convert("sitofp", "float")).value


def fill(f: Function, place: Value, count: Int, number: float) -> None:
    """Emit the filling of `count` f32, whole vectors."""
    with f.loop(0, count, LANES) as at:
        f.store(splat(f, "f32", number), f.at(place, "float", at.index), align=4)


F32 = Arithmetic("f32")


def arithmetic_of(dtype: str) -> Arithmetic:
    """Return the row for a B in `dtype`; QUADS and PAIRS: A's elements are as narrow as B's."""
    return _OF_BOTH.get(dtype, Arithmetic)(dtype)


_OF_BOTH: dict[str, type[Arithmetic]] = {
    QUADS: Quads,
    PAIRS: Pairs,
    SHORT_PAIRS: ShortPairs,
    DIGITS: Digits,
}


def _cast(g: Function, x: Value, type: str) -> Value:
    return x if x.type == type else g.op(type, f"bitcast {x.type} {x.name} to {type}")
