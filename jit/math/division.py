"""Division with remainder of vectors, integer and float, and integer powers.

No lane traps: an integer division by zero gives 0 (where PyTorch raises an error, the instruction `divisor`
reports it), and the most negative integer divided by -1 wraps. Rounding and signs are PyTorch's: floordiv
and mod follow the divisor's sign (Python's rule), fmod the dividend's (C's rule).
"""

from __future__ import annotations

from math import inf, nan

from ..llvm.function import Value
from ..llvm.vector import Vec, fma, select

QUOTIENT_BITS = 50  # of a quotient in one step of fmod: fewer than f64's 53, so that it is exact


# Integers -----------------------------------------------------------------------------------------------


def quotient(a: Vec, b: Vec, signed: bool) -> Vec:
    """Integer quotient towards zero; 0 where b is 0."""
    zero = b.eq(0)
    if not signed:
        return select(zero, 0, _quotient(a, select(zero, 1, b), "zext"))
    minus = b.eq(-1)
    value = _quotient(a, select(zero | minus, 1, b), "sext")
    return select(zero, 0, select(minus, -a, value))


def _quotient(a: Vec, b: Vec, widen: str) -> Vec:
    """Quotient for b not 0 or -1; up to 32 bits by f64, whose rounding is too fine to reach an integer."""
    if a.element == "i64":
        return a.binary("sdiv", b)
    x, y = (
        (v if v.element == "i32" else v.convert(widen, "i32")).convert("sitofp", "double") for v in (a, b)
    )
    ratio = (x / y).convert("fptosi", "i32")
    return ratio if a.element == "i32" else ratio.convert("trunc", a.element)


def int_floordiv(a: Vec, b: Vec, signed: bool) -> Vec:
    """Quotient rounded down; 0 where b is 0."""
    q = quotient(a, b, signed)
    if not signed:
        return q
    rest = a - q * b
    down = rest.ne(0) & b.ne(0) & (rest ^ b).lt(0)
    return q - select(down, q.like(1), q.like(0))


def int_fmod(a: Vec, b: Vec, signed: bool) -> Vec:
    """Remainder with the sign of a; 0 where b is 0."""
    return select(b.eq(0), 0, a - quotient(a, b, signed) * b)


def int_mod(a: Vec, b: Vec, signed: bool) -> Vec:
    """Remainder with the sign of b; 0 where b is 0."""
    rest = int_fmod(a, b, signed)
    return rest + select(rest.ne(0) & (rest ^ b).lt(0), b, 0) if signed else rest


def int_pow(a: Vec, b: Vec, signed: bool) -> Vec:
    """a^b modulo the width, by squaring; for b < 0: 1 / a^-b towards zero (0 also where a is 0)."""
    f = a.f
    rest = select(b.lt(0), 0, b) if signed else b
    most = f.call(a.element, f"llvm.vector.reduce.umax.v{a.lanes}{a.element}", rest.value)
    zeros = f.call(a.element, f"llvm.ctlz.{a.element}", most, Value("i1", "false"))
    width = int(a.element[1:])
    steps = f.op(a.element, f"sub {a.element} {width}, {zeros.name}")
    if width < 64:
        steps = f.op("i64", f"zext {a.element} {steps.name} to i64")
    with f.loop(0, steps, carried=[a.like(1).value, a.value, rest.value]) as loop:
        result, base, bits = (Vec(f, v) for v in loop.carried)
        result = select((bits & 1).ne(0), result * base, result)
        loop.next(result.value, (base * base).value, bits.binary("lshr", 1).value)
    result = Vec(f, loop.results[0])
    if not signed:
        return result
    inverse = select(a.eq(1), a, select(a.eq(-1), select((b & 1).ne(0), a, 1), 0))
    return select(b.lt(0), inverse, result)


