"""The definition of special functions on numpy arrays, by other formulas than the kernels'
(`jit.math.special`).

Those computed in the next wider format end in `wide`; the others come from Python's `math`, or are good to a
few units of f64's last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .reference import Array, wide

_PI = np.longdouble("3.14159265358979323846264338327950288")
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _by_math(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return a function of one float as one of arrays, computed in f64."""
    each = np.vectorize(function, otypes=[np.float64])

    def evaluate(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return each(x.astype(np.float64)).astype(x.dtype)

    return evaluate


def lgamma_of(x: float) -> float:
    """log |gamma(x)|; infinite at 0, -1, -2 ..."""
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def erfcx_of(x: float) -> float:
    """e^(x^2) erfc(x): the continued fraction from 4 on."""
    if x < 4:
        return math.inf if x < -26.65 else _exp_of_square(x) * math.erfc(x)
    value = x
    for k in range(60, 0, -1):
        value = x + k / 2 / value
    return 1 / value / math.sqrt(math.pi)


def _exp_of_square(x: float) -> float:
    """e^(x^2) in extended precision."""
    return float(np.exp(np.longdouble(x) ** 2))


def ndtri_of(p: float) -> float:
    """The x below which a normal variable is with probability p, by Newton's method."""
    if not 0 < p < 1:
        return {0.0: -math.inf, 1.0: math.inf}.get(p, math.nan)
    if 0.3 < p < 0.7:
        return math.sqrt(2) * erfinv_of(2 * p - 1)
    tail = min(p, 1 - p)
    x = -math.sqrt(max(-2 * math.log(2 * tail), 0)) * 0.9
    for _ in range(60):
        value = log_ndtr_of(x)
        slope = math.exp(-x * x / 2 - value) / math.sqrt(2 * math.pi)
        step = (value - math.log(tail)) / slope
        x -= step
        if abs(step) < 1e-17 * max(abs(x), 1e-3):
            break
    return x if p <= 0.5 else -x


def erfinv_of(y: float) -> float:
    """The x with erf(x) = y, by Newton's method: on erf near 0, on the logarithm of erfc elsewhere."""
    a = abs(y)
    if not a < 1:
        return math.copysign(math.inf, y) if a == 1 else math.nan
    if a < 0.5:
        x = a
        for _ in range(8):
            x -= (math.erf(x) - a) / (2 / math.sqrt(math.pi) * math.exp(-x * x))
        return math.copysign(x, y)
    x = math.sqrt(-math.log(1 - a))
    for _ in range(20):
        rest = math.erfc(x)
        x += (math.log(rest) - math.log(1 - a)) * rest / (2 / math.sqrt(math.pi) * math.exp(-x * x))
    return math.copysign(x, y)


def log_ndtr_of(x: float) -> float:
    """The logarithm of the normal distribution's probability below x."""
    t = x * math.sqrt(0.5)
    if x > -1:
        return math.log1p(-0.5 * math.erfc(t))
    return math.log(0.5 * erfcx_of(-t)) - t * t if x > -1e154 else -math.inf if x == x else math.nan


erfc, lgamma, erfcx = _by_math(math.erfc), _by_math(lgamma_of), _by_math(erfcx_of)
erfinv, ndtri, log_ndtr = _by_math(erfinv_of), _by_math(ndtri_of), _by_math(log_ndtr_of)
gelu = _by_math(lambda x: x * 0.5 * math.erfc(-x * math.sqrt(0.5)) + 0.0)
ndtr = _by_math(lambda x: 0.5 * math.erfc(-x * math.sqrt(0.5)))


def _digamma(x: Array) -> Array:
    negative = x < 0
    y = np.where(negative, 1 - x, x)
    total = sum((-1 / (y + k) for k in range(20)), np.zeros_like(y))
    z = y + 20
    series = sum(b / (2 * k) * z ** (-2 * k) for k, b in enumerate(_BERNOULLI, 1))
    value = total + np.log(z) - 0.5 / z - series
    fraction = (x - np.rint(x)) * _PI
    mirrored = value - _PI / np.tan(fraction.astype(np.longdouble))
    mirrored = np.where(x == np.floor(x), np.nan, mirrored)
    value = np.where(negative, mirrored, value)
    return np.where(x == 0, np.copysign(np.inf, -x), np.where(x == np.inf, np.inf, value))


def _zeta(s: Array, q: Array) -> Array:
    total, a = np.zeros_like(s), np.array(q)
    left = (a > -4086) & (a < 20)
    while left.any():
        total[left] += a[left] ** -s[left]
        a[left] += 1
        left &= a < 20
    head = total
    total = total + a ** (1 - s) / (s - 1) + a**-s / 2
    factor = s * a ** (-s - 1)
    for k, b in enumerate(_BERNOULLI, 1):
        total = total + b / math.factorial(2 * k) * factor
        factor = factor * (s + 2 * k - 1) * (s + 2 * k) / a**2
    total = np.where((a**-s == 0) | (q > 0) & (total < 0), head, total)
    total = np.where((q == np.inf) & (s > 1), 0, total)
    total = np.where((q <= -4086) | (q < 0) & (np.floor(s) != s), np.nan, total)
    total = np.where((q <= 0) & (np.floor(q) == q), np.inf, total)
    total = np.where(s == 1, np.inf, total)
    return np.where((s < 1) | np.isnan(s) | np.isnan(q), np.nan, total)


def _bessel(order: int) -> Callable[[Array], Array]:
    """e^-|x| I(x) of order 0 or 1: the power series up to 30, beyond it the asymptotic one."""

    def scaled(x: Array) -> Array:
        a = np.abs(x)
        near, far = np.minimum(a, 30), np.maximum(a, 30)
        term = near / 2 if order else np.ones_like(a)
        total = np.zeros_like(a)
        for k in range(1, 120):
            total, term = total + term, term * (near / 2) ** 2 / (k * (k + order))
        near = total * np.exp(-near)
        term, total = np.ones_like(a), np.zeros_like(a)
        for k in range(1, 24):
            total, term = total + term, -term * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k * far)
        far = total / np.sqrt(2 * _PI * far)
        value = np.where(a <= 30, near, far)
        return np.copysign(value, x) if order else value

    return scaled


digamma, zeta = wide(_digamma), wide(_zeta)
i0e, i1e = wide(_bessel(0)), wide(_bessel(1))


def _grown(scaled: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def evaluate(x: Array) -> Array:
        a = np.abs(x)
        value = scaled(x) * np.exp(a / 2) * np.exp(a / 2)
        return np.where(a == np.inf, np.copysign(np.inf, scaled(np.copysign(np.ones_like(x), x))), value)

    return evaluate


i0, i1 = wide(_grown(_bessel(0))), wide(_grown(_bessel(1)))


# Floats taken apart, and integers -----------------------------------------------------------------------


def mantissa(x: Array) -> Any:
    """The m with x = m 2^e, 0.5 <= |m| < 1; 0, infinities and NaN are themselves."""
    return np.frexp(x)[0]


def exponent(x: Array) -> Any:
    """The e with x = m 2^e, 0.5 <= |m| < 1, as a float; 0 for 0, infinities and NaN."""
    return np.where(np.isfinite(x), np.frexp(x)[1], 0).astype(x.dtype)
