"""Bessel functions J, Y, K and Airy's function of vectors, written for f64 as `jit.math.special`.

Near 0 a function is a Chebyshev series in x^2, beside ln(x) times its companion where it has a logarithm. Far
out it is the amplitude and phase of a wave (or a falling exponential) with series in 1/x^2 (or 1/x). All were
fitted at Chebyshev points in 240-bit arithmetic. Next to zeros only the absolute error is small.
"""

from __future__ import annotations

from math import inf, nan, pi

from ..llvm.vector import Vec, at_least, at_most, select
from . import exponentials as E
from .special import chebyshev, i0_f64, i1_f64
from .trigonometry import cos, sin

EDGE = 8.0  # of J and Y: near below, far beyond

# J0(x) and J1(x) / x in x^2, 0 <= x <= 8; Y less 2/pi ln(x) J (order 1: plus 2 / (pi x), all over x)
J0 = (0.15772797147489012, -0.008723442352852221, 0.2651786132033368, -0.37009499387264977,
    0.15806710233209725, -0.034893769411408884, 0.004819180069467605, -0.00046062616620627504,
    3.246032882100508e-05, -1.7619469077621507e-06, 7.608163592418782e-08, -2.679253530557673e-09,
    7.848696314479465e-11, -1.9438346867370164e-12, 4.125320595634374e-14, -7.588508125447546e-16,
    1.2218515873961411e-17)  # fmt: skip
J1 = (0.08104484632565812, -0.1489751450676521, 0.1609992623572097, -0.08268049176681791,
    0.022213639654966037, -0.003646940600769276, 0.0004050337728354822, -3.255554866857259e-05,
    1.9858774049915165e-06, -9.521984756750436e-08, 3.687133759097148e-09, -1.178026622695885e-10,
    3.160154580348003e-12, -7.221755239651773e-14, 1.4232144003513942e-15,
    -2.4441972916190464e-17)  # fmt: skip
Y0 = (-0.03314611320328494, -0.2744743055297453, 0.17903431407718265, 0.26156734625504663,
    -0.17730201278114358, 0.04719668959576339, -0.007287962479552079, 0.0007531135932577742,
    -5.632079141056987e-05, 3.206532537654801e-06, -1.44072332740187e-07, 5.248794787330516e-09,
    -1.5837552541812015e-10, 4.02633081830612e-12, -8.747341203310769e-14, 1.6434898714919468e-15,
    -2.6977881152566837e-17)  # fmt: skip
Y1 = (0.0025380132357417816, -0.01608717304766875, -0.09591204536083074, 0.08445197259652346,
    -0.028328123944594365, 0.005289897544167113, -0.0006414551451326356, 5.505982873338744e-05,
    -3.53808001868935e-06, 1.7707804556154404e-07, -7.11055004989928e-09, 2.344337905911516e-10,
    -6.4651518414115946e-12, 1.51429151205002e-13, -3.0511859694473254e-15,
    5.34668038572867e-17)  # fmt: skip

# sqrt(2 / (pi x)) (P cos(x - (2n + 1) pi/4) - Q / x sin(the same)) is Jn; in 1/x^2, x >= 8
P0 = (0.9994603493475187, -0.0005365220468132117, 3.0751847875194745e-06, -5.1705945376060975e-08,
    1.6306464635151382e-09, -7.86409137723707e-11, 5.168262387349193e-12, -4.3045788699253914e-13,
    4.3265957431549404e-14, -5.069034095935236e-15, 6.748072215733873e-16, -1.0011513723467786e-16,
    1.6305919233744186e-17)  # fmt: skip
Q0 = (-0.12444683684269607, 0.0005470815954089319, -5.9315987288485175e-06, 1.4377965798375193e-07,
    -5.817532749493056e-09, 3.376097523734991e-10, -2.565397936797308e-11, 2.404916100281365e-12,
    -2.6690625482579414e-13, 3.4041800321963686e-14, -4.87994410531204e-15, 7.729703176242605e-16,
    -1.3348852171502517e-16, 2.4865952389390515e-17, -4.952892629886516e-18)  # fmt: skip