def int_gcd(dtype: str, a: Vec, b: Vec) -> Vec:
    """Greatest common divisor by Euclid's rule, at most 1.45 divisions for each bit; never negative."""
    f, width = a.f, int(a.element[1:])
    signed = dtype != "u8"
    x, y = (select(v.lt(0), -v, v) if signed else v for v in (a, b))
    most = f.call(a.element, f"llvm.vector.reduce.umax.v{a.lanes}{a.element}", y.value)
    zeros = f.call(a.element, f"llvm.ctlz.{a.element}", most, Value("i1", "false"))
    bits = f.op(a.element, f"sub {a.element} {width}, {zeros.name}")
    wide = bits if width == 64 else f.op("i64", f"zext {a.element} {bits.name} to i64")
    steps = f.add(f.add(wide, f.op("i64", f"lshr i64 {wide.name}, 1")), 2)
    with f.loop(0, steps, carried=[x.value, y.value]) as loop:
        x, y = (Vec(f, v) for v in loop.carried)
        zero = y.eq(0)
        rest = x.binary("urem", select(zero, 1, y))
        loop.next(select(zero, x, y).value, select(zero, y, rest).value)
    return Vec(f, loop.results[0])


# Floats -------------------------------------------------------------------------------------------------


def float_fmod(a: Vec, b: Vec) -> Vec:
    """Remainder with the sign of a, exact, also where a / b overflows; NaN for an infinite a or b = 0."""
    if a.element == "float":
        wide = float_fmod(a.convert("fpext", "double"), b.convert("fpext", "double"))
        return wide.convert("fptrunc", "float")
    x, y = a.abs(), b.abs()
    usable = x.lt(inf) & y.gt(0.0) & y.lt(inf)
    rest = _remainder(select(usable, x, 0.0), select(usable, y, 1.0))
    good = x.lt(inf) & y.gt(0.0)  # y may be infinite
    return select(good, select(y.eq(inf), a, rest.copysign(a)), nan)


def _exponent(x: Vec) -> Vec:
    """Exponent field of f64 x > 0, below zero for subnormals; at most that for x = 0."""
    small = x.lt(2.0**-1022)
    field = select(small, x * 2.0**108, x).bits().binary("lshr", 52)
    return field - select(small, field.like(108), field.like(0))


def _remainder(x: Vec, y: Vec) -> Vec:
    """x mod y for finite f64 x >= 0, y > 0: long division, QUOTIENT_BITS of the quotient at a time.

    A step subtracts q t, t = y 2^s, with q = trunc(x / t) < 2^QUOTIENT_BITS, at most one too large; the fused
    multiply-add is exact since its result is a multiple of t's last place and no larger than t.
    """
    f = x.f
    distance = _exponent(x) - _exponent(y) + 1  # x < y * 2^distance
    distance = select(distance.lt(0), 0, distance)
    most = f.call("i64", f"llvm.vector.reduce.smax.v{x.lanes}i64", distance.value)
    steps = f.ceildiv(f.add(most, 1), QUOTIENT_BITS)
    with f.loop(0, steps, carried=[x.value, distance.value]) as loop:
        rest, left = (Vec(f, v) for v in loop.carried)
        left = left - QUOTIENT_BITS
        left = select(left.lt(0), 0, left)
        half = left.binary("lshr", 1)
        t = y * _power(half) * _power(left - half)
        q = (rest / t).intrinsic("trunc")
        rest = fma(-q, t, rest)
        loop.next(select(rest.lt(0.0), rest + t, rest).value, left.value)
    return Vec(f, loop.results[0])


def _power(n: Vec) -> Vec:
    """2^n in f64 for small n >= 0."""
    return ((n + 1023) << 52).floats()


def float_mod(a: Vec, b: Vec) -> Vec:
    """Remainder with the sign of b: fmod, plus b where the signs differ (rounded once)."""
    rest = float_fmod(a, b)
    return select(rest.ne(0.0) & _signs_differ(rest, b), rest + b, rest)


def _signs_differ(a: Vec, b: Vec) -> Vec:
    return a.lt(0.0) ^ b.lt(0.0)


def float_floordiv(a: Vec, b: Vec) -> Vec:
    """floor(a / b) from the exact remainder, step by step as PyTorch's div_floor; a / b where b is 0."""
    rest = float_fmod(a, b)
    ratio = (a - rest) / b
    ratio = select(rest.ne(0.0) & _signs_differ(rest, b), ratio - 1.0, ratio)
    down = ratio.intrinsic("floor")
    down = select((ratio - down).gt(0.5), down + 1.0, down)
    plain = a / b
    result = select(ratio.eq(0.0), plain.like(0.0).copysign(plain), down)
    return select(b.eq(0.0), plain, result)
