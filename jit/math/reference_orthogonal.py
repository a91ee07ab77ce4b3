"""The definition of Bessel and Airy functions and of orthogonal polynomials, by other formulas than the
kernels' (`jit.math.bessel`, `jit.math.orthogonal`): mpmath's, and numpy's sums of series."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev, hermite, hermite_e, laguerre, legendre

from .orthogonal import MOST
from .reference import Array

# Bessel and Airy functions ------------------------------------------------------------------------------

#: The value of a function where mpmath's is complex, infinite or not used: (at 0, below 0, at infinity).
_EVERYWHERE, _SECOND, _FALLING = (
    (None, None, math.nan),
    (-math.inf, math.nan, math.nan),
    (math.inf, math.nan, 0.0),
)


def _by_mpmath(compute: Callable[[Any, Any], Any], ends: Sequence[float | None]) -> Callable[[Array], Array]:
    """Return a function on arrays from compute(mpmath, x)."""
    at_zero, below, far = ends

    def one(x: float) -> float:
        import mpmath

        if math.isnan(x):
            return x
        if math.isinf(x):
            return far if x > 0 or below is None else below  # type: ignore[return-value]
        if x == 0 and at_zero is not None:
            return at_zero
        if x < 0 and below is not None:
            return below
        with mpmath.workprec(120):
            return float(mpmath.re(compute(mpmath, mpmath.mpf(x))))

    each = np.vectorize(one, otypes=[np.float64])
    return lambda x: each(x.astype(np.float64)).astype(x.dtype)


bessel_j0 = _by_mpmath(lambda mp, x: mp.besselj(0, x), _EVERYWHERE)
bessel_j1 = _by_mpmath(lambda mp, x: mp.besselj(1, x), _EVERYWHERE)
bessel_y0 = _by_mpmath(lambda mp, x: mp.bessely(0, x), _SECOND)
bessel_y1 = _by_mpmath(lambda mp, x: mp.bessely(1, x), _SECOND)
bessel_k0 = _by_mpmath(lambda mp, x: mp.besselk(0, x), _FALLING)
bessel_k1 = _by_mpmath(lambda mp, x: mp.besselk(1, x), _FALLING)
bessel_k0e = _by_mpmath(lambda mp, x: mp.exp(x) * mp.besselk(0, x), _FALLING)
bessel_k1e = _by_mpmath(lambda mp, x: mp.exp(x) * mp.besselk(1, x), _FALLING)
airy_ai = _by_mpmath(lambda mp, x: mp.airyai(x), _EVERYWHERE)

# Orthogonal polynomials ---------------------------------------------------------------------------------


def _by_series(value: Callable[..., Any], series: Callable[[int], Sequence[float]]) -> Callable[..., Array]:
    """Return a function of x and the degree: the sum of the series that a degree has, in f64."""

    def one(x: float, degree: float) -> float:
        n = math.trunc(degree) if abs(degree) < 2.0**63 else -1
        if n < 0:
            return 0.0
        if n > MOST:
            return math.nan
        return 1.0 if n == 0 else float(value(x, series(n)))

    each = np.vectorize(one, otypes=[np.float64])

    def evaluate(x: Array, n: Array) -> Array:
        with np.errstate(all="ignore"):
            return each(x.astype(np.float64), n.astype(np.float64)).astype(x.dtype)

    return evaluate


def _last(n: int) -> list[float]:
    return [0.0] * n + [1.0]


def _second_kind(n: int) -> list[float]:
    """U[n] in the T: twice every other one from n down, T[0] once."""
    return [(0.0 if (n - k) % 2 else 2.0 if k else 1.0) for k in range(n + 1)]


def _fourth_kind(n: int) -> list[float]:
    return [1.0] + [2.0] * n


def _third_kind(n: int) -> list[float]:
    return [2.0 * (-1) ** (n - k) if k else (-1.0) ** n for k in range(n + 1)]


chebyshev_t = _by_series(chebyshev.chebval, _last)
chebyshev_u = _by_series(chebyshev.chebval, _second_kind)
chebyshev_v = _by_series(chebyshev.chebval, _third_kind)
chebyshev_w = _by_series(chebyshev.chebval, _fourth_kind)
hermite_h = _by_series(hermite.hermval, _last)
hermite_he = _by_series(hermite_e.hermeval, _last)
laguerre_l = _by_series(laguerre.lagval, _last)
legendre_p = _by_series(legendre.legval, _last)
