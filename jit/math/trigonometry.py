"""Trigonometric functions of vectors and their inverses.

Method: reduction to |r| <= pi/4 by three parts of pi/2 with fused multiply-adds (Cody and Waite, 1980) up to
`limit`; beyond it, exactly, by multiplying the integer mantissa with the bits of 2/pi that matter (Payne and
Hanek, Radian Reduction for Trigonometric Functions, SIGNUM 1983). That second way is a loop of no trip unless
a lane needs it. Coefficients as in `exponentials`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf, nan

from ..llvm.dtypes import vector
from ..llvm.function import Function, Value
from ..llvm.vector import Vec, fma, polynomial, select
from .exponentials import F32, F64

PI = (3.141592653589793, 1.2246467991473532e-16)
WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Circle:
    """Constants of one format; pi/2 in three parts, (sin r - r) / r^3, (cos r - 1 + r^2/2) / r^4 in r^2."""

    shifter: float
    half_pi: tuple[float, float, float]
    sin: tuple[float, ...]
    cos: tuple[float, ...]
    limit: float
    mantissa_words: int  # 32-bit words of the mantissa
    fraction_words: int  # 32-bit words of 2/pi that the exact reduction keeps after the point


CIRCLES = {
    "float": Circle(
        shifter=F32.shifter,
        half_pi=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
        sin=(-0.1666666716337204, 0.008333378471434116, -0.0001985260023502633, 2.827351863743388e-06),
        cos=(0.04166664555668831, -0.0013887310633435845, 2.4432552891084924e-05),
        limit=2.0**15,
        mantissa_words=1,
        fraction_words=4,
    ),
    "double": Circle(
        shifter=F64.shifter,
        half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
        sin=(-0.1666666666666663, 0.008333333333321907, -0.000198412698294452, 2.755731357688432e-06,
             -2.5050741380789595e-08, 1.589588398895356e-10),
        cos=(0.041666666666666595, -0.0013888888888873342, 2.4801587289000412e-05, -2.755731421588043e-07,
             2.08757051366439e-09, -1.135873041324106e-11),
        limit=2.0**30,
        mantissa_words=2,
        fraction_words=6,
    ),
}  # fmt: skip
# (atan t - t) / t^3 in t^2, |t| <= tan(pi / 8)
ATAN = (-0.333333333333332, 0.19999999999953758, -0.1428571428021155, 0.11111110784166493,
        -0.09090897777718428, 0.07692060572832356, -0.06663108187606827, 0.058479200595547134,
        -0.050394464719294034, 0.038068248563411414, -0.01791134527951568)  # fmt: skip
TAN_EIGHTH = 0.41421356237309503


# Reduction ----------------------------------------------------------------------------------------------


def _reduce(a: Vec) -> tuple[Vec, Vec]:
    """Return (q, r): a = q pi/2 + r for a >= 0; only the low bits of the integer q are right."""
    circle = CIRCLES[a.element]
    shifted = fma(a, 2.0 / PI[0], circle.shifter)
    n = shifted - circle.shifter
    r = a
    for part in circle.half_pi:
        r = fma(n, -part, r)
    return _replace_large(a, ~a.le(circle.limit), shifted.bits(), r)


def _replace_large(a: Vec, large: Vec, q: Vec, r: Vec) -> tuple[Vec, Vec]:
    """Return q and r, exact in the lanes `large`: one lane after the other, for that is small code."""
    f, lanes = a.f, a.lanes
    trips = f.select(large.any(), lanes, 0)
    numbers = Value(f"<{lanes} x i64>", f"<{', '.join(f'i64 {lane}' for lane in range(lanes))}>")
    with f.loop(0, trips, carried=[q.value, r.value]) as loop:
        at = loop.index.name
        scalar = f.op(a.element, f"extractelement {a.value.type} {a.value.name}, i64 {at}")
        one_q, one_r = _reduced_apart(scalar, f)
        here = Vec(f, numbers).compare("eq", Vec(f, f.splat(loop.index, lanes))) & large
        loop.next(
            *(_put(here, one, Vec(f, old)) for one, old in zip((one_q, one_r), loop.carried, strict=True))
        )
    return Vec(f, loop.results[0]), Vec(f, loop.results[1])


def _reduced_apart(scalar: Value, f: Function) -> tuple[Vec, Vec]:
    """Return q and r of one number by a part: it is most of a sine's code, and seldom needed."""
    bits = f"i{32 if scalar.type == 'float' else 64}"

    def define(part: Function) -> None:
        q, r = _reduce_exactly(Vec(part, part.splat(part.params[0], 1)), CIRCLES[scalar.type])
        both = f"<1 x {bits}> {q.value.name}, <1 x {bits}> {r.bits().value.name}"
        part.result = part.op(f"<2 x {bits}>", f"shufflevector {both}, <2 x i32> <i32 0, i32 1>")

    both = f.call_part(f"reduce_exactly_{scalar.type}", define, scalar, key=())
    operands = f"{both.type} {both.name}, {both.type} poison"
    q, r = (Vec(f, f.op(f"<1 x {bits}>", f"shufflevector {operands}, <1 x i32> <i32 {i}>")) for i in range(2))
    return q, r.floats()


