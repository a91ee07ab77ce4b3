"""The definition of every scalar operation on numpy arrays (f16 and bf16 come as float32).

Functions are computed in the next wider format and rounded once; integers wrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any  # np.ndarray, of any dtype
_WIDER = {"float32": np.float64, "float64": np.longdouble}


def _wide(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return `function` computed in the next wider format."""

    def evaluate(*args: Array) -> Array:
        narrow = args[0].dtype
        with np.errstate(all="ignore"):
            return function(*(x.astype(_WIDER[narrow.name]) for x in args)).astype(narrow)

    return evaluate


def _quiet(function: Callable[..., Array]) -> Callable[..., Array]:
    def evaluate(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            return function(*args)

    return evaluate


def _is_int(x: Array) -> bool:
    return x.dtype.kind in "iu"


add, sub, mul, div = (_quiet(f) for f in (np.add, np.subtract, np.multiply, np.divide))
neg, absolute = _quiet(np.negative), _quiet(np.abs)
minimum, maximum = np.minimum, np.maximum
eq, ne, lt, le, gt, ge = np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal
isnan, isinf, isfinite = np.isnan, np.isinf, np.isfinite
bit_and, bit_or, bit_xor, bit_not = np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert
floor, ceil, rint, trunc = np.floor, np.ceil, np.rint, np.trunc
sqrt, reciprocal = _quiet(np.sqrt), _quiet(lambda x: np.ones_like(x) / x)
rsqrt = _wide(lambda x: 1 / np.sqrt(x))
exp, exp2, expm1 = _wide(np.exp), _wide(np.exp2), _wide(np.expm1)
log, log2, log10, log1p = _wide(np.log), _wide(np.log2), _wide(np.log10), _wide(np.log1p)
sinh, cosh, tanh = _wide(np.sinh), _wide(np.cosh), _wide(np.tanh)
asinh, acosh, atanh = _wide(np.arcsinh), _wide(np.arccosh), _wide(np.arctanh)
sin, cos, tan = _wide(np.sin), _wide(np.cos), _wide(np.tan)
asin, acos, atan, atan2 = _wide(np.arcsin), _wide(np.arccos), _wide(np.arctan), _wide(np.arctan2)
sigmoid = _wide(lambda x: np.where(x < 0, np.exp(-abs(x)), 1) / (1 + np.exp(-abs(x))))
_erf = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Array) -> Array:
    """Error function."""
    return _erf(x.astype(np.float64)).astype(x.dtype)


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once: for f32 exactly but for ties of the f64 sum, for f64 in 80 bits."""
    return a * b + c if _is_int(a) else _wide(lambda x, y, z: x * y + z)(a, b, c)


def sign(x: Array) -> Array:
    """1, 0 or -1; 0 for a NaN."""
    return np.nan_to_num(np.sign(x), nan=0).astype(x.dtype)


@_quiet
def fmod(a: Array, b: Array) -> Array:
    """Remainder with the sign of a; integers: 0 where b is 0."""
    return np.fmod(a, b)


@_quiet
def mod(a: Array, b: Array) -> Array:
    """Remainder with the sign of b; integers: 0 where b is 0."""
    if _is_int(a):
        return np.remainder(a, b)
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


@_quiet
def floordiv(a: Array, b: Array) -> Array:
    """floor(a / b) as PyTorch's div_floor; integers: 0 where b is 0."""
    if _is_int(a):
        return np.floor_divide(a, b)
    rest = np.fmod(a, b)
    ratio = (a - rest) / b
    ratio = np.where((rest != 0) & ((b < 0) != (rest < 0)), ratio - 1, ratio)
    down = np.floor(ratio)
    down = np.where(ratio - down > 0.5, down + 1, down)
    down = np.where(ratio == 0, np.copysign(0, a / b), down)
    return np.where(b == 0, a / b, down).astype(a.dtype)


@_quiet
def power(a: Array, b: Array) -> Array:
    """a^b; integers: b < 0 gives 1 / a^-b towards zero, and 0 for a = 0."""
    if not _is_int(a):
        return _wide(np.power)(a, b)
    odd = np.where(b & 1, a, np.ones_like(a))
    inverse = np.where(a == 1, a, np.where(a == np.array(-1).astype(a.dtype), odd, 0))
    return np.where(b < 0, inverse, np.power(a, np.where(b < 0, 0, b))).astype(a.dtype)


def shl(a: Array, n: Array) -> Array:
    """a << n; 0 for n < 0 or n >= width."""
    fits = (n >= 0) & (n < 8 * a.dtype.itemsize)
    return np.where(fits, a << np.where(fits, n, 0), 0).astype(a.dtype)


def shr(a: Array, n: Array) -> Array:
    """a >> n with the sign kept; all sign bits for n < 0 or n >= width."""
    width = 8 * a.dtype.itemsize
    fits = (n >= 0) & (n < width)
    if a.dtype.kind == "i":
        return a >> np.where(fits, n, width - 1)
    return np.where(fits, a >> np.where(fits, n, 0), 0).astype(a.dtype)
