"""Special functions and the rarer elementwise operators: torch's overloads of rows of
`jit.math.table.OPS`."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial, inf, nan, pi

import numpy as np

from ..ir.errors import DtypeError, UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.promotion import is_float, to_float
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
    "special_modified_bessel_i0": "i0", "special_modified_bessel_i1": "i1",
    "special_modified_bessel_k0": "bessel_k0", "special_modified_bessel_k1": "bessel_k1",
    "special_scaled_modified_bessel_k0": "bessel_k0e", "special_scaled_modified_bessel_k1": "bessel_k1e",
}  # fmt: skip
#: The same, but not in f64: there PyTorch's values, which must be reproduced, are off by up to 1e-5.
_INEXACT = {
    "special_bessel_j0": "bessel_j0", "special_bessel_j1": "bessel_j1", "special_bessel_y0": "bessel_y0",
    "special_bessel_y1": "bessel_y1", "special_airy_ai": "airy_ai",
}  # fmt: skip
#: torch's polynomial -> ours, at x or (shifted) at 2x - 1
_POLYNOMIALS = {
    **{f"chebyshev_polynomial_{kind}": (f"chebyshev_{kind}", False) for kind in "tuvw"},
    **{f"shifted_chebyshev_polynomial_{kind}": (f"chebyshev_{kind}", True) for kind in "tuvw"},
    "hermite_polynomial_h": ("hermite_h", False), "hermite_polynomial_he": ("hermite_he", False),
    "laguerre_polynomial_l": ("laguerre_l", False), "legendre_polynomial_p": ("legendre_p", False),
}  # fmt: skip
_HERMITE_LIMIT = {"f32": 128, "f64": 512}  # degrees above are NaN in PyTorch
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


def _inexact(name: str, op: str) -> Composite:
    def expand(b: Builder, x: Value) -> Value:
        if B.dtype_of(x) == "f64":
            raise UnsupportedOp(f"{name}: PyTorch's values in f64 are its own; cast to f32")
        return b.one(op, B.cast_to(b, x, to_float(B.dtype_of(x))))

    return Composite((f"aten.{name}.default",), expand, f"{op}; integers and bool become f32 first")


def _polynomial(name: str, op: str, is_shifted: bool) -> Composite:
    def expand(b: Builder, x: B.Tensorlike, n: B.Tensorlike) -> Value:
        dtype = to_float(B.common_dtype(x, n))
        at, degree = B.broadcast(b, name, [B.tensor_of(b, x, dtype), B.tensor_of(b, n, dtype)])
        if is_shifted:
            at = B.pointwise(b, "sub", B.pointwise(b, "add", at, at), 1.0)
        value = b.one(op, at, degree)
        if not op.startswith("hermite"):
            return value
        limit = _HERMITE_LIMIT.get(dtype, 1024)
        return B.where(b, B.pointwise(b, "ge", degree, limit + 1.0), B.full(b, nan, dtype), value)

    overloads = (f"aten.special_{name}{kind}" for kind in (".default", ".x_scalar", ".n_scalar"))
    return Composite(tuple(overloads), expand, f"{op} of degree n in the common dtype, or f32")


def spherical_bessel_j0(b: Builder, x: Value) -> Value:
    """sin(x) / x; 1 at 0 and 0 at infinities."""
    x = B.cast_to(b, x, to_float(B.dtype_of(x)))
    ratio = B.pointwise(b, "div", b.one("sin", x), x)
    value = B.where(b, B.pointwise(b, "eq", x, 0.0), B.full(b, 1, B.dtype_of(x)), ratio)
    return B.where(b, b.one("isinf", x), B.full(b, 0, B.dtype_of(x)), value)


def _binary(overload: str, op: str) -> Composite:
    def expand(b: Builder, x: B.Tensorlike, y: B.Tensorlike) -> Value:
        return B.pointwise(b, op, x, y, dtype=to_float(B.common_dtype(x, y)))

    return Composite((f"aten.{overload}",), expand, f"{op} in the common dtype, or f32")


def polygamma(b: Builder, n: int, x: Value) -> Value:
    """The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x). At its poles, where that is infinite,
    the first derivative is pi^2 / sin(pi x)^2 in the dtype, as in PyTorch."""
    x = B.cast_to(b, x, to_float(B.dtype_of(x)))
    if n < 0:
        raise UnsupportedOp(f"polygamma: n is {n}; it must be at least 0")
    if n == 0:
        return b.one("digamma", x)

    def compute(v: Value) -> Value:
        factor = float(factorial(n)) if n < 171 else inf
        result = B.pointwise(b, "mul", B.pointwise(b, "zeta", n + 1.0, v), factor if n % 2 else -factor)
        if n != 1:
            return result
        sine = b.one("sin", B.pointwise(b, "mul", v, pi))
        reflected = B.pointwise(b, "div", pi * pi, B.pointwise(b, "mul", sine, sine))
        return B.where(b, b.one("isinf", result), reflected, result)

    return B.in_f32(b, compute, x)


def zeta(b: Builder, s: B.Tensorlike, q: B.Tensorlike) -> Value:
    """Hurwitz's zeta in the common dtype, or f32; in f64 ours is inexact for large s."""
    dtype = to_float(B.common_dtype(s, q))
    if dtype == "f64":
        raise UnsupportedOp("special_zeta: ours is not exact in f64; cast to f32")
    return B.pointwise(b, "zeta", s, q, dtype=dtype)


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
    """x * 2^exponent, the power as a separate float, as in PyTorch."""
    return mul(b, x, power(b, 2.0, exponent))


