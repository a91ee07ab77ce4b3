"""Vectors with operators, so that a formula in LLVM text reads like the formula.

`Vec` wraps an SSA vector; `x * y + 1.5` appends the instructions. Python numbers become splat constants of
the other operand's type (LLVM's `splat (float 0x...)`, which the back end reads as a broadcast from .rodata).
No fast-math flag is ever set and nothing is contracted: a fused multiply-add is written `fma`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .dtypes import vector
from .function import Function, Value
from .values import f32_bits, f64_bits

AVX512_BYTES = 2048  # of all vector registers together
_INT_OF = {"float": "i32", "double": "i64"}
_FLOAT_OF = {"i32": "float", "i64": "double"}
_MANGLED = {"float": "f32", "double": "f64"}


def literal(element: str, number: float) -> str:
    """Return LLVM's text of the constant `number` of LLVM type `element` (i1: "true", "false")."""
    if element == "float":
        return f32_bits(number)
    if element == "double":
        return f64_bits(number)
    return ("true" if number else "false") if element == "i1" else str(int(number))


@dataclass(frozen=True, eq=False)
class Vec:
    """An LLVM vector value in the function `f` under construction."""

    f: Function
    value: Value

    @property
    def lanes(self) -> int:
        """Number of elements."""
        return int(self.value.type[1:].split(" ", 1)[0])

    @property
    def element(self) -> str:
        """LLVM type of an element."""
        return self.value.type.split(" ")[2][:-1]

    @property
    def is_float(self) -> bool:
        """Whether the elements are floats."""
        return self.element in _INT_OF

    # constants and raw instructions
    def like(self, number: float) -> Vec:
        """Return the constant `number` in this vector's type."""
        text = literal(self.element, number)
        return Vec(self.f, Value(self.value.type, f"splat ({self.element} {text})"))

    def _vec(self, x: Vec | float) -> Vec:
        return x if isinstance(x, Vec) else self.like(x)

    def binary(self, opcode: str, other: Vec | float) -> Vec:
        """Append `opcode self, other` (a result of this type)."""
        b = self._vec(other)
        return Vec(
            self.f,
            self.f.op(self.value.type, f"{opcode} {self.value.type} {self.value.name}, {b.value.name}"),
        )

    def intrinsic(self, name: str, *others: Vec | float) -> Vec:
        """Call llvm.`name` on this vector and others of its type."""
        mangled = f"llvm.{name}.v{self.lanes}{_MANGLED.get(self.element, self.element)}"
        return Vec(
            self.f, self.f.call(self.value.type, mangled, self.value, *(self._vec(x).value for x in others))
        )

    def convert(self, opcode: str, element: str) -> Vec:
        """Append the conversion `opcode` (fpext, sext, fptosi, bitcast ...) to elements of type `element`."""
        to = vector(element, self.lanes)
        return Vec(self.f, self.f.op(to, f"{opcode} {self.value.type} {self.value.name} to {to}"))

    def compare(self, predicate: str, other: Vec | float) -> Vec:
        """Append icmp or fcmp with LLVM's `predicate`; the result is a vector of i1."""
        opcode, b = "fcmp" if self.is_float else "icmp", self._vec(other)
        text = f"{opcode} {predicate} {self.value.type} {self.value.name}, {b.value.name}"
        return Vec(self.f, self.f.op(vector("i1", self.lanes), text))

    # arithmetic
    def __add__(self, other: Vec | float) -> Vec:
        return self.binary("fadd" if self.is_float else "add", other)

    def __radd__(self, other: float) -> Vec:
        return self + other

    def __sub__(self, other: Vec | float) -> Vec:
        return self.binary("fsub" if self.is_float else "sub", other)

    def __rsub__(self, other: float) -> Vec:
        return self.like(other) - self

    def __mul__(self, other: Vec | float) -> Vec:
        return self.binary("fmul" if self.is_float else "mul", other)

    def __rmul__(self, other: float) -> Vec:
        return self * other

    def __truediv__(self, other: Vec | float) -> Vec:
        return self.binary("fdiv", other)

    def __rtruediv__(self, other: float) -> Vec:
        return self.like(other) / self

    def __neg__(self) -> Vec:
        if not self.is_float:
            return 0 - self
        return Vec(self.f, self.f.op(self.value.type, f"fneg {self.value.type} {self.value.name}"))

    # bits
    def __and__(self, other: Vec | int) -> Vec:
        return self.binary("and", other)

    def __or__(self, other: Vec | int) -> Vec:
        return self.binary("or", other)

    def __xor__(self, other: Vec | int) -> Vec:
        return self.binary("xor", other)

    def __invert__(self) -> Vec:
        return self ^ (1 if self.element == "i1" else -1)

    def __lshift__(self, other: Vec | int) -> Vec:
        return self.binary("shl", other)

    def __rshift__(self, other: Vec | int) -> Vec:
        """Arithmetic shift: the sign is kept."""
        return self.binary("ashr", other)

    def bits(self) -> Vec:
        """The bits of floats as integers of the same width."""
        return self.convert("bitcast", _INT_OF[self.element])

    def floats(self) -> Vec:
        """Integers read as the bits of floats of the same width."""
        return self.convert("bitcast", _FLOAT_OF[self.element])

    # comparisons; with a NaN all but `ne` are false
    def lt(self, other: Vec | float) -> Vec:
        """Self < other (signed)."""
        return self.compare("olt" if self.is_float else "slt", other)

    def le(self, other: Vec | float) -> Vec:
        """Self <= other (signed)."""
        return self.compare("ole" if self.is_float else "sle", other)

    def gt(self, other: Vec | float) -> Vec:
        """Self > other (signed)."""
        return self.compare("ogt" if self.is_float else "sgt", other)

    def ge(self, other: Vec | float) -> Vec:
        """Self >= other (signed)."""
        return self.compare("oge" if self.is_float else "sge", other)

    def eq(self, other: Vec | float) -> Vec:
        """Self == other."""
        return self.compare("oeq" if self.is_float else "eq", other)

    def ne(self, other: Vec | float) -> Vec:
        """Self != other (true for a NaN)."""
        return self.compare("une" if self.is_float else "ne", other)

    def isnan(self) -> Vec:
        """Self is a NaN."""
        return self.compare("uno", self)

    # functions
    def abs(self) -> Vec:
        """Magnitude of floats."""
        return self.intrinsic("fabs")

    def copysign(self, sign: Vec) -> Vec:
        """Self with the sign of `sign`."""
        return self.intrinsic("copysign", sign)

    def rint(self) -> Vec:
        """Nearest integer, ties to even."""
        return self.intrinsic("roundeven")

    def nearest_integers(self) -> Vec:
        """Nearest i32 of floats, ties to even; any of a float that is nearest to none."""
        to = vector("i32", self.lanes)
        return Vec(self.f, self.f.call(to, f"llvm.lrint.v{self.lanes}i32.v{self.lanes}f32", self.value))

    def above_floor(self) -> Vec:
        """Self - floor(self), rounded downwards; only where `can_scale`. 0 of an infinity."""
        return self.avx512("reduce", self.value, Value("i32", "9"))

    def sqrt(self) -> Vec:
        """Square root, correctly rounded."""
        return self.intrinsic("sqrt")

    @property
    def can_scale(self) -> bool:
        """Whether `scale` and `above_floor` are instructions: floats that fill a register of AVX-512."""
        return self.element == "float" and self.f.register_bytes == AVX512_BYTES and self.lanes == 16

    def scale(self, n: Vec) -> Vec:
        """Self * 2^floor(n), rounded once."""
        return self.avx512("scalef", self.value, n.value)

    def avx512(self, name: str, *operands: Value) -> Vec:
        """Call an instruction on all lanes, rounding as the processor does; only where `can_scale`."""
        rest = (self.like(0.0).value, Value("i16", "-1"), Value("i32", "4"))
        instruction = f"llvm.x86.avx512.mask.{name}.ps.512"
        return Vec(self.f, self.f.call(self.value.type, instruction, *operands, *rest))

    def any(self) -> Value:
        """Whether any lane of a vector of i1 holds, as an i1."""
        return self.f.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", self.value)


