"""Scalar operations: within the table's bounds of numpy, mpmath and PyTorch, and the same on every target."""

import math

import mpmath
import numpy as np
import pytest
import torch
from shapevm.jit.evaluation import from_memory, to_memory
from shapevm.jit.llvm.abi import PARAMS
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.llvm.function import Function, Value
from shapevm.jit.math import reference, reference_special
from shapevm.jit.math.table import BESSEL, INTS, OPS, POLYNOMIALS, apply

from ..operations import HOST_TARGETS, SPECIAL, float_operands, floats, identical, run_op, run_op_on, ulps

# Infinities and NaNs are what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
mpmath.mp.prec = 200
SLOW = (*BESSEL, *POLYNOMIALS)  # their definitions are
ROUGH = (
    "gelu_erf",
    "gelu_erf_portable",
    "silu_exp",
    "silu_exp_portable",
    "exp_nonpositive",
)  # their errors are small beside something else than the result
APPROXIMATE = [name for name, op in OPS.items() if op.ulp != (0, 0) and name not in (*SLOW, *ROUGH)]
EXACT = [
    (name, dtype)
    for name, op in OPS.items()
    for dtype in sorted(op.dtypes)
    if op.ulp == (0, 0) or dtype in INTS
]
HALVES = [
    (name, dtype)
    for name, op in OPS.items()
    for dtype in ("f16", "bf16")
    if dtype in op.dtypes and name not in (*SLOW, *ROUGH)
]


def test_the_table_has_what_bodies_name():
    for name in [
        "add",
        "sub",
        "mul",
        "div",
        "floordiv",
        "mod",
        "fmod",
        "pow",
        "neg",
        "abs",
        "sign",
        "minimum",
        "maximum",
        "fma",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
    ]:
        assert OPS[name].name == name
    for name in [
        "and",
        "or",
        "xor",
        "not",
        "shl",
        "shr",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "exp",
        "log",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "erf",
        "round",
        "trunc",
        "isnan",
    ]:
        assert OPS[name].name == name


def wide_reference(name: str, args: list[np.ndarray]) -> np.ndarray:
    """The operation in the next wider format, not rounded."""
    if name == "erf":
        return np.array([math.erf(x) for x in args[0].tolist()], np.float64)
    operation = OPS[name].reference
    if name in BY_MATH:
        return operation(args[0].astype(np.float64))
    wider = [x.astype(np.float64 if x.dtype == np.float32 else np.longdouble) for x in args]
    if name == "pow":
        with np.errstate(all="ignore"):
            return np.power(*wider)
    return reference.unrounded(operation)(*wider)


#: Functions whose definition is in f64 only, good to a few units there.
BY_MATH = ("erfc", "erfcx", "erfinv", "ndtr", "log_ndtr", "ndtri", "lgamma")


def test_what_ieee_754_rounds_correctly_is_exact():
    names = "floor ceil round trunc sqrt reciprocal add sub mul div fma neg abs minimum maximum"
    exact = names.split(" ")
    assert {name: OPS[name].ulp for name in exact} == dict.fromkeys(exact, (0, 0))


@pytest.mark.drawn
@pytest.mark.parametrize("name", APPROXIMATE)
def test_f32_within_the_bound(name):
    args = float_operands(OPS[name].arity, "f32", 1_000_000 if OPS[name].arity == 1 else 200_000)
    error = ulps(run_op(name, "f32", *args), wide_reference(name, args))
    worst = int(np.argmax(error))
    assert error[worst] <= OPS[name].ulp[0], [float(x[worst]) for x in args]
    assert OPS[name].ulp[0] <= 2


@pytest.mark.parametrize("target", HOST_TARGETS)
def test_tanh_of_every_binade_on_each_target(target):
    x = every_binade()
    got, want = run_op_on(target, "tanh", "f32", x), np.tanh(x.astype(np.float64))
    assert ulps(got, want).max() <= OPS["tanh"].ulp[0]
    assert (abs(got) <= 1).all()


def every_binade() -> np.ndarray:
    """5,000 numbers of each sign from 2^e to 2^(e+1), e = -149 .. 127, and those next to multiples of 1/8."""
    exponents = 2.0 ** np.arange(-149, 128, dtype=np.float64)[:, None]
    a = (exponents * np.linspace(1, 2, 5_000, endpoint=False)).astype(np.float32).ravel()
    middles = np.arange(1, 100, dtype=np.float32) / 8
    a = np.concatenate([a, middles, np.nextafter(middles, 0), np.nextafter(middles, 99)])
    return np.concatenate([a, -a])


