"""tanh and gelu; of f32 by 32 polynomials, whose coefficients are looked up in registers, with AVX-512.

An instruction there permutes 32 numbers by an index in each lane, so a vector of coefficients costs no more
than a fused multiply-add, and one polynomial of degree 5 replaces a division (tanh) or two long ones (gelu).
The argument is held within the table and taken apart exactly as index / 2^halvings + r; the index is in the
low bits of argument + shifter. Where the function stays at its limit, the last polynomials are constants or
end there. Coefficients are fitted as those of `exponentials`, relative to tanh, and to the normal
distribution + 0.05.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..llvm.dtypes import vector
from ..llvm.values import Value, f32_bits
from ..llvm.vector import Vec, at_least, at_most, fma, polynomial
from . import exponentials

Rows = tuple[tuple[float, ...], ...]

# Row i: tanh(i / 4 + r) in r, i = 0 .. 31; the last up to 9.05, where tanh is 1.
TANH: Rows = (
    (0.0, 1.0, 4.4518822e-07, -0.33335948, 0.0005136903, 0.12984104),
    (0.24491866, 0.940015, -0.23021844, -0.25699186, 0.13809161, 0.074125335),
    (0.46211717, 0.7864478, -0.363425, -0.09422899, 0.1635555, -0.025252238),
    (0.63514894, 0.5965858, -0.3789207, 0.041803658, 0.0997261, -0.06339148),
    (0.7615942, 0.41997436, -0.3198526, 0.10360371, 0.028152574, -0.04622906),
    (0.84828365, 0.28041485, -0.23787342, 0.108312085, -0.012232138, -0.019339051),
    (0.90514827, 0.18070664, -0.16356727, 0.08781735, -0.024797902, -0.002783485),
    (0.94137555, 0.1138121, -0.1071402, 0.0629221, -0.023472736, 0.0036352836),
    (0.9640276, 0.07065082, -0.068109326, 0.042109195, -0.017894633, 0.004760903),
    (0.9780261, 0.043464918, -0.042509723, 0.027087443, -0.012339478, 0.003985125),
    (0.9866143, 0.026592227, -0.026236173, 0.017020982, -0.0080645885, 0.0028597475),
    (0.99185973, 0.016214287, -0.016082224, 0.010546591, -0.005112781, 0.0019065817),
    (0.9950548, 0.009866037, -0.009817196, 0.006479994, -0.003184299, 0.0012218305),
    (0.99699765, 0.005995715, -0.0059776804, 0.0039611766, -0.0019624075, 0.00076563505),
    (0.9981779, 0.0036408848, -0.0036342295, 0.0024139886, -0.0012017689, 0.00047352558),
    (0.99889445, 0.0022098923, -0.0022074361, 0.0014683703, -0.0007331642, 0.00029059648),
    (0.9993293, 0.0013409507, -0.0013400433, 0.00089216424, -0.00044625634, 0.00017750799),
    (0.99959314, 0.0008135424, -0.0008132065, 0.0005416968, -0.0002712467, 0.00010812594),
    (0.99975324, 0.0004935174, -0.0004933926, 0.00032876624, -0.0001647325, 6.575189e-05),
    (0.99985033, 0.0002993625, -0.00029931587, 0.00019948429, -9.999375e-05, 3.9943196e-05),
    (0.9999092, 0.00018158324, -0.00018156564, 0.00012102185, -6.0678136e-05, 2.424985e-05),
    (0.9999449, 0.000110139736, -0.00011013299, 7.3413954e-05, -3.6813773e-05, 1.4716773e-05),
    (0.9999666, 6.680457e-05, -6.6801935e-05, 4.4531673e-05, -2.233259e-05, 8.929293e-06),
    (0.99997973, 4.0519553e-05, -4.0518484e-05, 2.7011245e-05, -1.3546838e-05, 5.417032e-06),
    (0.9999877, 2.4576548e-05, -2.4576095e-05, 1.638367e-05, -8.217103e-06, 3.2859944e-06),
    (0.99999255, 1.4906502e-05, -1.4906299e-05, 9.93739e-06, -4.9841206e-06, 1.9932409e-06),
    (0.99999547, 9.041277e-06, -9.04118e-06, 6.0274024e-06, -3.0230924e-06, 1.2090152e-06),
    (0.99999726, 5.4838215e-06, -5.483773e-06, 3.655831e-06, -1.8336259e-06, 7.333045e-07),
    (0.99999833, 3.3261094e-06, -3.3260835e-06, 2.2173826e-06, -1.1121602e-06, 4.4479248e-07),
    (0.999999, 2.0173886e-06, -2.0173743e-06, 1.3449146e-06, -6.745633e-07, 2.6976065e-07),
    (0.9999994, 1.2236086e-06, -1.2236003e-06, 8.157335e-07, -4.091425e-07, 1.6360927e-07),
    (0.99999964, 7.425325e-07, -7.3870683e-07, 4.675664e-07, -1.8464064e-07, 3.4169226e-08),
)
TANH_HALVINGS, TANH_LIMIT, TANH_LAST = 2, 9.05, 7.8
# Row i: the normal distribution at i / 2 + r, at i / 2 - 16 + r for i >= 16; 0 and 1 from 7.5 on.
NORMAL: Rows = (
    (0.5, 0.39894223, 2.0988535e-08, -0.06648614, -4.3643104e-07, 0.009841195),
    (0.69146246, 0.35206535, -0.088009655, -0.04401017, 0.01988485, 0.004588468),
    (0.8413447, 0.24197078, -0.12098096, -4.854528e-06, 0.01997611, -0.0039206548),
    (0.9331928, 0.12951761, -0.0971396, 0.026980478, 0.006131517, -0.0058021117),
    (0.97724986, 0.05399096, -0.053993907, 0.026996186, -0.0043734903, -0.0022661944),
    (0.9937903, 0.017528288, -0.021911507, 0.0153384935, -0.0058857575, 0.0006335208),
    (0.9986501, 0.0044318447, -0.0066475403, 0.005909522, -0.0033339509, 0.0010973865),
    (0.99976736, 0.00087268365, -0.0015268003, 0.0016361836, -0.0011940683, 0.0005812205),
    (0.99996835, 0.00013383139, -0.00026747835, 0.00033445758, -0.00029772808, 0.00018496763),
    (0.9999966, 1.5984187e-05, -3.591393e-05, 5.1235987e-05, -5.380243e-05, 4.0050814e-05),
    (0.9999997, 1.4868208e-06, -3.7077564e-06, 5.936637e-06, -7.1979166e-06, 6.196905e-06),
    (1.0, 1.0771302e-07, -2.9499796e-07, 5.2346877e-07, -7.221117e-07, 7.0273273e-07),
    (1.0, 6.077538e-09, -1.8117372e-08, 3.527563e-08, -5.4784127e-08, 5.929654e-08),
    (1.0, 2.6708585e-10, -8.599154e-10, 1.8222267e-09, -3.161697e-09, 3.7614614e-09),
    (1.0, 9.141544e-12, -3.1570014e-11, 7.2360534e-11, -1.3941825e-10, 1.8013142e-10),
    (1.0,),
    (0.0,),
    (0.0,),
    (1.2812135e-12, 9.142152e-12, 3.1570833e-11, 7.233038e-11, 1.3939108e-10, 1.804653e-10),
    (4.0186847e-11, 2.670849e-10, 8.599194e-10, 1.8223045e-09, 3.1616292e-09, 3.760443e-09),
    (9.869723e-10, 6.07754e-09, 1.8117374e-08, 3.527553e-08, 5.4784113e-08, 5.9297694e-08),
    (1.899364e-08, 1.0771302e-07, 2.9499796e-07, 5.2346866e-07, 7.221116e-07, 7.0273387e-07),
    (2.8668305e-07, 1.4868208e-06, 3.7077564e-06, 5.9366375e-06, 7.197916e-06, 6.1968994e-06),
    (3.3978451e-06, 1.5984187e-05, 3.591393e-05, 5.123601e-05, 5.380242e-05, 4.00505e-05),
    (3.1671876e-05, 0.00013383137, 0.00026747835, 0.00033445825, 0.00029772788, 0.0001849591),
    (0.00023263045, 0.00087268354, 0.0015268004, 0.0016361923, 0.0011940656, 0.0005811093),
    (0.0013498989, 0.004431844, 0.0066475407, 0.005909546, 0.0033339397, 0.0010970786),
    (0.0062096613, 0.017528296, 0.021911504, 0.015338067, 0.005885832, 0.0006389972),
    (0.022750122, 0.053990997, 0.053993866, 0.02699361, 0.0043741353, -0.0022331038),
    (0.066807196, 0.12951764, 0.09713955, 0.026978573, -0.006130721, -0.0057774913),
    (0.15865527, 0.24197067, 0.120981015, 2.0670714e-06, -0.019976879, -0.0040093306),
    (0.30853757, 0.3520652, 0.08800974, -0.043999422, -0.019886157, 0.004450822),
)
NORMAL_HALVINGS, NORMAL_LIMIT = 1, 7.5
# Without such lookups: (the normal distribution at x - 1/2) / x in x^2 - 10, |x| <= 5.16, where x times it
# becomes 1/2.
NORMAL_EVEN = (0.15786634385585785, -0.00775893172249198, 0.0005483360146172345, -4.009106123703532e-05,
              2.8064114303560928e-06, -1.827607718496438e-07, 1.0977060149741646e-08, -5.988449736094026e-10,
              2.9003755994128078e-11, -1.3190043675337382e-12, 6.421138577447638e-14, -2.941807047461098e-15,
              8.876504931808592e-17, -1.1733976783225568e-18)  # fmt: skip
EVEN_LIMIT, EVEN_CENTRE = 5.155569553375244, 10.0


def tanh(x: Vec) -> Vec:
    """Hyperbolic tangent."""
    if not x.can_scale:
        return exponentials.tanh(x)
    a = x.abs()
    shifted = at_most(a, TANH_LAST) + _shifter(TANH_HALVINGS)
    r = at_most(a, TANH_LIMIT) - (shifted - _shifter(TANH_HALVINGS))
    return _piecewise(TANH, shifted.bits(), r).copysign(x)


def gelu(x: Vec) -> Vec:
    """x times the normal distribution at x.

    Its error is small beside x, not beside the result: so is that of x / 2 (1 + erf(x / sqrt(2))). A zero is
    positive in f32 without AVX-512, else it has x's sign: so it is with eager on machines of each kind.
    """
    if not x.can_scale:
        return gelu_portable(x)
    a = _within(x, NORMAL_LIMIT)
    index = (a + _shifter(NORMAL_HALVINGS)).bits()
    return x * _piecewise(NORMAL, index, _from_nearest(a, NORMAL_HALVINGS))


def gelu_portable(x: Vec) -> Vec:
    """`gelu` without lookups."""
    if x.element == "double":
        return x * 0.5 * (exponentials.erf(x * 0.5**0.5) + 1.0)
    a = at_least(at_most(x, EVEN_LIMIT), -EVEN_LIMIT)
    return fma(x, a * polynomial(fma(a, a, -EVEN_CENTRE), NORMAL_EVEN) + 0.5, 0.0)


def _piecewise(table: Rows, index: Vec, r: Vec) -> Vec:
    """Return the polynomial in `r` of the row of `table` that the low five bits of `index` name."""
    degree = max(map(len, table)) - 1
    columns = [[row[k] if k < len(row) else 0.0 for row in table] for k in range(degree + 1)]
    result = _looked_up(columns[degree], index)
    for column in reversed(columns[:degree]):
        result = fma(r, result, _looked_up(column, index))
    return result


def _looked_up(table: Sequence[float], index: Vec) -> Vec:
    """Return the number of 32 in `table` that the low five bits of each of 16 integers name."""
    kind = vector("float", index.lanes)
    low, high = (
        Value(kind, f"<{', '.join(f'float {f32_bits(x)}' for x in half)}>")
        for half in (table[: index.lanes], table[index.lanes :])
    )
    return Vec(index.f, index.f.call(kind, "llvm.x86.avx512.vpermi2var.ps.512", low, index.value, high))


def _shifter(halvings: int) -> float:
    """Return the number whose addition rounds a value to multiples of 2^-halvings."""
    return 1.5 * 2.0 ** (23 - halvings)


def _within(x: Vec, bound: float) -> Vec:
    """Return the number from -bound to bound that is nearest to x; of a NaN, either bound."""
    return x.avx512("range", x.value, x.like(bound).value, Value("i32", "2"))


def _from_nearest(x: Vec, halvings: int) -> Vec:
    """Return x minus the nearest multiple of 2^-halvings (ties to even), which is exact."""
    return x.avx512("reduce", x.value, Value("i32", str(halvings << 4 | 8)))