P1 = (1.0009030408600137, 0.0008989898330859408, -3.987284300488908e-06, 6.177633960644299e-08,
    -1.8718907491063067e-09, 8.816898659582339e-11, -5.704863640395645e-12, 4.699195515230542e-13,
    -4.6842237839904895e-14, 5.452674896044717e-15, -7.221180842274018e-16, 1.0667689114335412e-16,
    -1.7312313216116335e-17)  # fmt: skip
Q1 = (0.3742222965562826, -0.0007702178839325664, 7.3108922063643636e-06, -1.676782510726674e-07,
    6.583354662120443e-09, -3.749090950541556e-10, 2.8121750359748866e-11, -2.61145253946232e-12,
    2.8774212663332235e-13, -3.649001916061838e-14, 5.206626366226707e-15, -8.215318025458595e-16,
    1.4141084390211833e-16, -2.626761589838529e-17, 5.2192649196714085e-18)  # fmt: skip

# K0(x) + ln(x/2) I0(x), and (K1(x) - ln(x/2) I1(x) - 1/x) / x: in x^2, x <= 2; K times sqrt(x) e^x, in
# 1/x, x >= 2
K0_LOW = (-0.2676636966169514, 0.3442898999246285, 0.0359799365153615, 0.001264615411446926,
    2.286212103119452e-05, 2.5347910790261494e-07, 1.904516377220209e-09, 1.0349695257633625e-11,
    4.2598161427910826e-14, 1.3744654358807508e-16)  # fmt: skip
K1_LOW = (-0.06409034516866254, -0.10916919599320105, -0.006636878452817714, -0.00016822792382067343,
    -2.389559180803608e-06, -2.1853569024549695e-08, -1.3982271326113327e-10, -6.618562752976041e-13,
    -2.4134516242987822e-15, -6.990873731242567e-18)  # fmt: skip
K0_HIGH = (1.2201515410329777, -0.0314481013119645, 0.0015698838857300533, -0.00012849549581627802,
    1.39498137188765e-05, -1.8317555227191195e-06, 2.766813639445015e-07, -4.660489897687948e-08,
    8.574034017414225e-09, -1.6975345093890614e-09, 3.5773972814003283e-10, -7.957489244477396e-11,
    1.8559491149549264e-11, -4.514597883374519e-12, 1.1403405882073441e-12, -2.9800969231481784e-13,
    8.032890775068375e-14, -2.2275133267462965e-14, 6.340076476276646e-15, -1.848593377920907e-15,
    5.5120559994043335e-16, -1.6782311257549006e-16, 5.2103917776435543e-17,
    -1.6475805939842632e-17)  # fmt: skip
K1_HIGH = (1.3603130952422213, 0.10392373657681724, -0.002857816859622779, 0.00019521551847135162,
    -1.936197974166083e-05, 2.406484947837217e-06, -3.5019606030878126e-07, 5.7410841254500495e-08,
    -1.0345762465678097e-08, 2.0150497551970347e-09, -4.1903547593419254e-10, 9.218315187605315e-11,
    -2.129967838427791e-11, 5.139639673482343e-12, -1.2891739609498229e-12, 3.348419666052243e-13,
    -8.976705182010146e-14, 2.4771544242195988e-14, -7.0198370892147685e-15, 2.038703166239861e-15,
    -6.057047270643018e-16, 1.8380935752430455e-16, -5.689462849193648e-17,
    1.7940510478863572e-17)  # fmt: skip

# Ai(x) for -4 <= x <= 2; with z = 2/3 |x|^(3/2): times 2 sqrt(pi) x^(1/4) e^z in 1/z, x >= 2;
# x <= -4: (P cos(z - pi/4) + Q / z sin(z - pi/4)) / (sqrt(pi) |x|^(1/4)) in 1/z^2
AIRY_LOW = (0.06078525685079726, 0.18996030881729123, -0.250924387032336, -0.09512014013503055,
    0.20236324198370076, -0.06418728306305249, -0.026814703186039963, 0.024051904281273857,
    -0.00413259164974895, -0.0020196817905494225, 0.0011250768750654559, -0.00011697538709676606,
    -7.125499253060682e-05, 2.8167833107042442e-05, -1.7594742389691562e-06, -1.4587201524168717e-06,
    4.388747958436033e-07, -1.4627095866197506e-08, -1.9495992841846798e-08, 4.660552774163884e-09,
    -5.106245117904234e-11, -1.8343326708789198e-10, 3.5857642041278925e-11, 2.658241327479573e-13,
    -1.2805447574198059e-12, 2.0885896604502407e-13, 4.8741837202287105e-15, -6.895080927885035e-15,
    9.51965014570017e-16, 3.5978991422145034e-17, -2.9502705833721254e-17,
    3.483989442459416e-18)  # fmt: skip
