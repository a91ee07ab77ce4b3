"""Special functions of vectors: erfc, erfinv, the gamma function's family, Bessel functions I.

They are written for f64; f32 goes through them (`exponentials.widened`). Where a function has no short
formula it is a Chebyshev series, fitted at Chebyshev points in 240-bit arithmetic and summed by Clenshaw's
rule, which loses nothing however long the series is. None of them is rounded correctly: `jit.math.table`
has the bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log, nan, pi

from ..llvm.vector import Vec, at_least, at_most, fma, select
from . import exponentials as E
from .trigonometry import cos, sin

# (1 + 2x) e^(x^2) erfc(x) in t = (x - 3) / (x + 3), x >= 0
ERFCX = (1.17756257419656, 0.005353904539615676, -0.09377550342284209, 0.05436652555744322,
         -0.018976596707845208, 0.004453426061462712, -0.0006335531710553147, 1.7661719523171593e-05,
         1.2841532864056671e-05, -2.0072285659059913e-06, -1.807522790414837e-07, 7.549828343825093e-08,
         1.885668523838603e-09, -2.699519049798364e-09, -1.460079119939105e-11, 1.0361607445969489e-10,
         1.475715976623473e-12, -4.277340064396911e-12, -2.07922492859799e-13, 1.8134502003176963e-13,
         1.973425574544739e-14, -7.287943737592673e-15, -1.5169878690228116e-15, 2.3514112258781403e-16,
         1.0006111691821667e-16)  # fmt: skip
# erfinv(y) / y in w = -log(1 - y^2), 0 <= w <= 5; in sqrt(w) up to 6.1, beyond the last f64 below 1;
# times 1 / sqrt(w), in 1 / sqrt(w), from 6 to 27.4: probabilities down to the smallest f64
ERFINV_LOW = (1.4912989404744903, 0.60175630341083, -0.009170559500080926, -0.004962635326766425,
              0.0009153796700079642, -3.889562757083e-06, -2.4202599404944085e-05, 3.2665715925842334e-06,
              2.7758889803736634e-07, -1.3023363013643025e-07, 8.10464342479187e-09, 2.862438517693075e-09,
              -5.975090007034137e-10, -1.222297879869563e-11, 1.959596397135697e-11,
              -2.0510407207370845e-12, -3.4468604612228004e-13, 1.0546751676969238e-13,
              -2.4493755490805207e-15, -2.948685683278964e-15, 4.4073860711035857e-16)  # fmt: skip
ERFINV_HIGH = (4.013544468332795, 1.94420716516862, 0.005213435233027498, -0.0030210900376413884,
               0.0013232944877040265, -0.000567965380612331, 0.00023563496764262708, -8.71624715971788e-05,
               2.545243206562661e-05, -4.087406949191783e-06, -9.951076991795929e-07,
               1.1104122267260964e-06, -4.770795134358494e-07, 1.0923429392942363e-07,
               3.9556724333105755e-09, -1.522927212758235e-08, 6.842884988887376e-09,
               -1.4611333110444524e-09, -8.764212400398621e-11, 1.9477270007757584e-10,
               -7.65720796623389e-11, 1.387821772906743e-11, 1.3728815228444047e-12, -1.878820452653519e-12,
               6.870576020034272e-13, -1.3372406843814843e-13, -1.3062980939570623e-15,
               1.2970475853272334e-14, -6.221779458134828e-15, 1.8078908660336363e-15,
               -2.4945744459318185e-16)  # fmt: skip
# e^-x I0(x), and e^-x I1(x) / x: in x, 0 <= x <= 8; times sqrt(x), in 1/x, x >= 8
I0E_LOW = (0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764,
           0.04930528423967071, -0.02373741480589947, 0.010546460394594998, -0.004324309995050576,
           0.0016394756169413357, -0.0005763755745385824, 0.00018850288509584165, -5.754195010082104e-05,
           1.6448448070728896e-05, -4.4167383584587505e-06, 1.1173875391201037e-06, -2.670793853940612e-07,
           6.046995022541919e-08, -1.300025009986248e-08, 2.6598237246823866e-09, -5.189795601635263e-10,
           9.675809035373237e-11, -1.726826291441556e-11, 2.95505266312964e-12, -4.856446783111929e-13,
           7.676185498604936e-14, -1.1685332877993451e-14, 1.715391285555133e-15, -2.431279846547955e-16,
           3.3307945188222384e-17)  # fmt: skip
I0E_HIGH = (0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
            2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
            1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11,
            -1.7941785315068062e-12, 7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14,
            -4.150569347287222e-14, -9.554846698828307e-15, 3.8116806693526224e-15, 1.7725601330565263e-15,
            -3.425485619677219e-16, -2.8276239805165836e-16, 3.461222867697461e-17,
            4.46562142029676e-17)  # fmt: skip
I1E_LOW = (0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499,
           0.024726449030626516, -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532,
           0.0005122859561685758, -0.00016176081582589674, 4.781565107550054e-05, -1.3273163656039436e-05,
           3.4702513081376785e-06, -8.568720264695455e-07, 2.0032947535521353e-07, -4.445059128796328e-08,
           9.381537386495773e-09, -1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11,
           1.1736186298890901e-11, -1.9839743977649436e-12, 3.223793365945575e-13, -5.042185504727912e-14,
           7.600684294735408e-15, -1.1055969477353862e-15, 1.5536319577362005e-16,
           -2.111421214358166e-17)  # fmt: skip
I1E_HIGH = (0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
            -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10,
            -1.8974958123505413e-11, 3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12,
            -7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
            1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15,
            3.3082023109209285e-16, 2.96262899764595e-16, -3.209525921993424e-17,
            -4.6503053684893586e-17)  # fmt: skip
ERFINV_TAIL = (0.9880384675030506, -0.010730220668683007, -0.0007644174567463702, 0.00011763803690282016,
               -1.050205398639099e-05, 1.4421700171425653e-06, -2.605633794429672e-07,
               5.333765293189897e-08, -1.1930872198565315e-08, 2.853610404249586e-09,
               -7.180119099164396e-10, 1.8795964670018578e-10, -5.0795176112207375e-11,
               1.409094882370735e-11, -3.995377829031266e-12, 1.1540858203859405e-12,
               -3.3872423937275833e-13, 1.0080298242923247e-13, -3.03651371408939e-14, 9.24576858293205e-15,
               -2.842230773672018e-15, 8.812520290468252e-16, -2.753517502079453e-16,
               8.663980285309409e-17)  # fmt: skip

# B(2k) / (2k (2k - 1)): Stirling's series of log gamma; B(2k) / 2k: of digamma; B(2k) / (2k)!: of zeta
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)
BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
             1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000)  # fmt: skip
SHIFT = 10  # arguments of the asymptotic series are at least this
ZETA_TERMS = 10  # summed one by one for q > 0; below as many more as bring it above
MAX_TERMS = 4096  # far below zero the sum is not made


def chebyshev(x: Vec, series: Sequence[float], low: float, high: float) -> Vec:
    """The Chebyshev `series` at x in low .. high."""
    twice = fma(x, 4.0 / (high - low), x.like(-2.0 * (high + low) / (high - low)))
    before, last = x.like(0.0), x.like(series[-1])
    for c in reversed(series[1:-1]):
        before, last = last, fma(twice, last, c - before)
    return fma(twice * 0.5, last, series[0] - before)


# The error function's relatives -------------------------------------------------------------------------


def _exp_of_square(x: Vec, sign: float) -> Vec:
    """e^(sign x^2), with the square's rounding error."""
    square = x * x
    low = select(square.lt(745.0), fma(x, x, -square), 0.0)
    limit = at_most(square, 745.0) if sign < 0 else at_most(square, 710.0)
    return E._exp_clamped(limit * sign, low=low * sign)