def test_powers_of_softmax():
    a = every_binade()
    x = np.concatenate([-abs(a), -np.linspace(0, 130, 500_000, dtype=np.float32)])
    got, want = run_op("exp_nonpositive", "f32", x), np.exp(x.astype(np.float64))
    normal = want >= 2.0**-125.99
    assert (abs(got - want) <= (3 + 1.3 * abs(x)) * 2.0**-24 * want)[normal].all()
    assert ((got == 0) | (got >= 2.0**-126) & (abs(got / want - 1) < 1e-5))[~normal].all()
    special = np.array([0.0, -0.0, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(run_op("exp_nonpositive", "f32", special), [1, 1, 0, np.nan])
    wide = np.concatenate([x.astype(np.float64) * 5, special])
    assert identical(run_op("exp_nonpositive", "f64", wide), run_op("exp", "f64", wide)).all()


@pytest.mark.parametrize("target", HOST_TARGETS)
def test_gelu_is_closer_than_pytorchs(target):
    x = every_binade()
    wide = torch.from_numpy(x).double()
    want = (wide * torch.special.ndtr(wide)).numpy()
    unit = np.maximum(abs(x.astype(np.float64)) * 2.0**-24, 2.0**-150)
    ours = abs(run_op_on(target, "gelu_erf", "f32", x) - want) / unit
    theirs = abs(torch.nn.functional.gelu(torch.from_numpy(x)).numpy() - want) / unit
    assert ours.max() <= 4
    assert ours.max() <= theirs.max()
    # of positive numbers the result is near the argument, so this is in units of its last place as well
    near = abs(x) <= 2
    assert ours[near].max() <= 1.3 * theirs[near].max()


@pytest.mark.parametrize("target", HOST_TARGETS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_special_values_of_gelu_are_pytorchs(target, dtype):
    x = np.array([*SPECIAL, 6.0, -6.0, 9.0, -9.0, -30.0], DTYPES[dtype].numpy)
    got = run_op_on(target, "gelu_erf", dtype, x)
    want = torch.nn.functional.gelu(torch.from_numpy(x).double()).numpy().astype(x.dtype)  # f32 loses inf
    if dtype == "f32" and "v4" not in target:  # without AVX-512 eager's zeros are positive
        want = want + 0.0
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    flat = ~np.isfinite(x) | (x == 0) | (abs(x) > 8)
    assert identical(got[flat], want[flat]).all()


@pytest.mark.parametrize("target", HOST_TARGETS)
def test_silu_is_about_as_close_as_pytorchs(target):
    x = every_binade()
    wide = x.astype(np.float64)
    want = wide / (1 + np.exp(-wide))
    unit = np.maximum(abs(wide) * 2.0**-24, 2.0**-149)
    ours = abs(run_op_on(target, "silu_exp", "f32", x) - want) / unit
    theirs = abs(torch.nn.functional.silu(torch.from_numpy(x)).numpy() - want) / unit
    assert ours.max() <= 2.1
    assert ours.max() <= 1.3 * theirs.max()
    kept = abs(x) < 20  # beside the result, errors of e^-x count as many times as x
    relative = abs(run_op_on(target, "silu_exp", "f32", x) - want)[kept] / np.maximum(abs(want[kept]), 1e-30)
    assert (relative <= (3 + 1.3 * abs(wide[kept])) * 2.0**-24).all()


@pytest.mark.parametrize("target", HOST_TARGETS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_special_values_of_silu_are_pytorchs(target, dtype):
    x = np.array([*SPECIAL, 6.0, -6.0, 30.0, -30.0, 88.0, -88.0, 1e4, -1e4, -104.5], DTYPES[dtype].numpy)
    got = run_op_on(target, "silu_exp", dtype, x)
    want = torch.nn.functional.silu(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-36)
    flat = ~np.isfinite(x) | (x == 0) | (abs(x) > 1000)
    assert identical(got[flat], want[flat]).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["gelu_erf", "silu_exp"])
def test_activations_of_halves_are_f32_rounded_once(op, dtype):
    x = np.arange(65536).astype(np.uint16).view(DTYPES[dtype].numpy)
    got, narrow = run_op(op, dtype, x), from_memory(x, dtype)
    want = to_memory(run_op(op, "f32", narrow), dtype)
    assert identical(from_memory(got, dtype), from_memory(want, dtype)).all()


@pytest.mark.parametrize("name", APPROXIMATE)
def test_f64_within_the_bound(name):
    args = float_operands(OPS[name].arity, "f64", 100_000)
    got, want = run_op(name, "f64", *args), wide_reference(name, args)
    error = ulps(got, want if name != "erf" and name not in BY_MATH else want.astype(np.longdouble))
    if name == "erf":  # the reference itself is good to one unit
        error = np.maximum(error - 1, 0)
    if name in (*BY_MATH, "zeta"):  # at the ends of f64's range their scaled terms over- and underflow
        size = abs(np.asarray(want, np.float64))
        error = np.where((size < 1e-200) | (size > 1e300), 0, error)
    if name == "zeta":  # what polygamma needs of it
        error = np.where((args[0] > 20) | (args[1] > 1e10), 0, error)
    worst = int(np.argmax(error))
    assert error[worst] <= OPS[name].ulp[1], [float(x[worst]) for x in args]


MPMATH = {
    "exp": mpmath.exp, "log": mpmath.log, "tanh": mpmath.tanh, "erf": mpmath.erf, "sin": mpmath.sin,
    "cos": mpmath.cos, "expm1": mpmath.expm1, "sqrt": mpmath.sqrt,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", MPMATH)
def test_against_mpmath(name, dtype):
    x = floats(dtype, 1200, seed=3)
    with np.errstate(all="ignore"):
        x = x[np.isfinite(x) & (abs(x) < (1e3 if name in ("exp", "expm1", "sigmoid") else INFINITY))]
    x = abs(x[x != 0]) if name in ("log", "sqrt") else x
    got = run_op(name, dtype, x)
    for value, result in zip(x.tolist(), got.tolist(), strict=True):
        want = MPMATH[name](mpmath.mpf(value))
        nearest = got.dtype.type(float(want))
        if not np.isfinite(nearest):
            assert result == nearest
            continue
        bound = max(OPS[name].ulp[dtype == "f64"], 0.5001) * float(np.spacing(abs(nearest)))
        assert abs(mpmath.mpf(result) - want) <= bound, value


SPECIAL_FUNCTIONS = {
    "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)), "digamma": mpmath.digamma, "erfc": mpmath.erfc,
    "erfinv": mpmath.erfinv, "i0": lambda x: mpmath.besseli(0, x), "i1": lambda x: mpmath.besseli(1, x),
    "ndtr": mpmath.ncdf,
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL_FUNCTIONS)
def test_special_functions_against_mpmath(name):
    """To 1e-13 of the value or of the larger arguments' rounding, also next to zeros and poles."""
    rng = np.random.default_rng(4)
    x = np.concatenate(
        [rng.uniform(-r, r, 60) for r in ((0.9999,) if name == "erfinv" else (1e-3, 2, 6, 40))]
    )
    for value, result in zip(x.tolist(), run_op(name, "f64", x).tolist(), strict=True):
        want = SPECIAL_FUNCTIONS[name](mpmath.mpf(value))
        beside = SPECIAL_FUNCTIONS[name](mpmath.mpf(value) * (1 + mpmath.mpf(2) ** -53))
        assert abs(mpmath.mpf(result) - want) <= 1e-13 * abs(want) + 1e-14 + 4 * abs(beside - want), value


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_zeta_against_mpmath(dtype):
    rng = np.random.default_rng(6)
    kind = DTYPES[dtype].numpy
    s = np.concatenate([rng.uniform(1.01, 12, 80), rng.integers(2, 9, 40)]).astype(kind)
    q = np.concatenate([rng.uniform(0.01, 60, 80), rng.uniform(-30, 0, 40)]).astype(kind)
    for si, qi, result in zip(s.tolist(), q.tolist(), run_op("zeta", dtype, s, q).tolist(), strict=True):
        raised = max(0, math.ceil(-qi))  # mpmath's own way below zero is another branch
        want = sum((mpmath.mpf(qi) + k) ** -mpmath.mpf(si) for k in range(raised))
        want += mpmath.zeta(mpmath.mpf(si), mpmath.mpf(qi) + raised)
        assert result == pytest.approx(float(want), rel=1e-6 if dtype == "f32" else 1e-11), (si, qi)


ENDS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 2.0, -2.0, 4.0, -4.0, 8.0, -8.0, 1.0, -1.0]


@pytest.mark.parametrize("name", BESSEL)
def test_bessel_functions(name):
    """To 1e-12 of the value in f64, or 1e-13 next to zeros; in f32 to the last place."""
    rng = np.random.default_rng(7)
    x = np.concatenate([ENDS, *(rng.uniform(-r, r, 60) for r in (1e-3, 1, 3, 10, 40, 100))])
    np.testing.assert_allclose(run_op(name, "f64", x), OPS[name].reference(x), 1e-12, 1e-13)
    narrow = x.astype(np.float32)
    want = OPS[name].reference(narrow.astype(np.float64))
    assert (ulps(run_op(name, "f32", narrow), want) <= OPS[name].ulp[0]).all()


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_orthogonal_polynomials(name):
    rng = np.random.default_rng(8)
    degrees = [0.0, 1.0, 2.0, -1.0, 3.7, np.inf, np.nan, 1e30, 2.0**21]
    x = np.concatenate([np.repeat(ENDS, len(degrees)), rng.uniform(-3, 3, 600)])
    n = np.concatenate([np.tile(degrees, len(ENDS)), rng.integers(-2, 30, 600)])
    np.testing.assert_allclose(run_op(name, "f64", x, n), OPS[name].reference(x, n), 1e-10, 1e-10)
    narrow = [x.astype(np.float32), n.astype(np.float32)]
    want = OPS[name].reference(*(a.astype(np.float64) for a in narrow)).astype(np.float32)
    np.testing.assert_allclose(run_op(name, "f32", *narrow), want, 1e-6, 1e-6)


INFINITY = float("inf")
# Worst cases of the reduction: numbers next to multiples of pi/2 (Muller, Elementary Functions).
NEAR_MULTIPLES = [
    6381956970095103.0 * 2.0**797,
    5.319372648326541e255,
    6411027962775774.0 * 2.0**-44,
    2.0**1023,
]
NEAR_MULTIPLES_F32 = [16367173.0 * 2.0**72, 2.0**127, 15919.5, 32768.0, 32769.0, 3.4028235e38, 1e20]


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_huge_angles_are_reduced_exactly(name, dtype):
    rng = np.random.default_rng(5)
    kind = np.float32 if dtype == "f32" else np.float64
    exponents = rng.uniform(10, 127 if dtype == "f32" else 1023, 200)
    x = np.array([*(NEAR_MULTIPLES_F32 if dtype == "f32" else NEAR_MULTIPLES), *2.0**exponents]).astype(kind)
    x = np.concatenate([x, -x])
    with mpmath.workprec(1400):
        for value, result in zip(x.tolist(), run_op(name, dtype, x).tolist(), strict=True):
            want = getattr(mpmath, name)(mpmath.mpf(value))
            unit = float(np.spacing(kind(abs(float(want)))))
            assert abs(mpmath.mpf(result) - want) <= OPS[name].ulp[dtype == "f64"] * unit, value


def operands(name: str, dtype: str) -> list[np.ndarray]:
    """Hard operands of any dtype."""
    rng, arity = np.random.default_rng(1), OPS[name].arity
    if dtype in ("f32", "f64"):
        return float_operands(arity, dtype, 40_000)
    if dtype == "bool":
        return [rng.integers(0, 2, 1000).astype(bool) for _ in range(arity)]
    limits = np.iinfo(DTYPES[dtype].numpy)
    parts = [limits.min, limits.max, 0, 1], rng.integers(-9 if limits.min else 0, 70, 20_000)
    whole = rng.integers(limits.min, limits.max, 20_000, limits.dtype, endpoint=True)
    values = np.concatenate([*(np.array(p).astype(limits.dtype) for p in parts), whole])
    return [rng.permutation(values) for _ in range(arity)]


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, d in EXACT if d not in ("f16", "bf16")])
def test_exact_operations(name, dtype):
    args = operands(name, dtype)
    if (name, dtype) == ("fma", "f64"):
        args = [x[:3000] for x in args]  # its reference is slow
    got = run_op(name, dtype, *args)
    bad = np.nonzero(~identical(got, OPS[name].reference(*args)))[0]
    assert not bad.size, [(x[bad[0]]) for x in args]


@pytest.mark.parametrize(("name", "dtype"), HALVES)
def test_halves_are_f32_rounded_once(name, dtype):
    arity = OPS[name].arity
    rng = np.random.default_rng(2)
    bits = [np.arange(65536)] if arity == 1 else [rng.integers(0, 65536, 60_000) for _ in range(arity)]
    args = [x.astype(np.uint16).view(DTYPES[dtype].numpy) for x in bits]
    values = [from_memory(x, dtype) for x in args]
    got, want = run_op(name, dtype, *args), OPS[name].reference(*values)
    if OPS[name].result != "same":
        assert (got == want).all()
        return
    wrong = ~identical(from_memory(got, dtype), from_memory(to_memory(want, dtype), dtype))
    if OPS[name].ulp == (0, 0):
        assert not wrong.any()
    assert wrong.mean() < 3e-4  # f32 on the other side of the middle between two halves
    np.testing.assert_allclose(
        from_memory(got, dtype)[wrong], want[wrong], rtol=2.0**-8 if dtype == "bf16" else 2.0**-10
    )


TORCH = {
    "mod": torch.remainder, "fmod": torch.fmod, "minimum": torch.minimum, "maximum": torch.maximum,
    "sign": torch.sign, "floordiv": torch.floor_divide, "round": torch.round, "trunc": torch.trunc,
    "abs": torch.abs, "pow": torch.pow,
    "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift, "neg": torch.neg,
    "isinf": torch.isinf,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "i32", "i16", "i8", "u8"])