# Choices ----------------------------------------------------------------------------------------------


def fmin(b: Builder, x: Value, y: Value) -> Value:
    """The smaller one; the other one if one is NaN."""
    return _number_of(b, "minimum", x, y)


def fmax(b: Builder, x: Value, y: Value) -> Value:
    """The greater one; the other one if one is NaN."""
    return _number_of(b, "maximum", x, y)


def _number_of(b: Builder, op: str, x: Value, y: Value) -> Value:
    dtype = B.common_dtype(x, y)
    x, y = B.broadcast(b, op, [B.cast_to(b, x, dtype), B.cast_to(b, y, dtype)])
    found = b.one(op, y, x)  # of two zeros x
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
    """x rounded to `decimals` decimals, halves to even; integers are unchanged."""
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


def _triangle(b: Builder, indices: Sequence[np.ndarray], dtype: object) -> Value:
    name = dtype if isinstance(dtype, str) else "i64"  # the default of PyTorch's schema is a number
    kind = {"i64": np.int64, "i32": np.int32}.get(name)
    if kind is None:
        raise DtypeError(f"triangle indices: the dtype is {name}; it must be i64 or i32")
    return b.constant(np.ascontiguousarray(np.stack(indices).astype(kind)), name, "indices")


def tril_indices(
    b: Builder, rows: int, columns: int, offset: int = 0, *, dtype: object = None, **_: object
) -> Value:
    """The indices of the lower triangle, row by row."""
    return _triangle(b, np.tril_indices(rows, offset, columns), dtype)


def triu_indices(
    b: Builder, rows: int, columns: int, offset: int = 0, *, dtype: object = None, **_: object
) -> Value:
    """The indices of the upper triangle, row by row."""
    return _triangle(b, np.triu_indices(rows, offset, columns), dtype)


COMPOSITES: tuple[Composite, ...] = (
    *(_function(name, op) for name, op in _FUNCTIONS.items()),
    *(_inexact(name, op) for name, op in _INEXACT.items()),
    *(_polynomial(name, *ours) for name, ours in _POLYNOMIALS.items()),
    Composite(("aten.special_spherical_bessel_j0.default",), spherical_bessel_j0),
    *(_binary(overload, op) for overload, op in _BINARY.items()),
    Composite(("aten.polygamma.default",), polygamma),
    Composite(
        tuple(f"aten.special_zeta.{kind}" for kind in ("default", "self_scalar", "other_scalar")), zeta
    ),
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