def _erfcx_positive(x: Vec) -> Vec:
    """e^(x^2) erfc(x) for x >= 0."""
    t = 1.0 - 6.0 / (x + 3.0)
    value = chebyshev(t, ERFCX, -1.0, 1.0) / fma(x, 2.0, 1.0)
    return select(x.gt(1e18), 0.5641895835477563 / x, value)


def erfcx_f64(x: Vec) -> Vec:
    """e^(x^2) erfc(x), which does not underflow."""
    a = x.abs()
    value = _erfcx_positive(a)
    negative = select(a.gt(26.65), inf, 2.0 * _exp_of_square(at_most(a, 26.65), 1.0) - value)
    return select(x.lt(0.0), negative, value)


def erfc_f64(x: Vec) -> Vec:
    """1 - erf(x)."""
    a = at_most(x.abs(), 28.0)
    value = _exp_of_square(a, -1.0) * _erfcx_positive(a)
    value = select(a.gt(27.3), value.like(0.0), value)
    return select(x.isnan(), nan, select(x.lt(0.0), 2.0 - value, value))


def _erfinv_over_y(w: Vec) -> Vec:
    """erfinv(y) / y for w = -log(1 - y^2), up to 37.2."""
    low = chebyshev(at_most(w, 5.0), ERFINV_LOW, 0.0, 5.0)
    root = at_least(at_most(w, 37.21), 5.0).sqrt()
    return select(w.lt(5.0), low, chebyshev(root, ERFINV_HIGH, 5.0**0.5, 6.1))