@pytest.mark.parametrize("name", TORCH)
def test_signs_and_special_cases_are_pytorchs(name, dtype):
    if dtype not in OPS[name].dtypes:
        pytest.skip("not an operation of this dtype")
    args = operands(name, dtype)
    if name in ("mod", "fmod", "floordiv") and dtype in INTS:
        args[1] = np.where(args[1] == 0, 7, args[1]).astype(args[1].dtype)  # PyTorch raises
        args[1] = np.where(args[1] == np.array(-1).astype(args[1].dtype), 5, args[1])  # and traps at min / -1
    if name == "pow":  # its rounding is not PyTorch's
        args = [np.round(x % 9 - 4) if x.dtype.kind == "f" else x for x in args]
    want = TORCH[name](*(torch.from_numpy(x) for x in args)).numpy()
    got = run_op(name, dtype, *args)
    if name == "pow" and dtype in ("f32", "f64"):
        np.testing.assert_allclose(got, want, rtol=1e-6)
        return
    equal = (got == want) | ((got != got) & (want != want))
    if name in ("mod", "fmod") and dtype not in INTS:  # PyTorch's vectors lose these, its scalars do not
        with np.errstate(all="ignore"):
            equal |= np.isinf(args[0] / args[1]) & np.isnan(want)
    bad = np.nonzero(~equal)[0]
    assert not bad.size, ([x[bad[0]] for x in args], got[bad[0]], want[bad[0]])


