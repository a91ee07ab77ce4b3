"""THE table of scalar operations that a body's Instr may name, with their vector code and their definition.

f16 and bf16 (floats in registers, see `dtypes`): the operation is done in f32 and rounded once, here in
`apply` and nowhere else. A comparison with a NaN is false, but for `ne`. Integers wrap. No result depends on
which instructions stand beside it, nor, but for those `BY_TARGET`, on the target or the number of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np

from ..llvm.conversion import round_to
from ..llvm.dtypes import DTYPES
from ..llvm.function import Function, Value
from ..llvm.vector import Vec, fma, select
from . import bessel, division, exponentials, orthogonal, philox, special, tabulated, trigonometry
from . import reference as R
from . import reference_orthogonal as P
from . import reference_special as S
from .exponentials import widened

FLOATS = frozenset(name for name, dtype in DTYPES.items() if dtype.kind == "float")
INTS = frozenset(name for name, dtype in DTYPES.items() if dtype.kind in ("int", "uint"))
BITS = INTS | {"bool"}
NUMBERS = FLOATS | INTS
ANY = NUMBERS | BITS
WIDE = frozenset({"f32", "f64"})
#: The integer of a float's width, and the float of an integer's.
BITS_OF = {"f16": "i16", "f32": "i32", "f64": "i64", "i16": "f16", "i32": "f32", "i64": "f64"}


@dataclass(frozen=True)
class MathOp:
    """One operation on `arity` operands of one dtype.

    `result`: "same" (as the operands), "bool", or "bits" (see `BITS_OF`). `dtypes`: those that it takes.
    `generate(dtype, *operands)`: its code on vectors. `reference`: the same on numpy arrays (f16 and bf16 as
    float32, rounded by the caller).
    `ulp`: its largest error for f32 and for f64, in units of the last place (0: exact or correctly rounded).
    """

    name: str
    arity: int
    result: str
    dtypes: frozenset[str]
    generate: Callable[..., Vec]
    reference: Callable[..., Any]
    ulp: tuple[float, float] = (0, 0)


def is_signed(dtype: str) -> bool:
    """Whether a dtype has negative integers."""
    return DTYPES[dtype].kind == "int"


# Generators that are not a single formula ---------------------------------------------------------------


def _compare(ordered: str, signed: str, unsigned: str) -> Callable[..., Vec]:
    def generate(dtype: str, a: Vec, b: Vec) -> Vec:
        return a.compare(ordered if a.is_float else signed if is_signed(dtype) else unsigned, b)

    return generate


def _extremum(ordered: str, signed: str, unsigned: str) -> Callable[..., Vec]:
    """Maximum or minimum: a where `a > b`, else b; a NaN operand is the result; of two zeros, b."""
    above = _compare(ordered, signed, unsigned)

    def generate(dtype: str, a: Vec, b: Vec) -> Vec:
        value = select(above(dtype, a, b), a, b)
        return select(a.isnan(), a, value) if a.is_float else value

    return generate


def _by_kind(
    on_floats: Callable[[Vec, Vec], Vec], on_ints: Callable[[Vec, Vec, bool], Vec]
) -> Callable[..., Vec]:
    def generate(dtype: str, a: Vec, b: Vec) -> Vec:
        return on_floats(a, b) if a.is_float else on_ints(a, b, is_signed(dtype))

    return generate


def _abs(dtype: str, x: Vec) -> Vec:
    if x.is_float:
        return x.abs()
    return select(x.lt(0), -x, x) if is_signed(dtype) else x


def _sign(dtype: str, x: Vec) -> Vec:
    """1, 0 or -1; 0 for a NaN, as PyTorch."""
    positive = select(x.ne(0) if not x.is_float and not is_signed(dtype) else x.gt(0), x.like(1), x.like(0))
    return select(x.lt(0), -1, positive) if x.is_float or is_signed(dtype) else positive


def _shl(dtype: str, a: Vec, n: Vec) -> Vec:
    """a << n; 0 for n < 0 or n >= width, as PyTorch."""
    fits = n.compare("ult", 8 * DTYPES[dtype].bytes)
    return select(fits, a << select(fits, n, 0), 0)


def _shr(dtype: str, a: Vec, n: Vec) -> Vec:
    """a >> n, the sign kept; all sign bits for n < 0 or n >= width, as PyTorch."""
    width = 8 * DTYPES[dtype].bytes
    fits = n.compare("ult", width)
    if is_signed(dtype):
        return a >> select(fits, n, width - 1)
    return select(fits, a.binary("lshr", select(fits, n, 0)), 0)


def _fma(dtype: str, a: Vec, b: Vec, c: Vec) -> Vec:
    return fma(a, b, c) if a.is_float else a * b + c


def _copysign(dtype: str, a: Vec, b: Vec) -> Vec:
    return a.copysign(b)


def _nextafter(dtype: str, a: Vec, b: Vec) -> Vec:
    """The neighbour of a towards b, by its bits; b where they are equal."""
    bits = a.bits()
    away = b.gt(a) ^ a.lt(0.0)
    step = select(away, bits + 1, bits - 1).floats()
    least = a.like(5e-324 if a.element == "double" else 1.401298464324817e-45).copysign(b)
    step = select(a.eq(0.0), least, step)
    step = select(a.eq(b), b, step)
    return select(a.isnan() | b.isnan(), nan, step)


def _bits(dtype: str, x: Vec) -> Vec:
    """The bits of a float as an integer, and those of an integer as a float."""
    if dtype == "i16":
        return x.convert("bitcast", "half").convert("fpext", "float")
    return x.bits() if x.is_float else x.floats()


def _half_bits(dtype: str, x: Vec) -> Vec:
    """The bits of an f16, which is an f32 in registers; of each NaN 0x7E00, as conversions change others."""
    return select(x.isnan(), 0x7E00, x.convert("fptrunc", "half").convert("bitcast", "i16"))


# The table ----------------------------------------------------------------------------------------------

#: Orthogonal polynomials at x of degree n, and Bessel's and Airy's functions.
POLYNOMIALS = (
    "chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w", "hermite_h", "hermite_he", "laguerre_l",
    "legendre_p",
)  # fmt: skip
BESSEL = (
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "bessel_k0", "bessel_k1", "bessel_k0e", "bessel_k1e",
    "airy_ai",
)  # fmt: skip


def _row(
    name: str, arity: int, dtypes: frozenset[str], generate: Callable[..., Vec], reference: Any
) -> MathOp:
    return MathOp(name, arity, "same", dtypes, generate, reference)


def _test(
    name: str, arity: int, dtypes: frozenset[str], generate: Callable[..., Vec], reference: Any
) -> MathOp:
    return MathOp(name, arity, "bool", dtypes, generate, reference)


def _function(
    name: str, generate: Callable[..., Vec], reference: Any, ulp: tuple[float, float], arity: int = 1
) -> MathOp:
    """A row for a function of floats; `generate` takes the operands alone."""
    return MathOp(name, arity, "same", FLOATS, lambda dtype, *x: generate(*x), reference, ulp)


ROWS = (
    # arithmetic
    _row("add", 2, NUMBERS, lambda dtype, a, b: a + b, R.add),
    _row("sub", 2, NUMBERS, lambda dtype, a, b: a - b, R.sub),
    _row("mul", 2, NUMBERS, lambda dtype, a, b: a * b, R.mul),
    _row("div", 2, FLOATS, lambda dtype, a, b: a / b, R.div),
    _row("fma", 3, NUMBERS, _fma, R.fma),
    _row("floordiv", 2, NUMBERS, _by_kind(division.float_floordiv, division.int_floordiv), R.floordiv),
    _row("mod", 2, NUMBERS, _by_kind(division.float_mod, division.int_mod), R.mod),
    _row("fmod", 2, NUMBERS, _by_kind(division.float_fmod, division.int_fmod), R.fmod),
    MathOp("pow", 2, "same", NUMBERS, _by_kind(exponentials.power, division.int_pow), R.power, (0.51, 1)),
    _row("neg", 1, NUMBERS, lambda dtype, x: -x, R.neg),
    _row("abs", 1, NUMBERS, _abs, R.absolute),
    _row("sign", 1, NUMBERS, _sign, R.sign),
    _row("minimum", 2, ANY, _extremum("olt", "slt", "ult"), R.minimum),
    _row("maximum", 2, ANY, _extremum("ogt", "sgt", "ugt"), R.maximum),
    # comparisons and tests
    _test("eq", 2, ANY, _compare("oeq", "eq", "eq"), R.eq),
    _test("ne", 2, ANY, _compare("une", "ne", "ne"), R.ne),
    _test("lt", 2, ANY, _compare("olt", "slt", "ult"), R.lt),
    _test("le", 2, ANY, _compare("ole", "sle", "ule"), R.le),
    _test("gt", 2, ANY, _compare("ogt", "sgt", "ugt"), R.gt),
    _test("ge", 2, ANY, _compare("oge", "sge", "uge"), R.ge),
    _test("isnan", 1, FLOATS, lambda dtype, x: x.isnan(), R.isnan),
    _test("isinf", 1, FLOATS, lambda dtype, x: x.abs().eq(inf), R.isinf),
    _test("isfinite", 1, FLOATS, lambda dtype, x: x.abs().lt(inf), R.isfinite),
    # bits; on bool they are the logical operations
    _row("and", 2, BITS, lambda dtype, a, b: a & b, R.bit_and),
    _row("or", 2, BITS, lambda dtype, a, b: a | b, R.bit_or),
    _row("xor", 2, BITS, lambda dtype, a, b: a ^ b, R.bit_xor),
    _row("not", 1, BITS, lambda dtype, x: ~x, R.bit_not),
    _row("shl", 2, INTS, _shl, R.shl),
    _row("shr", 2, INTS, _shr, R.shr),
    _row("gcd", 2, INTS, division.int_gcd, R.gcd),
    _row("philox", 2, frozenset({"i64"}), lambda dtype, a, b: philox.philox(a, b), philox.reference),
    # floats put together and taken apart
    MathOp("bits", 1, "bits", WIDE | {"i16", "i32", "i64"}, _bits, R.bits),
    MathOp("half_bits", 1, "bits", frozenset({"f16"}), _half_bits, R.half_bits),
    _row("copysign", 2, FLOATS, _copysign, R.copysign),
    _row("nextafter", 2, WIDE, _nextafter, R.nextafter),
    _row("mantissa", 1, FLOATS, lambda dtype, x: exponentials.mantissa(x), S.mantissa),
    _row("exponent", 1, FLOATS, lambda dtype, x: exponentials.exponent(x), S.exponent),
    # rounding to integers; `round`: ties to even
    _function("floor", lambda x: x.intrinsic("floor"), R.floor, (0, 0)),
    _function("ceil", lambda x: x.intrinsic("ceil"), R.ceil, (0, 0)),
    _function("round", lambda x: x.rint(), R.rint, (0, 0)),
    _function("trunc", lambda x: x.intrinsic("trunc"), R.trunc, (0, 0)),
    # roots
    _function("sqrt", lambda x: x.sqrt(), R.sqrt, (0, 0)),
    _function("rsqrt", lambda x: 1.0 / x.sqrt(), R.wide(lambda x: 1 / np.sqrt(x)), (1.5, 1.5)),
    _function("reciprocal", lambda x: 1.0 / x, R.reciprocal, (0, 0)),
    _function("hypot", widened(exponentials.hypot_f64), R.wide(np.hypot), (0.51, 1.5), 2),
    # exponentials and logarithms
    _function("exp", exponentials.exp, R.wide(np.exp), (1.0, 1.0)),
    _function("exp_nonpositive", exponentials.exp_nonpositive, R.wide(np.exp), (inf, 1.0)),
    _function("exp2", widened(exponentials.exp2_f64), R.wide(np.exp2), (0.51, 1.0)),
    _function("expm1", widened(exponentials.expm1_f64), R.wide(np.expm1), (0.51, 2.0)),
    _function("log", exponentials.log, R.wide(np.log), (1.5, 1.5)),
    _function("log2", widened(exponentials.log2_f64), R.wide(np.log2), (0.51, 0.6)),
    _function("log10", widened(exponentials.log10_f64), R.wide(np.log10), (0.51, 0.6)),
    _function("log1p", widened(exponentials.log1p_f64), R.wide(np.log1p), (0.51, 2.0)),
    _function("sigmoid", exponentials.sigmoid, R.sigmoid, (2.0, 2.0)),
    _function("tanh", tabulated.tanh, R.wide(np.tanh), (2.0, 2.0)),
    _function("sinh", widened(exponentials.sinh_f64), R.wide(np.sinh), (0.51, 2.5)),
    _function("cosh", widened(exponentials.cosh_f64), R.wide(np.cosh), (0.51, 1.5)),
    _function("asinh", widened(exponentials.asinh_f64), R.wide(np.arcsinh), (0.51, 3.0)),
    _function("acosh", widened(exponentials.acosh_f64), R.wide(np.arccosh), (0.51, 3.0)),
    _function("atanh", widened(exponentials.atanh_f64), R.wide(np.arctanh), (0.51, 3.0)),
    _function("erf", exponentials.erf, R.erf, (1.5, 1.5)),
    # the errors of gelu are small beside its argument only, as those of silu in f32
    _function("gelu_erf", tabulated.gelu, S.gelu, (inf, inf)),
    _function("silu_exp", exponentials.silu, R.silu, (inf, 2.0)),
    # those of BY_TARGET with the same bits on every target
    _function("tanh_portable", exponentials.tanh, R.wide(np.tanh), (2.0, 2.0)),
    _function("gelu_erf_portable", tabulated.gelu_portable, S.gelu, (inf, inf)),
    _function("silu_exp_portable", exponentials.silu_portable, R.silu, (inf, 2.0)),
    # trigonometry
    _function("sin", trigonometry.sin, R.wide(np.sin), (1.6, 1.6)),
    _function("cos", trigonometry.cos, R.wide(np.cos), (1.6, 1.6)),
    _function("tan", widened(trigonometry.tan_f64), R.wide(np.tan), (0.51, 3.5)),
    _function("asin", widened(trigonometry.asin_f64), R.wide(np.arcsin), (0.51, 3.0)),
    _function("acos", widened(trigonometry.acos_f64), R.wide(np.arccos), (0.51, 3.0)),
    _function("atan", widened(trigonometry.atan_f64), R.wide(np.arctan), (0.51, 2.0)),
    _function("atan2", widened(trigonometry.atan2_f64), R.wide(np.arctan2), (0.51, 2.5), 2),
    # special functions; lgamma and digamma have zeros, next to which only their absolute error is small
    _function("erfc", widened(special.erfc_f64), S.erfc, (0.51, 6)),
    _function("erfcx", widened(special.erfcx_f64), S.erfcx, (0.51, 8)),
    _function("erfinv", widened(special.erfinv_f64), S.erfinv, (0.51, 8)),
    _function("ndtr", widened(special.ndtr_f64), S.ndtr, (0.51, 8)),
    _function("log_ndtr", widened(special.log_ndtr_f64), S.log_ndtr, (0.51, 10)),
    _function("ndtri", widened(special.ndtri_f64), S.ndtri, (0.51, 16)),
    _function("lgamma", widened(special.lgamma_f64), S.lgamma, (0.7, inf)),
    _function("digamma", widened(special.digamma_f64), S.digamma, (0.51, inf)),
    _function("zeta", widened(special.zeta_f64), S.zeta, (0.55, 1e4), 2),
    _function("i0", widened(special.i0_f64), S.i0, (0.51, 10)),
    _function("i0e", widened(special.i0e_f64), S.i0e, (0.51, 8)),
    _function("i1", widened(special.i1_f64), S.i1, (0.51, 20)),
    _function("i1e", widened(special.i1e_f64), S.i1e, (0.51, 16)),
    # these have zeros, next to which only their absolute error is small
    *(
        _function(name, widened(getattr(bessel, f"{name}_f64")), getattr(P, name), (1.0, inf))
        for name in BESSEL
    ),
    *(
        _function(name, widened(getattr(orthogonal, f"{name}_f64")), getattr(P, name), (1.0, inf), 2)
        for name in POLYNOMIALS
    ),
)
OPS: dict[str, MathOp] = {row.name: row for row in ROWS}
#: Of f32 (f16, bf16) they have other bits on targets with AVX-512, where vectors of 16 lanes look them up, or
#: instructions make powers of two. By name: what has the same bits everywhere.
BY_TARGET = {
    "tanh": "tanh_portable",
    "gelu_erf": "gelu_erf_portable",
    "silu_exp": "silu_exp_portable",
}
#: Operations of several hundred instructions: separate functions, compiled once for all kernels (100 ms
#: each).
LONG = frozenset(
    {*BESSEL, "lgamma", "digamma", "zeta", "erfinv", "ndtri", "log_ndtr", "i0", "i0e", "i1", "i1e"}
)


def find(name: str, dtype: str) -> MathOp:
    """Return OPS[name]. Raises ValueError for an unknown operation and for a dtype that it does not take."""
    if name not in OPS:
        raise ValueError(f"operation {name!r} is unknown; known are {', '.join(OPS)}")
    op = OPS[name]
    if dtype not in op.dtypes:
        raise ValueError(f"{name}: operands are {dtype}; it takes {', '.join(sorted(op.dtypes))}")
    return op


def result_dtype(name: str, dtype: str) -> str:
    """Return the dtype of OPS[name] on operands of `dtype`; raises as `find`."""
    result = find(name, dtype).result
    return "bool" if result == "bool" else BITS_OF[dtype] if result == "bits" else dtype


def apply(f: Function, name: str, dtype: str, *args: Value) -> Value:
    """Emit OPS[name] on vectors of any number of lanes, operands of `dtype`; f16 and bf16 round once.

    Raises ValueError for an unknown operation, a dtype that it does not take, or a wrong number of operands.
    """
    op = find(name, dtype)
    if len(args) != op.arity:
        raise ValueError(f"{name}: {len(args)} operands given, it takes {op.arity}")
    value = _call(f, op, args) if name in LONG else op.generate(dtype, *(Vec(f, arg) for arg in args))
    return (round_to(value, dtype) if op.result == "same" else value).value


def _call(f: Function, op: MathOp, args: Sequence[Value]) -> Vec:
    """Return the result of calling a part that holds the code of an operation on floats."""
    x = Vec(f, args[0])
    dtype = "f64" if x.element == "double" else "f32"  # in registers

    def define(part: Function) -> None:
        part.result = op.generate(dtype, *(Vec(part, given) for given in part.params)).value

    return Vec(f, f.call_part(f"{op.name}_{dtype}_{x.lanes}", define, *args, key=()))
