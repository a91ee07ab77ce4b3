"""Special functions and the rarer elementwise operators: torch's overloads of rows of `jit.math.OPS`."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial, inf, pi

import numpy as np

from ..errors import DtypeError, UnsupportedOp
from ..ir import Builder, Value
from ..promotion import is_float, to_float
from . import build as B
from .declare import Composite, Op
from .pointwise import mul, power

OPS: tuple[Op, ...] = ()

# Functions of floats -----------------------------------------------------------------------------------

#: torch's name -> ours; integers and bool become the default float first.
_FUNCTIONS = {
    "erfc": "erfc", "special_erfcx": "erfcx", "erfinv": "erfinv", "special_ndtri": "ndtri",
    "special_ndtr": "ndtr", "special_log_ndtr": "log_ndtr", "lgamma": "lgamma", "digamma": "digamma",
    "i0": "i0", "special_i0e": "i0e", "special_i1": "i1", "special_i1e": "i1e",
}  # fmt: skip
#: The same with two operands, in their common dtype.
_BINARY = {
    "hypot.default": "hypot",
    "copysign.Tensor": "copysign",
    "copysign.Scalar": "copysign",
}


def _function(name: str, op: str) -> Composite:
    def expand(b: Builder, x: Value) -> Value:
        return b.one(op, B.cast_to(b, x, to_float(B.dtype_of(x))))

    return Composite((f"aten.{name}.default",), expand, f"{op}; integers and bool become f32 first")


def _binary(overload: str, op: str) -> Composite:
    def expand(b: Builder, x: B.Tensorlike, y: B.Tensorlike) -> Value:
        return B.pointwise(b, op, x, y, dtype=to_float(B.common_dtype(x, y)))

    return Composite((f"aten.{overload}",), expand, f"{op} in the common dtype, or f32")


def polygamma(b: Builder, n: int, x: Value) -> Value:
    """The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x)."""
    x = B.cast_to(b, x, to_float(B.dtype_of(x)))
    if n < 0:
        raise UnsupportedOp(f"polygamma: n is {n}; it must be at least 0")
    if n == 0:
        return b.one("digamma", x)

    def compute(v: Value) -> Value:
        factor = float(factorial(n)) if n < 171 else inf
        return B.pointwise(b, "mul", B.pointwise(b, "zeta", n + 1.0, v), factor if n % 2 else -factor)

    return B.in_f32(b, compute, x)


def nextafter(b: Builder, x: Value, y: Value) -> Value:
    """The float after x towards y."""
    dtype = B.common_dtype(x, y)
    if dtype not in ("f32", "f64"):
        raise DtypeError(f"nextafter: the dtype is {dtype}; it takes f32, f64")
    return B.pointwise(b, "nextafter", x, y)


def frexp(b: Builder, x: Value) -> tuple[Value, Value]:
    """Mantissas from 0.5 to 1 and exponents (i32)."""
    return b.one("mantissa", x), B.cast_to(b, b.one("exponent", x), "i32")


def ldexp(b: Builder, x: Value, exponent: Value) -> Value:
    """x * 2^exponent, the power as a float of its own, as PyTorch."""
    return mul(b, x, power(b, 2.0, exponent))


# Choices ----------------------------------------------------------------------------------------------


def fmin(b: Builder, x: Value, y: Value) -> Value:
    """The smaller one; the other one where one is NaN."""
    return _number_of(b, "minimum", x, y)


def fmax(b: Builder, x: Value, y: Value) -> Value:
    """The greater one; the other one where one is NaN."""
    return _number_of(b, "maximum", x, y)


def _number_of(b: Builder, op: str, x: Value, y: Value) -> Value:
    dtype = B.common_dtype(x, y)
    x, y = B.broadcast(b, op, [B.cast_to(b, x, dtype), B.cast_to(b, y, dtype)])
    found = b.one(op, x, y)
    if not is_float(dtype):
        return found
    found = b.one("where", b.one("isnan", y), x, found)
    return b.one("where", b.one("isnan", x), y, found)


def signbit(b: Builder, x: Value) -> Value:
    """Whether the sign is set, also of -0.0 and of a NaN."""
    dtype = B.dtype_of(x)
    if dtype == "bool":
        return B.full(b, False, "bool", B.shape_of(x))
    if is_float(dtype):
        x = b.one("copysign", B.full(b, 1.0, dtype, B.shape_of(x)), x)
    return B.pointwise(b, "lt", x, 0)


def angle(b: Builder, x: Value) -> Value:
    """Pi for negative numbers, else 0; NaN stays."""
    x = B.cast_to(b, x, to_float(B.dtype_of(x)))
    found = B.where(
        b, B.pointwise(b, "lt", x, 0.0), B.full(b, pi, B.dtype_of(x)), B.full(b, 0, B.dtype_of(x))
    )
    return b.one("where", b.one("isnan", x), x, found)


def round_decimals(b: Builder, x: Value, *, decimals: int = 0) -> Value:
    """x to so many decimals, halves to even; integers stay as they are."""
    if not is_float(B.dtype_of(x)):
        return x
    if decimals == 0:
        return b.one("round", x)
    forth, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    power = 10.0 ** abs(decimals)
    return B.pointwise(b, back, b.one("round", B.pointwise(b, forth, x, power)), power)


# Integers ---------------------------------------------------------------------------------------------


def lcm(b: Builder, x: Value, y: Value) -> Value:
    """The least common multiple; 0 where both are 0."""
    dtype = B.common_dtype(x, y)
    x, y = B.broadcast(b, "lcm", [B.cast_to(b, x, dtype), B.cast_to(b, y, dtype)])
    return b.one("abs", b.one("mul", b.one("floordiv", x, b.one("gcd", x, y)), y))


# Copies and indices -------------------------------------------------------------------------------------


def copy(b: Builder, x: Value, source: Value, *_: object) -> Value:
    """The source in x's shape and dtype."""
    return B.expand(b, B.cast_to(b, source, B.dtype_of(x)), B.shape_of(x))


