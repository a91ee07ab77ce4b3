"""The definition of every scalar operation on numpy arrays (f16 and bf16 come as float32).

Functions are computed in the next wider format and rounded once; integers wrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

Array = Any  # np.ndarray, of any dtype
_WIDER = {"float32": np.float64, "float64": np.longdouble}


def _quiet(function: Callable[..., Array]) -> Callable[..., Array]:
    def evaluate(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            return function(*args)

    return evaluate


_unrounded: dict[Callable[..., Array], Callable[..., Array]] = {}


def unrounded(operation: Callable[..., Array]) -> Callable[..., Array]:
    """Return the formula of a function of this module, to be computed in any format."""
    return _unrounded[operation]


def wide(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return `function` computed in the next wider format."""

    def evaluate(*args: Array) -> Array:
        narrow = args[0].dtype
        with np.errstate(all="ignore"):
            return function(*(x.astype(_WIDER[narrow.name]) for x in args)).astype(narrow)

    _unrounded[evaluate] = _quiet(function)
    return evaluate


def _is_int(x: Array) -> bool:
    return x.dtype.kind in "iu"


add, sub, mul, div = (_quiet(f) for f in (np.add, np.subtract, np.multiply, np.divide))
neg, absolute = _quiet(np.negative), _quiet(np.abs)
minimum, maximum = _quiet(np.minimum), _quiet(np.maximum)
eq, ne, lt, le, gt, ge = np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal
isnan, isinf, isfinite = np.isnan, np.isinf, np.isfinite
bit_and, bit_or, bit_xor, bit_not = np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert
_BITS_OF = {"float32": "int32", "float64": "int64", "int32": "float32", "int64": "float64"}


def bits(x: Array) -> Array:
    """The bits of f32 or f64 as integers, or those of integers as floats; of i16 as f16."""
    x = np.asarray(x)
    return x.view(np.float16).astype(np.float32) if x.dtype == np.int16 else x.view(_BITS_OF[x.dtype.name])


def half_bits(x: Array) -> Array:
    """The bits of f16 as i16; of a NaN 0x7E00."""
    x = np.asarray(x)
    return np.where(np.isnan(x), np.int16(0x7E00), x.astype(np.float16).view(np.int16))


floor, ceil, rint, trunc = (_quiet(f) for f in (np.floor, np.ceil, np.rint, np.trunc))
sqrt, reciprocal = _quiet(np.sqrt), _quiet(lambda x: np.ones_like(x) / x)
copysign, nextafter, gcd = np.copysign, _quiet(np.nextafter), np.gcd
silu = wide(lambda x: x / (1 + np.exp(-x)))
sigmoid = wide(lambda x: np.where(x < 0, np.exp(-abs(x)), 1) / (1 + np.exp(-abs(x))))
_erf = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Array) -> Array:
    """Error function."""
    return _erf(x.astype(np.float64)).astype(x.dtype)


@_quiet
def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once (by way of fractions: slow)."""
    if _is_int(a):
        return a * b + c
    return _fma_f32(a, b, c) if a.dtype == np.float32 else _fma_f64(a, b, c).reshape(a.shape)


def _fma_f32(a: Array, b: Array, c: Array) -> Array:
    """The product is exact in f64; the sum is rounded to odd there, so that rounding again is right."""
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    even = (total.view(np.int64) & 1) == 0
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where(np.isfinite(total) & (error != 0) & even, odd, total).astype(np.float32)


def _fma_one(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)) or a == 0 or b == 0:
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact) if exact else a * b + c
    except OverflowError:
        return math.copysign(math.inf, exact)


_fma_f64 = np.vectorize(_fma_one, otypes=[np.float64])


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
        return wide(np.power)(a, b)
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