AIRY_HIGH = (0.9844053049171552, -0.014792784850104199, 0.0007327177465426715, -6.12595423417825e-05,
    6.83476697557269e-06, -9.237229735403982e-07, 1.436225340438052e-07, -2.489319422322096e-08,
    4.709793440054328e-09, -9.583863708112733e-10, 2.0745855483677591e-10, -4.737267332192277e-11,
    1.1336099808224236e-11, -2.827706782319351e-12, 7.320712095125598e-13, -1.9599793911089723e-13,
    5.4101162570683925e-14, -1.5356466802223836e-14, 4.472340393300025e-15, -1.3338094674756683e-15,
    4.066582046456231e-16, -1.265583225645289e-16, 4.015126334015871e-17,
    -1.2969972135960937e-17)  # fmt: skip
AIRY_P = (0.9993708890742778, -0.0006216836584374116, 7.181193774368645e-06, -2.316269813501758e-07,
    1.3216283888528755e-08, -1.0938736172758127e-09, 1.1794620737908535e-10, -1.5518841909929856e-11,
    2.386927411492466e-12, -4.16552889201035e-13, 8.071678110741467e-14, -1.708757321110567e-14,
    3.902945148540814e-15, -9.523976784907052e-16, 2.463281088575235e-16, -6.709077463464367e-17,
    1.9139396837177336e-17)  # fmt: skip
AIRY_Q = (0.06882170556308001, -0.0006089151840832694, 1.3174151014089972e-05, -6.014071912908298e-07,
    4.327537342298499e-08, -4.247731732954726e-09, 5.232285376834493e-10, -7.672290975115024e-11,
    1.2923809452698712e-11, -2.43852975710829e-12, 5.059047237872084e-13, -1.1378513792256329e-13,
    2.7441377308322245e-14, -7.034482112632559e-15, 1.9032114367198522e-15, -5.403040541408541e-16,
    1.6016711026570208e-16, -4.937527440323116e-17, 1.5773435797190034e-17, -5.206129580652496e-18,
    1.770678792341575e-18)  # fmt: skip


def _wave(angle: Vec, odd: bool) -> tuple[Vec, Vec]:
    """sqrt(2) times the cosine and the sine of angle - pi/4 (odd: of angle - 3 pi/4)."""
    c, s = cos(angle), sin(angle)
    return (s - c, -(s + c)) if odd else (s + c, s - c)


def _far(x: Vec, odd: bool) -> tuple[Vec, Vec]:
    """J and Y of order 0, odd: 1, for x >= 8."""
    r = 1.0 / x
    z = r * r
    high = 1.0 / EDGE**2
    p = chebyshev(z, P1 if odd else P0, 0.0, high)
    q = chebyshev(z, Q1 if odd else Q0, 0.0, high) * r
    c, s = _wave(x, odd)
    size = (r * (1.0 / pi)).sqrt()
    return size * (p * c - q * s), size * (p * s + q * c)


def _near_j(x: Vec, odd: bool) -> Vec:
    """J of order 0, odd: 1, for 0 <= x <= 8."""
    value = chebyshev(x * x, J1 if odd else J0, 0.0, EDGE**2)
    return value * x if odd else value


def _bessel_j(x: Vec, odd: bool) -> Vec:
    a = x.abs()
    near, far = _near_j(at_most(a, EDGE), odd), _far(at_least(a, EDGE), odd)[0]
    value = select(a.gt(EDGE), far, near)
    value = select(a.lt(inf), value, nan)
    return select(x.lt(0.0), -value, value) if odd else value