def erfinv_f64(y: Vec) -> Vec:
    """The x with erf(x) = y; infinite at 1, NaN beyond."""
    value = _erfinv_over_y(-E.log((1.0 - y) * (1.0 + y))) * y
    value = select(y.abs().eq(1.0), value.like(inf).copysign(y), value)
    return select(y.abs().le(1.0), value, nan)


def ndtr_f64(x: Vec) -> Vec:
    """The probability that a normal variable is below x."""
    return 0.5 * erfc_f64(x * -(0.5**0.5))


def log_ndtr_f64(x: Vec) -> Vec:
    """log(ndtr(x)), which does not underflow."""
    t = x * 0.5**0.5
    left = E.log(0.5 * _erfcx_positive(at_least(-t, 0.0))) - t * t
    right = E.log1p_f64(-0.5 * erfc_f64(t))
    return select(x.lt(-1.0), left, right)


def ndtri_f64(p: Vec) -> Vec:
    """The x below which a normal variable is with probability p; infinite at 0 and 1, NaN beyond."""
    w = -E.log(4.0 * p * (1.0 - p))
    y = fma(p, 2.0, -1.0)
    r = 1.0 / at_least(at_most(w, 750.0), 36.0).sqrt()
    tail = chebyshev(r, ERFINV_TAIL, 1 / 27.4, 1 / 6) / r
    value = select(w.gt(37.0), tail, _erfinv_over_y(w)) * y * 2.0**0.5
    value = select(p.eq(0.0), -inf, select(p.eq(1.0), inf, value))
    return select(p.ge(0.0) & p.le(1.0), value, nan)


# Gamma --------------------------------------------------------------------------------------------------


def _series(z: Vec, coefficients: Sequence[float]) -> Vec:
    """c[0] + c[1] z + ... (Horner)."""
    result = z.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = fma(result, z, c)
    return result


def _lgamma_positive(x: Vec) -> Vec:
    """log gamma(x) for x >= 0: the argument raised above SHIFT, then Stirling's series."""
    small = x.lt(float(SHIFT))
    product = x
    for k in range(1, SHIFT):
        product = product * (x + float(k))
    z = select(small, x + float(SHIFT), x)
    r = 1.0 / z
    value = fma(z - 0.5, E.log(z), -z) + 0.5 * log(2 * pi) + r * _series(r * r, STIRLING)
    value = select(z.gt(1e300), z * (E.log(z) - 1.0), value)
    return select(small, value - E.log(select(small, product, 1.0)), value)


def _fraction(x: Vec) -> Vec:
    """x less the nearest integer."""
    return x - x.rint()


def lgamma_f64(x: Vec) -> Vec:
    """log |gamma(x)|; infinite at 0, -1, -2 ..."""
    a = x.abs()
    value = _lgamma_positive(a)
    fraction = _fraction(select(a.lt(inf), a, 0.0))
    sine = sin(fraction * pi).abs()
    mirrored = log(pi) - E.log(at_least(a, 5e-324) * sine) - value
    tiny = -E.log(a)
    value = select(x.lt(0.0), select(fraction.eq(0.0), inf, mirrored), value)
    value = select(a.lt(1e-18), tiny, value)
    value = select(x.eq(1.0) | x.eq(2.0), 0.0, value)
    return select(a.eq(inf), inf, value)


