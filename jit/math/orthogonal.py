"""Orthogonal polynomials of vectors by their recurrences, written for f64 as `jit.math.special`.

Each of degree n (rounded towards zero) at x; 0 for a negative or infinite degree and for a NaN, as PyTorch;
NaN for a degree above `MOST`. The lanes of a vector run to their highest degree together.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan

from ..llvm.vector import Vec, at_most, fma, select

MOST = 2**20  # of the degree: a call ends
#: (x, k, p[k - 1], p[k]) -> p[k + 1]
Step = Callable[[Vec, Vec, Vec, Vec], Vec]


def recurrence(first: Callable[[Vec], Vec], step: Step) -> Callable[[Vec, Vec], Vec]:
    """Return the polynomials with p[0] = 1, p[1] = first(x), and p[k + 1] by `step`."""

    def evaluate(x: Vec, n: Vec) -> Vec:
        f = x.f
        degree = n.intrinsic("trunc")
        known = select(degree.lt(2.0**63) & degree.ge(0.0), degree, -1.0)
        wanted = at_most(known, float(MOST))
        most = f.call("double", f"llvm.vector.reduce.fmax.v{x.lanes}f64", wanted.value)
        steps = f.op("i64", f"fptosi double {most.name} to i64")
        with f.loop(1, steps, carried=[x.like(1.0).value, first(x).value, x.like(1.0).value]) as loop:
            before, last, k = (Vec(f, value) for value in loop.carried)
            going = k.lt(wanted)
            after = select(going, step(x, k, before, last), last)
            loop.next(select(going, last, before).value, after.value, (k + 1.0).value)
        value = select(known.ge(1.0), Vec(f, loop.results[1]), 1.0)
        value = select(known.lt(0.0), 0.0, value)
        return select(known.gt(float(MOST)), nan, value)

    return evaluate


def shifted(polynomial: Callable[[Vec, Vec], Vec]) -> Callable[[Vec, Vec], Vec]:
    """Return the polynomials at 2x - 1."""
    return lambda x, n: polynomial(x + x - 1.0, n)


def _chebyshev(x: Vec, k: Vec, p: Vec, q: Vec) -> Vec:
    return fma(x + x, q, -p)


def _hermite(x: Vec, k: Vec, p: Vec, q: Vec) -> Vec:
    return (x + x) * q - (k + k) * p


def _hermite_e(x: Vec, k: Vec, p: Vec, q: Vec) -> Vec:
    return x * q - k * p


def _laguerre(x: Vec, k: Vec, p: Vec, q: Vec) -> Vec:
    return ((k + k + (1.0 - x)) * q - k * p) / (k + 1.0)


def _legendre(x: Vec, k: Vec, p: Vec, q: Vec) -> Vec:
    return ((k + k + 1.0) * x * q - k * p) / (k + 1.0)


chebyshev_t_f64 = recurrence(lambda x: x, _chebyshev)
chebyshev_u_f64 = recurrence(lambda x: x + x, _chebyshev)
chebyshev_v_f64 = recurrence(lambda x: x + x - 1.0, _chebyshev)
chebyshev_w_f64 = recurrence(lambda x: x + x + 1.0, _chebyshev)
hermite_h_f64 = recurrence(lambda x: x + x, _hermite)
hermite_he_f64 = recurrence(lambda x: x, _hermite_e)
laguerre_l_f64 = recurrence(lambda x: 1.0 - x, _laguerre)
legendre_p_f64 = recurrence(lambda x: x, _legendre)