def bessel_j0_f64(x: Vec) -> Vec:
    """The Bessel function of the first kind and order 0; NaN at infinity."""
    return _bessel_j(x, odd=False)


def bessel_j1_f64(x: Vec) -> Vec:
    """The Bessel function of the first kind and order 1; NaN at infinity."""
    return _bessel_j(x, odd=True)


def _bessel_y(x: Vec, odd: bool) -> Vec:
    a = at_most(x, EDGE)
    near = chebyshev(a * a, Y1 if odd else Y0, 0.0, EDGE**2)
    wave = E.log(a) * _near_j(a, odd)
    near = near * a + (2 / pi) * (wave - 1.0 / a) if odd else near + (2 / pi) * wave
    value = select(x.gt(EDGE), _far(at_least(x, EDGE), odd)[1], near)
    value = select(x.gt(0.0) & x.lt(inf), value, nan)
    return select(x.eq(0.0), -inf, value)


def bessel_y0_f64(x: Vec) -> Vec:
    """The Bessel function of the second kind and order 0; -infinity at 0, NaN below it and at infinity."""
    return _bessel_y(x, odd=False)


def bessel_y1_f64(x: Vec) -> Vec:
    """The Bessel function of the second kind and order 1; -infinity at 0, NaN below it and at infinity."""
    return _bessel_y(x, odd=True)


def _bessel_k(x: Vec, odd: bool, scaled: bool) -> Vec:
    """K of order 0, odd: 1; `scaled`: times e^x."""
    a = at_most(x, 2.0)
    near = chebyshev(a * a, K1_LOW if odd else K0_LOW, 0.0, 4.0)
    logarithm = E.log(a * 0.5)
    near = near * a + logarithm * i1_f64(a) + 1.0 / a if odd else near - logarithm * i0_f64(a)
    b = at_least(x, 2.0)
    far = chebyshev(1.0 / b, K1_HIGH if odd else K0_HIGH, 0.0, 0.5) / b.sqrt()
    if scaled:
        near = near * E.exp(a)
    else:
        far = far * E.exp(-b)
    value = select(x.gt(2.0), far, near)
    value = select(x.lt(0.0), nan, select(x.eq(0.0), inf, value))
    return select(x.eq(inf), 0.0, value)


def bessel_k0_f64(x: Vec) -> Vec:
    """The modified Bessel function of the second kind and order 0; infinite at 0, NaN below it."""
    return _bessel_k(x, odd=False, scaled=False)


def bessel_k1_f64(x: Vec) -> Vec:
    """The modified Bessel function of the second kind and order 1; infinite at 0, NaN below it."""
    return _bessel_k(x, odd=True, scaled=False)


def bessel_k0e_f64(x: Vec) -> Vec:
    """e^x K0(x), which does not underflow."""
    return _bessel_k(x, odd=False, scaled=True)


def bessel_k1e_f64(x: Vec) -> Vec:
    """e^x K1(x), which does not underflow."""
    return _bessel_k(x, odd=True, scaled=True)


def airy_ai_f64(x: Vec) -> Vec:
    """Airy's function Ai; NaN at infinities, as PyTorch."""
    near = chebyshev(at_least(at_most(x, 2.0), -4.0), AIRY_LOW, -4.0, 2.0)
    a = at_most(at_least(x.abs(), 2.0), 1e100)
    z = (2 / 3) * a * a.sqrt()
    size = (1 / pi**0.5) / a.sqrt().sqrt()
    falling = chebyshev(1.0 / z, AIRY_HIGH, 0.0, 1.5 / 8**0.5) * (0.5 * size) * E.exp(-z)
    r = 1.0 / at_least(z, 16 / 3)
    p, q = (chebyshev(r * r, series, 0.0, 0.03515625) for series in (AIRY_P, AIRY_Q))
    c, s = _wave(z, odd=False)
    waving = (0.5**0.5 * size) * (p * c + q * r * s)
    value = select(x.gt(2.0), falling, select(x.lt(-4.0), waving, near))
    return select(x.abs().lt(inf), value, nan)