def digamma_f64(x: Vec) -> Vec:
    """The derivative of log gamma(x); infinite at 0, NaN at -1, -2 ..."""
    negative = x.lt(0.0)
    y = select(negative, 1.0 - x, x)
    total = y.like(0.0)
    for k in range(SHIFT):
        total = total - 1.0 / (y + float(k))
    small = y.lt(float(SHIFT))
    z = select(small, y + float(SHIFT), y)
    r = 1.0 / z
    square = r * r
    value = E.log(z) - fma(square, _series(square, DIGAMMA), 0.5 * r)
    value = select(small, value + total, value)
    fraction = _fraction(select(x.abs().lt(2.0**52), x, 0.0))
    cotangent = cos(fraction * pi) / sin(fraction * pi)
    mirrored = select(fraction.eq(0.0), nan, value - pi * cotangent)
    value = select(negative, mirrored, value)
    value = select(x.eq(0.0), x.like(-inf).copysign(-x), value)
    return select(x.eq(inf), inf, value)


def zeta_f64(s: Vec, q: Vec) -> Vec:
    """Hurwitz's zeta: the sum of (q + k)^-s over k >= 0, by Euler and Maclaurin; NaN for q < -4086."""
    f = s.f
    exponent = -s
    inside = q.gt(float(ZETA_TERMS - MAX_TERMS)) & q.lt(0.0)
    wanted = select(inside, float(ZETA_TERMS) - q.intrinsic("floor"), float(ZETA_TERMS))
    most = f.call("double", f"llvm.vector.reduce.fmax.v{s.lanes}f64", wanted.value)
    steps = f.op("i64", f"fptosi double {most.name} to i64")
    with f.loop(0, steps, carried=[s.like(0.0).value, q.value, wanted.value]) as loop:
        total, a, left = (Vec(f, v) for v in loop.carried)
        going = left.gt(0.0)
        total = select(going, total + E.power(a, exponent), total)
        loop.next(total.value, select(going, a + 1.0, a).value, (left - 1.0).value)
    total, a = Vec(f, loop.results[0]), Vec(f, loop.results[1])
    last = E.power(a, exponent)
    head = total
    total = total + last * a / (s - 1.0) + 0.5 * last
    factor, r, square = s * last / a, s, 1.0 / (a * a)
    for k, c in enumerate(BERNOULLI):
        total = fma(factor, c, total)
        r = (s + (2.0 * k + 1.0)) * (s + (2.0 * k + 2.0))
        factor = factor * r * square
    total = select(last.eq(0.0), head, total)
    total = select(q.eq(inf) & s.gt(1.0), 0.0, total)
    at_pole = q.le(0.0) & q.intrinsic("floor").eq(q)
    outside = (q.lt(0.0) & s.intrinsic("floor").ne(s)) | q.le(float(ZETA_TERMS - MAX_TERMS))
    total = select(outside, nan, total)
    total = select(at_pole, inf, total)
    total = select(s.eq(1.0), inf, total)
    return select(s.lt(1.0) | s.isnan() | q.isnan(), nan, total)


# Bessel functions ---------------------------------------------------------------------------------------


def _bessel(a: Vec, low: Sequence[float], high: Sequence[float], odd: bool) -> Vec:
    """e^-a I(a) for a >= 0."""
    near = chebyshev(at_most(a, 8.0), low, 0.0, 8.0)
    near = near * a if odd else near
    b = at_least(a, 8.0)
    far = chebyshev(1.0 / b, high, 0.0, 0.125) / b.sqrt()
    return select(a.gt(8.0), far, near)


def i0e_f64(x: Vec) -> Vec:
    """e^-|x| I0(x)."""
    return _bessel(x.abs(), I0E_LOW, I0E_HIGH, odd=False)


def i1e_f64(x: Vec) -> Vec:
    """e^-|x| I1(x)."""
    return _bessel(x.abs(), I1E_LOW, I1E_HIGH, odd=True).copysign(x)


def _grown(value: Vec, a: Vec) -> Vec:
    """value e^a, which overflows only where the product does."""
    half = E.exp(a * 0.5)
    return value * half * half


def i0_f64(x: Vec) -> Vec:
    """The modified Bessel function of the first kind and order 0."""
    a = x.abs()
    return select(a.eq(inf), inf, _grown(i0e_f64(a), a))


def i1_f64(x: Vec) -> Vec:
    """The modified Bessel function of the first kind and order 1."""
    a = x.abs()
    return select(a.eq(inf), inf, _grown(i1e_f64(a), a)).copysign(x)