def identity(b: Builder, x: Value) -> Value:
    """x itself: it has no imaginary part."""
    return x


def _triangle(b: Builder, indices: Sequence[np.ndarray], dtype: str | None) -> Value:
    kind = {None: np.int64, "i64": np.int64, "i32": np.int32}.get(dtype)
    if kind is None:
        raise DtypeError(f"triangle indices: the dtype is {dtype}; it must be i64 or i32")
    array = np.ascontiguousarray(np.stack(indices).astype(kind))
    return b.constant(array, dtype or "i64", "indices")


def tril_indices(
    b: Builder, rows: int, columns: int, offset: int = 0, *, dtype: str | None = None, **_: object
) -> Value:
    """The indices of the lower triangle, row by row."""
    return _triangle(b, np.tril_indices(rows, offset, columns), dtype)


def triu_indices(
    b: Builder, rows: int, columns: int, offset: int = 0, *, dtype: str | None = None, **_: object
) -> Value:
    """The indices of the upper triangle, row by row."""
    return _triangle(b, np.triu_indices(rows, offset, columns), dtype)


COMPOSITES: tuple[Composite, ...] = (
    *(_function(name, op) for name, op in _FUNCTIONS.items()),
    *(_binary(overload, op) for overload, op in _BINARY.items()),
    Composite(("aten.polygamma.default",), polygamma),
    Composite(("aten.nextafter.default",), nextafter),
    Composite(("aten.frexp.Tensor",), frexp),
    Composite(("aten.ldexp.Tensor",), ldexp),
    Composite(("aten.fmin.default",), fmin),
    Composite(("aten.fmax.default",), fmax),
    Composite(("aten.signbit.default",), signbit),
    Composite(("aten.angle.default",), angle),
    Composite(("aten.round.decimals",), round_decimals),
    Composite(("aten.gcd.default",), lambda b, x, y: B.pointwise(b, "gcd", x, y), "greatest common divisor"),
    Composite(("aten.lcm.default",), lcm),
    Composite(("aten.copy.default",), copy),
    Composite(("aten.conj_physical.default", "aten.real.default", "aten.positive.default"), identity),
    Composite(("aten.tril_indices.default",), tril_indices),
    Composite(("aten.triu_indices.default",), triu_indices),
)
