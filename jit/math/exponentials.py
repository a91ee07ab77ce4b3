"""Exponentials, logarithms, hyperbolic functions and erf of vectors, as straight-line code.

Method: additive argument reduction in the way of Cody and Waite (Software Manual for the Elementary
Functions, 1980) with fused multiply-adds, then a polynomial. Coefficients: weighted least squares on
Chebyshev points, reweighted towards minimax (Lawson), rounded to the format one at a time with the rest
fitted again. Powers of two are made and applied in two factors, so that results round once also among the
subnormals. Functions that are rarely hot exist in f64 only; f32 goes through them (`widened`) and is then
rounded correctly but for ties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nan

from ..llvm.vector import Vec, at_least, at_most, fma, polynomial, select


@dataclass(frozen=True)
class Format:
    """Constants of one float format.

    `shifter` = 1.5 * 2^mantissa: adding it rounds to an integer, in the low bits of the sum. `exp`:
    coefficients of e^r, `expm1`: of (e^r - 1 - r) / r^2, |r| <= ln(2) / 2. `exp_range`: beyond, e^x is 0 or
    infinite. `tanh_limit`: beyond, tanh is 1.
    """

    mantissa: int
    bias: int
    shifter: float
    log2e: float
    ln2: tuple[float, float]
    exp: tuple[float, ...]
    expm1: tuple[float, ...]
    exp_range: tuple[float, float]
    tanh_limit: float
    tiny: float  # the smallest normal number
    log_base: int  # bits of the lowest mantissa that the reduced logarithm sees


F32 = Format(
    mantissa=23,
    bias=127,
    shifter=1.5 * 2.0**23,
    log2e=1.4426950408889634,
    ln2=(0.6931471824645996, -1.9046542121259336e-09),
    exp=(1.0, 1.0, 0.4999999403953552, 0.1666651964187622, 0.04166823625564575, 0.008368815295398235,
         0.0013823453336954117),
    expm1=(0.5, 0.1666666567325592, 0.041666485369205475, 0.00833357498049736, 0.0013933009468019009,
           0.0001973565376829356),
    exp_range=(-104.0, 89.0),
    tanh_limit=10.0,
    tiny=2.0**-126,
    log_base=0x3F2AAAAB,  # 2/3
)  # fmt: skip
F64 = Format(
    mantissa=52,
    bias=1023,
    shifter=1.5 * 2.0**52,
    log2e=1.4426950408889634,
    ln2=(0.6931471805599453, 2.3190468138462996e-17),
    exp=(1.0, 1.0, 0.5000000000000011, 0.1666666666666644, 0.041666666666526894, 0.0083333333334775,
         0.0013888888944380224, 0.00019841269541597112, 2.4801492392433503e-05, 2.755755614268436e-06,
         2.7630483142206197e-07, 2.500939586435771e-08),
    expm1=(0.5, 0.16666666666666677, 0.041666666666666616, 0.008333333333321457, 0.001388888888892014,
           0.00019841269886509218, 2.4801587244359733e-05, 2.7557243859388496e-06, 2.7557347503390057e-07,
           2.510915061792362e-08, 2.08910332909789e-09),
    exp_range=(-746.0, 711.0),
    tanh_limit=20.0,
    tiny=2.0**-1022,
    log_base=0x3FE6A09E667F3BCD,  # sqrt(1/2)
)  # fmt: skip
FORMATS = {"float": F32, "double": F64}

# 2^r, 0 <= r <= 1
EXP2_F32 = (1.0, 0.6931512951850891, 0.2401645928621292, 0.055799514055252075, 0.009017480537295341,
            0.0018669525161385536)  # fmt: skip
WEIGHT = (float(1 - F32.bias), *EXP2_F32)  # the least power of two, then the coefficients
# (log1p(f) - f) / f^2 for f32, f in [-1/3, 1/3]
LOG1P_F32 = (-0.5, 0.3333321511745453, -0.24999821186065674, 0.20010441541671753, -0.16679468750953674,
             0.14005409181118011, -0.12197917699813843, 0.1398632526397705, -0.12833860516548157)  # fmt: skip
# (2 atanh(s) / s - 2) / s^2 in s^2, |s| <= 0.1717: seven terms to 2^-59; nine to 2^-73, the first in two
# parts
ATANH = (0.6666666666666735, 0.3999999999941064, 0.28571428743169375, 0.22222198499723825,
         0.18183567983704668, 0.15313957977965717, 0.14796892171318418)  # fmt: skip
ATANH_LONG = (0.39999999999999936, 0.28571428571458687, 0.22222222215323043, 0.1818181907512039,
              0.15384545635221844, 0.13336679449468697, 0.11668488433579531, 0.12035365761141448)  # fmt: skip
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
LN2_SHORT = (0.6931471806019545, -4.2009150726810846e-11)  # 32 bits, so that exponent * it is exact; the rest
LOG2E = (1.4426950408889634, 2.0355273740931033e-17)
LOG10E = (0.4342944819032518, 1.098319650216765e-17)

# erf(x) / x - 1 in x^2, |x| <= 1
ERF_F32 = (0.12837916612625122, -0.3761262595653534, 0.1128358244895935, -0.026853643357753754,
           0.005187963135540485, -0.0008006803691387177, 7.842346531106159e-05)  # fmt: skip
ERF_F64 = (0.12837916709551256, -0.3761263890318344, 0.11283791670941892, -0.026866170642829576,
           0.005223977604223976, -0.0008548325852068736, 0.00012055291560783262, -1.492467786326594e-05,
           1.644674830304976e-06, -1.6203636270466704e-07, 1.3700318982927112e-08,
           -7.761009201276485e-10)  # fmt: skip
# erfc(x)^(1/4), 1 <= x <= 3.93, where erf reaches 1 in f32
ERFC_ROOT_F32 = (0.9998403787612915, -0.2808724045753479, -0.12342511862516403, 0.023203277960419655,
                 0.009202110581099987, 0.006443319376558065, -0.006159730721265078, 0.0017520930850878358,
                 -0.00022583843383472413, 1.1426924174884334e-05)  # fmt: skip
# erfc(x) exp(x^2) in t = (x - 3) / (x + 3), 1 <= x <= 6
ERFCX_F64 = (0.17900115118138982, -0.3262335600430397, 0.24560380171249144, -0.15011593649541197,
             0.07166583725358716, -0.024392499298594966, 0.004269131418442918, 0.0007076917299649682,
             -0.0005973856274780834, 4.402565896370146e-05, 6.089808495326568e-05, -1.8371696381304575e-05,
             -1.4302310200317025e-05, -2.214308695535378e-06)  # fmt: skip


def widened(function: Callable[..., Vec]) -> Callable[..., Vec]:
    """Return `function`, written for f64, for both formats: f32 is computed in f64 and rounded once more."""

    def both(*args: Vec) -> Vec:
        if args[0].element == "double":
            return function(*args)
        return function(*(x.convert("fpext", "double") for x in args)).convert("fptrunc", "float")

    return both


# Exponentials -------------------------------------------------------------------------------------------


def _reduce(x: Vec) -> tuple[Vec, Vec]:
    """Return (bits of n + shifter, r) with x = n ln(2) + r, |r| <= ln(2) / 2 (and a little), n an integer."""
    form = FORMATS[x.element]
    shifted = fma(x, form.log2e, form.shifter)
    n = shifted - form.shifter
    return shifted.bits(), fma(n, -form.ln2[1], fma(n, -form.ln2[0], x))


def _scale(p: Vec, shifted: Vec, halvings: int = 0) -> Vec:
    """Return p * 2^(n - halvings), rounded once, for p near 1 and the bits of n + shifter."""
    form = FORMATS[p.element]
    if p.can_scale:
        return p.scale(shifted.floats() - (form.shifter + halvings))
    n = shifted - (_shifter_bits(form) + halvings)
    half = n >> 1
    first, second = ((k + form.bias << form.mantissa).floats() for k in (half, n - half))
    return p * first * second


def _shifter_bits(form: Format) -> int:
    """Return the bits of `form.shifter` as an integer (its exponent is `mantissa`, its fraction one half)."""
    return (form.bias + form.mantissa << form.mantissa) + (1 << form.mantissa - 1)


def _power_of_two(shifted: Vec) -> Vec:
    """Return 2^n for the bits of n + shifter and normal 2^n (the shifter's bits shift out)."""
    form = FORMATS[{"i32": "float", "i64": "double"}[shifted.element]]
    return ((shifted << form.mantissa) + (form.bias << form.mantissa)).floats()


def exp(x: Vec) -> Vec:
    """e^x."""
    form = FORMATS[x.element]
    return _exp_clamped(at_least(at_most(x, form.exp_range[1]), form.exp_range[0]))


def _exp_clamped(x: Vec, low: Vec | None = None, halvings: int = 0) -> Vec:
    """e^(x + low) / 2^halvings for x in `exp_range`."""
    shifted, r = _reduce(x)
    if low is not None:
        r = r + low
    return _scale(polynomial(r, FORMATS[x.element].exp), shifted, halvings)


def weight(t: Vec, constants: Sequence[Vec | float] = WEIGHT) -> Vec:
    """2^t of f32 for t < 128, relatively within 2.4 * 2^-24; 0 below 2^-126, NaN for NaN.

    A third of the instructions of `exp`: t is reduced downwards, like the instruction that scales, and
    nothing is subnormal. The instruction that reduces also rounds the remainder downwards, so other code
    does, too. `constants`: WEIGHT, or vectors of them.
    """
    least, *coefficients = constants
    keep = t.compare("uge", least)
    if t.can_scale:
        return select(keep, polynomial(t.above_floor(), coefficients).scale(t), 0.0)
    floor = t.intrinsic("floor")
    nearest = t - floor
    is_above = (nearest + floor).gt(t)
    r = (nearest.bits() + is_above.convert("sext", "i32")).floats()
    power = _power_of_two((floor + F32.shifter).bits())
    return select(keep, polynomial(r, coefficients) * power, 0.0)


def exp_nonpositive(x: Vec) -> Vec:
    """e^x for x <= 0; in f32 relatively within (3 + 1.3 |x|) 2^-24, and 0 where it is subnormal."""
    return weight(x * F32.log2e) if x.element == "float" else exp(x)


def exp2_f64(x: Vec) -> Vec:
    """2^x."""
    x = at_least(at_most(x, 1025.0), -1076.0)
    shifted = x + F64.shifter
    f = x - (shifted - F64.shifter)
    return _scale(polynomial(fma(f, F64.ln2[0], f * F64.ln2[1]), F64.exp), shifted.bits())


def _expm1_reduced(x: Vec, halvings: int = 0) -> Vec:
    """(e^x - 1) / 2^halvings = 2^n (e^r - 1) + (2^n - 1), all halved, while the power is a normal number."""
    shifted, r = _reduce(x)
    p = fma(r * r, polynomial(r, FORMATS[x.element].expm1), r)
    power = _power_of_two(shifted - halvings if halvings else shifted)
    return fma(power, p, power - 0.5**halvings)


def expm1_f64(x: Vec) -> Vec:
    """e^x - 1."""
    clamped = at_least(at_most(x, 710.0), -50.0)
    return (_expm1_reduced(clamped, halvings=1) * 2.0).copysign(x)


def tanh(x: Vec) -> Vec:
    """Hyperbolic tangent: u / (u + 1) with u = (e^(2 |x|) - 1) / 2 = 2^n (e^(2 r) - 1) / 2 + (2^n - 1) / 2.

    |x| = n ln(2) / 2 + r; the factors 2 are in the constants, the exponent's bias is in the shifter. In f32
    one part of ln(2) suffices: where n times its error would matter, tanh hardly changes. The quotient is
    taken as u - u^2 / (u + 1), above u = 1 as 1 - 1 / (u + 1): the subtrahend is small where u + 1 is rounded
    coarsely.
    """
    form = FORMATS[x.element]
    shifter = form.shifter + form.bias
    a = at_most(x.abs(), form.tanh_limit)
    shifted = fma(a, 2 * form.log2e, shifter)
    n = shifted - shifter
    r = fma(n, -form.ln2[0] / 2, a)
    if x.element == "double":
        r = fma(n, -form.ln2[1] / 2, r)
    p = fma(r * r, polynomial(r, [c * 2.0 ** (k + 1) for k, c in enumerate(form.expm1)]), r)
    power = (shifted.bits() << form.mantissa).floats()
    u = fma(power, p, fma(power, 0.5, -0.5))
    first = at_most(u, 1.0)
    return fma(-first, first / (u + 1.0), first).copysign(x)


def sigmoid(x: Vec) -> Vec:
    """1 / (1 + e^-x); with e = e^-|x|, which cannot overflow, and w = e / (1 + e): 1 - w, or e - e w."""
    e = _exp_clamped(at_least(-x.abs(), FORMATS[x.element].exp_range[0]))
    w = e / (e + 1.0)
    first = select(x.lt(0.0), e, 1.0)
    return fma(-first, w, first)


def silu(x: Vec) -> Vec:
    """x / (1 + e^-x), as PyTorch has it: below -88.7, where e^-x is infinite in f32, a zero of x's sign.

    In f32 its error is small beside x, not beside the result, so that e^-x takes few instructions.
    """
    if not x.can_scale:
        return silu_portable(x)
    t = x * -F32.log2e
    return x / (polynomial(t.above_floor(), EXP2_F32).scale(t) + 1.0)


def silu_portable(x: Vec) -> Vec:
    """`silu` without the instructions that scale: subnormal powers count as 0."""
    if x.element == "double":
        return x / (exp(-x) + 1.0)
    return x / (weight(at_most(x * -F32.log2e, 128.0)) + 1.0)


def sinh_f64(x: Vec) -> Vec:
    """Hyperbolic sine."""
    a = at_most(x.abs(), 711.0)
    t = _expm1_reduced(at_most(a, 30.0))
    small = (t + t / (t + 1.0)) * 0.5
    return select(a.gt(22.0), _exp_clamped(a, halvings=1), small).copysign(x)


def cosh_f64(x: Vec) -> Vec:
    """Hyperbolic cosine."""
    half = _exp_clamped(at_most(x.abs(), 711.0), halvings=1)
    return half + 0.25 / half


# Logarithms ---------------------------------------------------------------------------------------------


def _split(x: Vec) -> tuple[Vec, Vec]:
    """Return (e, m), both floats, with x = 2^e m, m from `log_base` to twice that, for finite x > 0."""
    form = FORMATS[x.element]
    small = x.lt(form.tiny)
    scaled = select(small, x * 2.0**form.mantissa, x).bits()
    e = (scaled - form.log_base) >> form.mantissa
    m = (scaled - (e << form.mantissa)).floats()
    e = e + select(small, e.like(-form.mantissa), e.like(0))
    return e.convert("sitofp", x.element), m


def _log_special(x: Vec, y: Vec) -> Vec:
    """Return y where x is finite and positive, else the logarithm's value there."""
    y = select(x.lt(inf), y, x)  # inf and NaN map to themselves
    y = select(x.lt(0.0), nan, y)
    return select(x.eq(0.0), -inf, y)


def log(x: Vec) -> Vec:
    """Natural logarithm."""
    e, m = _split(x)
    f = m - 1.0
    if x.element == "float":
        y = fma(f * f, polynomial(f, LOG1P_F32), f)
    else:
        s = f / (m + 1.0)
        z = s * s
        y = fma(-s, f - z * polynomial(z, ATANH), f)
    ln2 = FORMATS[x.element].ln2
    return _log_special(x, fma(e, ln2[0], fma(e, ln2[1], y)))


def log_pair(x: Vec) -> tuple[Vec, Vec]:
    """Natural logarithm of finite f64 x > 0 as a sum (high, low), to about 2^-68 relative."""
    e, m = _split(x)
    f = m - 1.0
    d = m + 1.0
    r = 1.0 / d
    s = f * r
    s_low = (fma(-s, d, f) - s * (m - (d - 1.0))) * r
    z = s * s
    z_low = fma(s, s, -z) + 2.0 * s * s_low
    t = z * polynomial(z, ATANH_LONG)
    u = t + TWO_THIRDS[0]
    u_low = (TWO_THIRDS[0] - u) + t + TWO_THIRDS[1]
    w, w_low = _times((z, z_low), (u, u_low))
    v, v_low = _times((s, s_low), (w, w_low))
    high = fma(s, 2.0, v)
    low = (fma(s, 2.0, -high) + v) + (fma(s_low, 2.0, v_low))
    base = e * LN2_SHORT[0]
    total = base + high
    low = ((base - total) + high) + fma(e, LN2_SHORT[1], low)
    result = total + low
    return result, (total - result) + low


def _times(a: tuple[Vec, Vec], b: tuple[Vec, Vec]) -> tuple[Vec, Vec]:
    """Product of two unevaluated sums."""
    high = a[0] * b[0]
    return high, fma(a[0], b[0], -high) + fma(a[0], b[1], a[1] * b[0])


def _log_to_base(factor: tuple[float, float]) -> Callable[[Vec], Vec]:
    def log_f64(x: Vec) -> Vec:
        high, low = log_pair(x)
        y = fma(high, factor[0], fma(high, factor[1], low * factor[0]))
        return _log_special(x, y)

    return log_f64


log2_f64 = _log_to_base(LOG2E)
log10_f64 = _log_to_base(LOG10E)


def log1p_f64(x: Vec) -> Vec:
    """log(1 + x): the logarithm of the rounded sum, corrected by the rounding error over the sum."""
    u = x + 1.0
    v = u - 1.0
    error = (1.0 - (u - v)) + (x - v)
    y = log(u)
    y = select(u.gt(0.0) & u.lt(inf), y + error / u, y)
    return select(x.eq(0.0), x, y)


def asinh_f64(x: Vec) -> Vec:
    """Inverse hyperbolic sine."""
    a = x.abs()
    z = at_most(a, 2.0**30)
    z = z * z
    small = log1p_f64(a + z / ((z + 1.0).sqrt() + 1.0))
    return select(a.lt(2.0**29), small, log(a) + F64.ln2[0]).copysign(x)


def acosh_f64(x: Vec) -> Vec:
    """Inverse hyperbolic cosine."""
    t = x - 1.0
    z = at_most(t, 2.0**30)
    small = log1p_f64(t + (fma(z, z, z + z)).sqrt())
    return select(x.lt(1.0), nan, select(x.gt(2.0**29), log(x) + F64.ln2[0], small))


def atanh_f64(x: Vec) -> Vec:
    """Inverse hyperbolic tangent."""
    a = x.abs()
    return (log1p_f64((a + a) / (1.0 - a)) * 0.5).copysign(x)


def _scaled_bits(x: Vec) -> tuple[Vec, Vec]:
    """Return the bits of |x|, a subnormal x times 2^mantissa, and whether x is one."""
    form = FORMATS[x.element]
    a = x.abs()
    small = a.lt(form.tiny) & a.gt(0.0)
    return select(small, a * 2.0**form.mantissa, a).bits(), small


def mantissa(x: Vec) -> Vec:
    """The m with x = m 2^e, 0.5 <= |m| < 1; 0, infinities and NaN are themselves."""
    form = FORMATS[x.element]
    bits, _ = _scaled_bits(x)
    half = (bits & ((1 << form.mantissa) - 1)) | (form.bias - 1 << form.mantissa)
    regular = x.abs().gt(0.0) & x.abs().lt(inf)
    return select(regular, half.floats().copysign(x), x)


def exponent(x: Vec) -> Vec:
    """The e with x = m 2^e, 0.5 <= |m| < 1; 0 for 0, infinities and NaN."""
    form = FORMATS[x.element]
    bits, small = _scaled_bits(x)
    e = (bits >> form.mantissa) - (form.bias - 1)
    e = e - select(small, e.like(form.mantissa), e.like(0))
    regular = x.abs().gt(0.0) & x.abs().lt(inf)
    return select(regular, e.convert("sitofp", x.element), 0.0)


def hypot_f64(x: Vec, y: Vec) -> Vec:
    """sqrt(x^2 + y^2) without overflow; infinite also where only one is and the other is NaN."""
    a, b = x.abs(), y.abs()
    most = select(a.gt(b), a, b)
    small, large = most.lt(2.0**-500), most.gt(2.0**500)
    scale = select(large, 2.0**-600, select(small, most.like(2.0**600), most.like(1.0)))
    back = select(large, 2.0**600, select(small, most.like(2.0**-600), most.like(1.0)))
    a, b = a * scale, b * scale
    square = a * a
    value = (fma(b, b, square) + fma(a, a, -square)).sqrt() * back
    return select(a.eq(inf) | b.eq(inf), inf, value)


# Powers and erf -----------------------------------------------------------------------------------------


def power(x: Vec, y: Vec) -> Vec:
    """x^y with the special cases of C's pow; f32 by a plain f64 logarithm, f64 by one in two parts."""
    if x.element == "float":
        x, y = x.convert("fpext", "double"), y.convert("fpext", "double")
        return _power(x, y, log(x.abs()), x.like(0.0)).convert("fptrunc", "float")
    a = x.abs()
    high, low = log_pair(a)
    regular = a.gt(0.0) & a.lt(inf)
    high = select(regular, high, select(a.eq(0.0), high.like(-inf), high.like(inf)))
    return _power(x, y, high, select(regular, low, 0.0))


def _power(x: Vec, y: Vec, high: Vec, low: Vec) -> Vec:
    """x^y for f64, given log|x| = high + low."""
    p = high * y
    clamped = at_least(at_most(p, 711.0), -746.0)
    p_low = select(p.eq(clamped), fma(high, y, -p) + low * y, 0.0)
    result = _exp_clamped(clamped, low=p_low)
    half = y * 0.5
    is_integer = y.intrinsic("trunc").eq(y)
    is_odd = is_integer & half.intrinsic("trunc").ne(half)
    negative = x.bits().lt(0)
    result = select(negative & is_odd, -result, result)
    bad = x.lt(0.0) & ~is_integer & x.gt(-inf)
    result = select(bad | x.isnan() | y.isnan(), nan, result)
    one = x.eq(1.0) | y.eq(0.0) | (x.eq(-1.0) & y.abs().eq(inf))
    return select(one, 1.0, result)


def erf(x: Vec) -> Vec:
    """Error function: odd polynomial below 1, above it 1 - erfc by a power (f32) or e^(-x^2) (f64)."""
    a = x.abs()
    z = x * x
    if x.element == "float":
        small = fma(x, polynomial(z, ERF_F32), x)
        root = polynomial(at_most(a, 3.93), ERFC_ROOT_F32)
        square = root * root
        large = fma(-square, square, 1.0)
    else:
        small = fma(x, polynomial(z, ERF_F64), x)
        b = at_least(at_most(a, 6.0), 1.0)
        erfcx = polynomial((b - 3.0) / (b + 3.0), ERFCX_F64)
        large = fma(-_exp_clamped(-b * b), erfcx, 1.0)
    return select(a.lt(1.0), small, large.copysign(x))