def fma(a: Vec, b: Vec | float, c: Vec | float) -> Vec:
    """a * b + c, rounded once."""
    return a.intrinsic("fma", b, c)


def select(condition: Vec, a: Vec | float, b: Vec | float) -> Vec:
    """Per lane: `a` where `condition` (i1) holds, else `b`; one of both must be a Vec."""
    kind = a if isinstance(a, Vec) else b
    assert isinstance(kind, Vec)
    x, y = kind._vec(a).value, kind._vec(b).value
    text = f"select {condition.value.type} {condition.value.name}, {x.type} {x.name}, {y.type} {y.name}"
    return Vec(kind.f, kind.f.op(x.type, text))


def at_most(x: Vec, bound: float) -> Vec:
    """min(x, bound), a NaN stays (one instruction: x86's minps returns its second operand then)."""
    b = x.like(bound)
    return select(b.lt(x), b, x)


def at_least(x: Vec, bound: float) -> Vec:
    """max(x, bound), a NaN stays."""
    b = x.like(bound)
    return select(b.gt(x), b, x)


def polynomial(x: Vec, coefficients: Sequence[Vec | float]) -> Vec:
    """c[0] + c[1] x + c[2] x^2 + ... by Horner's rule in fused multiply-adds."""
    result = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = fma(x, result, c)
    assert isinstance(result, Vec)
    return result