def test_integer_division_by_zero_is_zero():
    a, zero = np.arange(-8, 9), np.zeros(17, np.int64)
    for name in ("floordiv", "mod", "fmod"):
        assert (run_op(name, "i64", a, zero) == 0).all()


def test_minimum_and_maximum_keep_a_nan_of_either_side():
    x = np.array(SPECIAL, np.float32)
    nan = np.full_like(x, np.nan)
    for name in ("minimum", "maximum"):
        assert np.isnan(run_op(name, "f32", x, nan)).all() and np.isnan(run_op(name, "f32", nan, x)).all()


@pytest.mark.parametrize(
    ("name", "dtype", "n_args", "message"),
    [
        ("nope", "f32", 1, "operation 'nope' is unknown; known are add, sub"),
        ("exp", "i32", 1, "exp: operands are i32; it takes bf16, f16, f32, f64"),
        ("add", "f32", 1, "add: 1 operands given, it takes 2"),
    ],
)
def test_misuse_is_said(name, dtype, n_args, message):
    with pytest.raises(ValueError, match=message):
        apply(Function("f", PARAMS), name, dtype, *[Value("<16 x float>", "zeroinitializer")] * n_args)


def test_zeta_goes_no_further_below_zero_than_4086():
    s, q = np.full(4, 2.0), np.array([-4085.5, -4086.25, -4086.0, -5000.5])
    want = np.array([math.pi**2 - 1 / 4085.75, np.nan, np.inf, np.nan])
    for found in (run_op("zeta", "f64", s, q), reference_special.zeta(s, q)):
        np.testing.assert_allclose(found, want, rtol=1e-7)