def _put(here: Vec, one: Vec, old: Vec) -> Value:
    """Return `old` with the single element of `one` in the lanes `here`."""
    f = old.f
    scalar = f.op(one.element, f"extractelement {one.value.type} {one.value.name}, i64 0")
    return select(here, Vec(f, f.splat(scalar, old.lanes)), old).value


@cache
def _two_over_pi_words(count: int) -> tuple[int, ...]:
    """Return two words of zeros and the first `count` 32-bit words of 2/pi (by Machin's formula)."""
    bits = 32 * count
    one = 1 << bits + 64

    def arccot(x: int) -> int:
        term = total = one // x
        n, sign = 3, -1
        while term:
            term //= x * x
            total += sign * (term // n)
            n, sign = n + 2, -sign
        return total

    pi = 4 * (4 * arccot(5) - arccot(239))
    value = 2 * one * (1 << bits) // pi
    return (0, 0, *(value >> 32 * (count - 1 - i) & WORD for i in range(count)))


def _table(f: Function) -> Value:
    words = _two_over_pi_words(42)
    values = ", ".join(f"i32 {w}" for w in words)
    array = f'private unnamed_addr constant [{len(words)} x i32] [{values}], section ".rodata.two_over_pi"'
    f.declarations["two_over_pi"] = f"@two_over_pi = {array}"
    return Value("ptr", "@two_over_pi")


def _window(a: Vec, power: Vec, words: int) -> list[Vec]:
    """Return the words (as i64) of 2/pi * 2^power mod 2^32, the first one in front of the point."""
    f, lanes = a.f, a.lanes
    table = _table(f)
    first, shift = power >> 5, (power & 31).convert("trunc", "i32")
    loaded = []
    every = Value(vector("i1", lanes), "splat (i1 true)")
    none = Value(vector("i32", lanes), "zeroinitializer")
    for i in range(words + 1):
        index = (first + i).value
        at = f.op(vector("ptr", lanes), f"getelementptr i32, ptr {table.name}, {index.type} {index.name}")
        loaded.append(_gather(f, at, every, none))
    return [
        hi.intrinsic("fshl", lo, shift).convert("zext", "i64")
        for hi, lo in zip(loaded[:-1], loaded[1:], strict=True)
    ]


def _gather(f: Function, at: Value, mask: Value, passthru: Value) -> Vec:
    lanes = passthru.type[1:].split(" ", 1)[0]
    name = f"llvm.masked.gather.v{lanes}i32.v{lanes}p0"
    f.declarations[name] = f"declare {passthru.type} @{name}({at.type}, i32, {mask.type}, {passthru.type})"
    args = f"{at.type} {at.name}, i32 4, {mask.type} {mask.name}, {passthru.type} {passthru.name}"
    return Vec(f, f.op(passthru.type, f"call {passthru.type} @{name}({args})"))


def _reduce_exactly(a: Vec, circle: Circle) -> tuple[Vec, Vec]:
    """As `_reduce`, by exact integer arithmetic; for lanes a >= 2^15; infinite and NaN ones give NaN."""
    element = a.element
    x = a if element == "double" else a.convert("fpext", "double")
    bits = x.bits()
    precision = 24 if element == "float" else 53
    mantissa = (bits & (1 << 52) - 1 | 1 << 52).binary("lshr", 53 - precision)
    exponent = bits.binary("lshr", 52) - (1022 + precision)  # a = mantissa * 2^exponent
    usable = x.ge(2.0**15) & x.lt(inf)
    exponent = select(usable, exponent + 32, 32)  # of the words' window: keeps the shift's count >= 0
    words = _window(a, exponent, circle.fraction_words + 1)
    limbs = [mantissa & WORD] + ([mantissa.binary("lshr", 32)] if circle.mantissa_words == 2 else [])
    product = _multiply(limbs, words)
    q, fraction = product[0], product[1:]
    up = fraction[0].binary("lshr", 31)  # at least one half: count from the next quarter, negative
    flip = (0 - up) & WORD
    q = q + up
    r = _fraction_times_half_pi([word ^ flip for word in fraction])
    r = select(up.eq(1), -r, r)
    r = select(usable, r, nan)
    if element == "double":
        return q, r
    return q.convert("trunc", "i32"), r.convert("fptrunc", "float")


def _multiply(limbs: list[Vec], words: list[Vec]) -> list[Vec]:
    """Return the words of (limbs, low first) * (words, high first), modulo 2^32 in front of the point."""
    columns: list[list[Vec]] = [[] for _ in words]
    for i, word in enumerate(words):
        for j, limb in enumerate(limbs):
            if i - j < 0:
                continue
            product = limb * word
            columns[i - j].append(product & WORD)
            if i - j >= 1:
                columns[i - j - 1].append(product.binary("lshr", 32))
    result: list[Vec] = []
    carry: Vec | None = None
    for column in reversed(columns):
        total = column[0]
        for term in column[1:]:
            total = total + term
        total = total if carry is None else total + carry
        result.append(total & WORD)
        carry = total.binary("lshr", 32)
    return result[::-1]


def _fraction_times_half_pi(words: list[Vec]) -> Vec:
    """Return (0.words) * pi/2 in f64, words of 32 bits, high first: the terms are positive, none cancels."""
    terms = [w.convert("uitofp", "double") * 2.0 ** (-32 * (i + 1)) for i, w in enumerate(words)]
    tail = terms[-1]
    for term in reversed(terms[2:-1]):
        tail = term + tail
    top = terms[0] + terms[1]
    rest = (terms[0] - top) + terms[1] + tail
    high, low = CIRCLES["double"].half_pi[:2]
    r = top * high
    return r + (fma(top, high, -r) + fma(top, low, rest * high))


# Functions ----------------------------------------------------------------------------------------------


def _sin_cos(r: Vec) -> tuple[Vec, Vec]:
    circle = CIRCLES[r.element]
    z = r * r
    sine = fma(r * z, polynomial(z, circle.sin), r)
    cosine = fma(z * z, polynomial(z, circle.cos), fma(z, -0.5, 1.0))
    return sine, cosine


def _quadrant(q: Vec, shape: Vec, sine: Vec, cosine: Vec, sign: Vec | None) -> Vec:
    """Sine of q pi/2 + r, given sine and cosine of r; the sign bit of `sign` is changed in as well."""
    width = 32 if shape.element == "float" else 64
    flip = q << (width - 2)
    if sign is not None:
        flip = flip ^ sign
    value = select((q & 1).eq(1), cosine, sine)
    return (value.bits() ^ (flip & -(1 << width - 1))).floats()


def sin(x: Vec) -> Vec:
    """Sine."""
    q, r = _reduce(x.abs())
    return _quadrant(q, x, *_sin_cos(r), sign=x.bits())


def cos(x: Vec) -> Vec:
    """Cosine."""
    q, r = _reduce(x.abs())
    return _quadrant(q + 1, x, *_sin_cos(r), sign=None)


def tan_f64(x: Vec) -> Vec:
    """Tangent."""
    q, r = _reduce(x.abs())
    sine, cosine = _sin_cos(r)
    odd = (q & 1).eq(1)
    value = select(odd, -cosine, sine) / select(odd, sine, cosine)
    return (value.bits() ^ (x.bits() & -(1 << 63))).floats()


def _atan_of_ratio(y: Vec, x: Vec) -> Vec:
    """atan(y / x) for y, x >= 0, infinities and zeros included (0 / 0: 0)."""
    big = y.gt(x)
    a, b = select(big, x, y), select(big, y, x)
    same_infinity = a.eq(inf)
    a, b = select(same_infinity, 1.0, a), select(same_infinity, 1.0, b)
    b = select(b.eq(0.0), 1.0, b)
    scale = select(b.gt(2.0**1000), b.like(0.5), b.like(1.0))
    a, b = a * scale, b * scale
    reduce = a.gt(b * TAN_EIGHTH)
    t = select(reduce, a - b, a) / select(reduce, a + b, b)
    z = t * t
    value = fma(t * z, polynomial(z, ATAN), t)
    value = select(reduce, (value + PI[1] / 4) + PI[0] / 4, value)
    return select(big, (PI[1] / 2 - value) + PI[0] / 2, value)


def atan_f64(x: Vec) -> Vec:
    """Inverse tangent."""
    return _atan_of_ratio(x.abs(), x.like(1.0)).copysign(x)


def atan2_f64(y: Vec, x: Vec) -> Vec:
    """Angle of the point (x, y), with the special cases of C's atan2."""
    value = _atan_of_ratio(y.abs(), x.abs())
    value = select(x.bits().lt(0), (PI[1] - value) + PI[0], value)
    return select(x.isnan() | y.isnan(), nan, value.copysign(y))


def asin_f64(x: Vec) -> Vec:
    """Inverse sine."""
    return atan2_f64(x, ((1.0 - x) * (1.0 + x)).sqrt())


def acos_f64(x: Vec) -> Vec:
    """Inverse cosine."""
    return atan2_f64(((1.0 - x) * (1.0 + x)).sqrt(), x)
