"""Pointwise operators: the rows of `jit.math.table.OPS` under the same names, `cast` and `where`; torch's
overloads of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import sympy

from ...jit.evaluation import divisor
from ...jit.math import table as scalar_math
from ..ir.errors import DtypeError
from ..ir.graph import Builder, Value
from ..ir.promotion import is_float, to_float
from ..ir.types import INT_DTYPES, TensorType, Type
from . import build as B
from .declare import Composite, Infer, Op, Sample
from .gather import counting
from .rules import COMPUTE, Attrs, Types, check_dtype, same_dtype, same_shape, tensors

# The operators ------------------------------------------------------------------------------------


def _infer(row: scalar_math.MathOp) -> Infer:
    def infer(types: Types, attrs: Attrs) -> Sequence[Type]:
        args = tensors(row.name, types, row.arity)
        dtype = same_dtype(row.name, args)
        check_dtype(row.name, dtype, sorted(row.dtypes))
        return (TensorType(scalar_math.result_dtype(row.name, dtype), same_shape(row.name, args)),)

    return infer


def _reference(row: scalar_math.MathOp) -> Callable[[Sequence[Any], Attrs], Any]:
    return lambda args, attrs: row.reference(*args)


_FILLS = {"acosh": "above_one", "atanh": "unit", "asin": "unit", "acos": "unit", "pow": "positive"}
_FILLS |= dict.fromkeys(("lgamma", "digamma", "zeta"), "positive") | {"erfinv": "unit"}
_FILLS |= dict.fromkeys(scalar_math.BESSEL, "positive")
_FILLS |= dict.fromkeys(("log", "log2", "log10", "log1p", "sqrt", "rsqrt"), "positive")
_SHAPES = ("[2, s0]", "[]", "[1, 3]", "[0, 4]", "[s0, s1]")


def _samples(row: scalar_math.MathOp) -> tuple[Sample, ...]:
    dtypes = [dtype for dtype in ("f32", "i64", "bool", "f16", "u8") if dtype in row.dtypes]
    pairs = [(dtypes[0], shape) for shape in _SHAPES] + [(dtype, _SHAPES[0]) for dtype in dtypes[1:]]
    fill = _FILLS.get(row.name, "normal")
    return tuple(
        Sample((dtype + shape,) * row.arity, {}, fill if is_float(dtype) else "positive")
        for dtype, shape in pairs
    )


def _row_op(row: scalar_math.MathOp) -> Op:
    names = ("x", "y", "z")[: row.arity]
    schema = f"{row.name}({', '.join(f'Tensor {name}' for name in names)}) -> Tensor"
    doc = f"{row.name} of every element; the arguments have one shape and one dtype."
    return Op(
        row.name,
        "pointwise",
        schema,
        doc,
        _infer(row),
        _reference(row),
        scalar=row.name,
        samples=_samples(row),
    )


def _infer_cast(types: Types, attrs: Attrs) -> Sequence[Type]:
    (x,) = tensors("cast", types, 1)
    check_dtype("cast", attrs["dtype"], list(COMPUTE))
    return (TensorType(attrs["dtype"], x.shape),)


def _cast(args: Sequence[Any], attrs: Attrs) -> Any:
    with np.errstate(all="ignore"):
        if attrs["dtype"] in INT_DTYPES and args[0].dtype.kind == "f":
            return args[0].astype(np.int64).astype(COMPUTE[attrs["dtype"]])
        return args[0].astype(COMPUTE[attrs["dtype"]])


def _infer_where(types: Types, attrs: Attrs) -> Sequence[Type]:
    condition, x, y = tensors("where", types, 3)
    check_dtype("where", condition.dtype, ["bool"])
    return (TensorType(same_dtype("where", [x, y]), same_shape("where", [condition, x, y])),)


def _infer_divisor(types: Types, attrs: Attrs) -> Sequence[Type]:
    (x,) = tensors("divisor", types, 1)
    check_dtype("divisor", x.dtype, sorted(scalar_math.INTS))
    return (x,)


CAST = Op(
    "cast",
    "pointwise",
    "cast(Tensor x; dtype) -> Tensor",
    "x as `dtype`: floats are truncated towards zero to integers, anything but zero is True.",
    _infer_cast,
    _cast,
    scalar="cast",
    samples=(
        Sample(("f32[2, s0]",), {"dtype": "i64"}),
        Sample(("i64[3]",), {"dtype": "f32"}),
        Sample(("f32[]",), {"dtype": "bool"}),
        Sample(("bool[0, s0]",), {"dtype": "f32"}),
        Sample(("f32[1, s0]",), {"dtype": "bf16"}),
    ),
)
WHERE = Op(
    "where",
    "pointwise",
    "where(Tensor condition, Tensor x, Tensor y) -> Tensor",
    "x where the condition (bool) holds, else y.",
    _infer_where,
    lambda args, attrs: np.where(*args),
    scalar="select",
    samples=(
        Sample(("bool[2, s0]", "f32[2, s0]", "f32[2, s0]"), {}),
        Sample(("bool[]", "i64[]", "i64[]"), {}, "positive"),
        Sample(("bool[0, s0]", "f32[0, s0]", "f32[0, s0]"), {}),
        Sample(("bool[1]", "f32[1]", "f32[1]"), {}),
    ),
)
DIVISOR = Op(
    "divisor",
    "pointwise",
    "divisor(Tensor x) -> Tensor",
    "x, integers by which others are divided: 0 raises DivisionByZero.",
    _infer_divisor,
    lambda args, attrs: divisor(*args),
    scalar="divisor",
    samples=(
        Sample(("i64[2, s0]",), {}, "positive"),
        Sample(("u8[]",), {}, "positive"),
        Sample(("i32[0, s0]",), {}, "positive"),
    ),
)
OPS: tuple[Op, ...] = (*map(_row_op, scalar_math.ROWS), CAST, WHERE, DIVISOR)


# torch's overloads: (names, op), one table per dtype rule ------------------------------------------

# Float functions: integers and bool become the default float first.
_FLOAT_FUNCTIONS = (
    "sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid",
    "tanh", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "sin", "cos", "tan", "asin", "acos", "atan",
)  # fmt: skip
# Rounding: integers are unchanged.
_ROUNDINGS = ("floor", "ceil", "round", "trunc")
# Two operands in their common dtype.
_PROMOTING = {
    "maximum.default": "maximum",
    "minimum.default": "minimum",
    "max.other": "maximum",
    "min.other": "minimum",
    "bitwise_left_shift.Tensor": "shl",
    "bitwise_right_shift.Tensor": "shr",
    "bitwise_left_shift.Tensor_Scalar": "shl",
    "bitwise_right_shift.Tensor_Scalar": "shr",
    "bitwise_left_shift.Scalar_Tensor": "shl",
    "bitwise_right_shift.Scalar_Tensor": "shr",
    "__lshift__.Scalar": "shl",
    "__rshift__.Scalar": "shr",
    "__lshift__.Tensor": "shl",
    "__rshift__.Tensor": "shr",
    **{f"{name}.{kind}": name for name in ("eq", "ne", "lt", "le", "gt") for kind in ("Tensor", "Scalar")},
    **{
        f"bitwise_{name}.{kind}": name
        for name in ("or", "xor")
        for kind in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    **{f"__{name}__.{kind}": name for name in ("or", "xor") for kind in ("Tensor", "Scalar")},
}
# Quotients and remainders: in the common dtype, integers not by 0.
_DIVIDING = {
    "floor_divide.default": "floordiv",
    "floor_divide.Scalar": "floordiv",
    "remainder.Tensor": "mod",
    "remainder.Scalar": "mod",
    "remainder.Scalar_Tensor": "mod",
    "fmod.Tensor": "fmod",
    "fmod.Scalar": "fmod",
}
_LOGICAL = {"logical_and.default": "and", "logical_or.default": "or", "logical_xor.default": "xor"}
_TESTS = ("isnan", "isinf", "isfinite")


def _float_function(op: str) -> Composite:
    def expand(b: Builder, x: Value) -> Value:
        return b.one(op, B.cast_to(b, x, to_float(B.dtype_of(x))))

    return Composite((f"aten.{op}.default",), expand, f"{op}; integers and bool become f32 first")


def _rounding(op: str) -> Composite:
    def expand(b: Builder, x: Value) -> Value:
        return b.one(op, x) if is_float(B.dtype_of(x)) else x

    return Composite((f"aten.{op}.default",), expand, f"{op}; integers stay as they are")


def _promoting(overload: str, op: str) -> Composite:
    def expand(b: Builder, x: B.Tensorlike, y: B.Tensorlike) -> Value:
        return B.pointwise(b, op, x, y)

    return Composite((f"aten.{overload}",), expand, f"{op} in the common dtype")


def _dividing(overload: str, op: str) -> Composite:
    def expand(b: Builder, x: B.Tensorlike, y: B.Tensorlike) -> Value:
        return _divided(b, op, x, y)

    return Composite((f"aten.{overload}",), expand, f"{op} in the common dtype; an integer by no 0")


def _divided(b: Builder, op: str, x: B.Tensorlike, y: B.Tensorlike) -> Value:
    """x divided by y in their common dtype. Division of any integer by 0 raises DivisionByZero: y is checked
    in the result's shape."""
    dtype = B.common_dtype(x, y)
    if is_float(dtype) or _is_never_zero(b, y):
        return B.pointwise(b, op, x, y)
    x, y = B.broadcast(b, op, [B.tensor_of(b, each, dtype) for each in (x, y)])
    return b.one(op, x, b.one("divisor", y))


def _is_never_zero(b: Builder, y: B.Tensorlike) -> bool:
    """Whether a divisor is known to have no element 0."""
    known = B.uniform(y) if isinstance(y, Value) else y
    if known is not None:
        low, high = B.bounds_of(b, known) if isinstance(known, sympy.Expr) else (known, known)
        return (low is not None and low > 0) or (high is not None and high < 0)
    assert isinstance(y, Value)
    return y.node is not None and y.node.op == "constant" and bool(np.all(y.node.attrs["array"]))


def _logical(overload: str, op: str) -> Composite:
    def expand(b: Builder, x: Value, y: Value) -> Value:
        return B.pointwise(b, op, x, y, dtype="bool")

    return Composite((f"aten.{overload}",), expand, f"{op} of x != 0 and y != 0")


def _test(op: str) -> Composite:
    def expand(b: Builder, x: Value) -> Value:
        if is_float(B.dtype_of(x)):
            return b.one(op, x)
        return B.full(b, op == "isfinite", "bool", B.shape_of(x))

    return Composite((f"aten.{op}.default",), expand, f"{op}; integers are always finite")


# Arithmetic with special rules ----------------------------------------------------------------------


def add(b: Builder, x: B.Tensorlike, y: B.Tensorlike, alpha: B.Number = 1) -> Value:
    """x + alpha * y; `or` and `and` on bool."""
    dtype = B.common_dtype(x, y)
    if dtype == "bool":
        return B.pointwise(b, "or", x, y if alpha else B.pointwise(b, "and", y, False))
    if isinstance(x, Value) and B.dtype_of(x) == dtype and not is_float(dtype) and _is_number(y, 0):
        return x
    return B.pointwise(b, "add", x, _scaled(b, y, alpha, dtype), dtype=dtype)


def sub(b: Builder, x: B.Tensorlike, y: B.Tensorlike, alpha: B.Number = 1) -> Value:
    """x - alpha * y. Raises DtypeError for bool, as PyTorch."""
    dtype = B.common_dtype(x, y)
    if dtype == "bool":
        raise DtypeError("sub: the dtype is bool; use logical_xor, or cast to an integer dtype first")
    return B.pointwise(b, "sub", x, _scaled(b, y, alpha, dtype), dtype=dtype)


def _scaled(b: Builder, y: B.Tensorlike, alpha: B.Number, dtype: str) -> B.Tensorlike:
    return y if alpha == 1 else B.pointwise(b, "mul", y, alpha, dtype=dtype)


def rsub(b: Builder, x: B.Tensorlike, y: B.Tensorlike, alpha: B.Number = 1) -> Value:
    """y - alpha * x."""
    return sub(b, y, x, alpha=alpha)


def _is_number(y: B.Tensorlike, value: int) -> bool:
    return isinstance(y, int) and y == value


def mul(b: Builder, x: B.Tensorlike, y: B.Tensorlike) -> Value:
    """x * y; `and` on bool."""
    return B.pointwise(b, "and" if B.common_dtype(x, y) == "bool" else "mul", x, y)


def div(b: Builder, x: B.Tensorlike, y: B.Tensorlike, *, rounding_mode: str | None = None) -> Value:
    """x / y in floats; "floor" and "trunc" keep the common dtype and round the quotient to an integer."""
    dtype = B.common_dtype(x, y)
    if rounding_mode is None:
        return B.pointwise(b, "div", x, y, dtype=to_float(dtype))
    if rounding_mode == "floor":
        return _divided(b, "floordiv", x, y)
    if is_float(dtype):
        wide = "f32" if dtype in ("f16", "bf16") else dtype
        return B.cast_to(b, b.one("trunc", B.pointwise(b, "div", x, y, dtype=wide)), dtype)
    remainder = _divided(b, "fmod", x, y)
    return B.pointwise(b, "floordiv", B.pointwise(b, "sub", x, remainder), y)


def power(b: Builder, x: B.Tensorlike, y: B.Tensorlike) -> Value:
    """x ** y; constant exponents that PyTorch computes without pow are treated likewise."""
    if isinstance(x, Value) and isinstance(y, int | float):
        easy = _EASY_POWERS.get(float(y))
        if easy is not None and is_float(B.dtype_of(x)):
            return easy(b, x)
    return B.pointwise(b, "pow", x, y)


_EASY_POWERS: dict[float, Callable[[Builder, Value], Value]] = {
    0.5: lambda b, x: b.one("sqrt", x),
    1.0: lambda b, x: x,
    2.0: lambda b, x: b.one("mul", x, x),
    3.0: lambda b, x: B.in_f32(b, lambda v: b.one("mul", b.one("mul", v, v), v), x),
    -0.5: lambda b, x: b.one("rsqrt", x),
    -1.0: lambda b, x: b.one("reciprocal", x),
    -2.0: lambda b, x: B.in_f32(b, lambda v: b.one("reciprocal", b.one("mul", v, v)), x),
}


def _rounded_once(b: Builder, compute: Callable[..., Value], *args: Value) -> Value:
    """Return compute(*args), in f32 if the common dtype is f16 or bf16."""
    dtype = B.common_dtype(*args)
    return B.in_f32(b, compute, *(B.cast_to(b, x, dtype) if is_float(dtype) else x for x in args))


def atan2(b: Builder, x: Value, y: Value) -> Value:
    """The angle of the point (y, x)."""
    return B.pointwise(b, "atan2", x, y, dtype=to_float(B.common_dtype(x, y)))


def addcmul(b: Builder, x: Value, t1: Value, t2: Value, *, value: B.Number = 1) -> Value:
    """x + value * t1 * t2; f16 and bf16 are rounded once."""

    def compute(x: Value, t1: Value, t2: Value) -> Value:
        product = mul(b, t1, t2)
        return add(b, x, product if value == 1 else mul(b, product, value))

    return _rounded_once(b, compute, x, t1, t2)


def addcdiv(b: Builder, x: Value, t1: Value, t2: Value, *, value: B.Number = 1) -> Value:
    """x + value * t1 / t2; f16 and bf16 are rounded once."""

    def compute(x: Value, t1: Value, t2: Value) -> Value:
        return add(b, x, div(b, t1 if value == 1 else mul(b, t1, value), t2))

    return _rounded_once(b, compute, x, t1, t2)


def neg(b: Builder, x: Value) -> Value:
    """-x. Raises DtypeError for bool, as PyTorch."""
    if B.dtype_of(x) == "bool":
        raise DtypeError("neg: the dtype is bool; use logical_not, or cast to an integer dtype first")
    return b.one("neg", x)


def sign(b: Builder, x: Value) -> Value:
    """-1, 0 or 1."""
    return x if B.dtype_of(x) == "bool" else b.one("sign", x)


def at_least(b: Builder, x: B.Tensorlike, y: B.Tensorlike) -> Value:
    """x >= y; constant True if x is an arange that starts at y or above (position masks)."""
    if isinstance(x, Value) and isinstance(y, int):
        found = counting(x)
        low, _ = (None, None) if found is None else B.bounds_of(b, found.start)
        if low is not None and low >= y:
            return B.full(b, True, "bool", B.shape_of(x))
    return B.pointwise(b, "ge", x, y)


def conjunction(b: Builder, x: B.Tensorlike, y: B.Tensorlike) -> Value:
    """x & y; the other one if one is True everywhere."""
    for known, other in ((x, y), (y, x)):
        if (
            isinstance(known, Value)
            and isinstance(other, Value)
            and not B.is_run_time_number(other)
            and B.dtype_of(other) == "bool"
            and B.uniform(known) is True
        ):
            return B.expand(b, other, B.broadcast_shape("and", [B.shape_of(known), B.shape_of(other)]))
    return B.pointwise(b, "and", x, y)


def logical_not(b: Builder, x: Value) -> Value:
    """x == 0."""
    return b.one("not", B.cast_to(b, x, "bool"))


def square(b: Builder, x: Value) -> Value:
    """x * x; an i64 of a bool."""
    if B.dtype_of(x) == "bool":
        return B.cast_to(b, x, "i64")
    return mul(b, x, x)


def lerp(b: Builder, x: Value, end: Value, weight: B.Tensorlike) -> Value:
    """x + weight * (end - x), from the nearer end (PyTorch's formula); f16 and bf16 are rounded once."""
    if isinstance(weight, Value) and isinstance(weight.type, TensorType):
        return _rounded_once(b, lambda x, end, weight: _lerp(b, x, end, weight), x, end, weight)
    return _rounded_once(b, lambda x, end: _lerp(b, x, end, weight), x, end)


def _lerp(b: Builder, x: Value, end: Value, weight: B.Tensorlike) -> Value:
    distance = sub(b, end, x)
    near, far = add(b, x, mul(b, distance, weight)), sub(b, end, mul(b, distance, sub(b, 1, weight)))
    if not B.is_run_time(weight):
        return near if abs(cast(float, weight)) < 0.5 else far
    small = B.pointwise(b, "lt", b.one("abs", B.tensor_of(b, weight, B.dtype_of(x))), 0.5)
    return B.where(b, small, near, far)


# Choices ------------------------------------------------------------------------------------------


def clamp(b: Builder, x: Value, low: B.Tensorlike | None = None, high: B.Tensorlike | None = None) -> Value:
    """x limited to low .. high (either may be None); NaN and a zero that equals a limit are unchanged."""
    limits = [limit for limit in (low, high) if limit is not None]
    dtype = B.common_dtype(x, *limits)
    x = B.cast_to(b, x, dtype)
    if low is not None:
        x = B.pointwise(b, "maximum", low, x, dtype=dtype)
    return x if high is None else B.pointwise(b, "minimum", high, x, dtype=dtype)


def clamp_max(b: Builder, x: Value, high: B.Tensorlike) -> Value:
    """x limited from above."""
    return clamp(b, x, None, high)


def hardtanh(b: Builder, x: Value, low: B.Number = -1, high: B.Number = 1) -> Value:
    """x limited to low .. high, which are of x's dtype."""
    low, high = (B.convert_number(limit, B.dtype_of(x)) for limit in (low, high))
    return clamp(b, x, low, high)


def where(b: Builder, condition: Value, x: B.Tensorlike, y: B.Tensorlike) -> Value:
    """x where the condition holds, else y."""
    return B.where(b, condition, x, y)


def masked_fill(b: Builder, x: Value, mask: Value, value: B.Tensorlike) -> Value:
    """The value (as x's dtype) where the mask holds, else x."""
    dtype = B.dtype_of(x)
    return b.one("where", *B.broadcast(b, "masked_fill", [mask, B.tensor_of(b, value, dtype), x]))


COMPOSITES: tuple[Composite, ...] = (
    *map(_float_function, _FLOAT_FUNCTIONS),
    *map(_rounding, _ROUNDINGS),
    *(_promoting(overload, op) for overload, op in _PROMOTING.items()),
    *(_dividing(overload, op) for overload, op in _DIVIDING.items()),
    *(_logical(overload, op) for overload, op in _LOGICAL.items()),
    *map(_test, _TESTS),
    Composite(("aten.add.Tensor", "aten.add.Scalar"), add),
    Composite(("aten.sub.Tensor", "aten.sub.Scalar"), sub),
    Composite(("aten.rsub.Tensor", "aten.rsub.Scalar"), rsub),
    Composite(("aten.mul.Tensor", "aten.mul.Scalar"), mul),
    Composite(("aten.div.Tensor", "aten.div.Scalar", "aten.div.Tensor_mode", "aten.div.Scalar_mode"), div),
    Composite(("aten.true_divide.Tensor",), div),
    Composite(("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar"), power),
    Composite(("aten.ge.Tensor", "aten.ge.Scalar"), at_least),
    Composite(
        (
            "aten.bitwise_and.Tensor",
            "aten.bitwise_and.Scalar",
            "aten.bitwise_and.Scalar_Tensor",
            "aten.__and__.Tensor",
            "aten.__and__.Scalar",
        ),
        conjunction,
    ),
    Composite(("aten.atan2.default",), atan2),
    Composite(("aten.addcmul.default",), addcmul),
    Composite(("aten.addcdiv.default",), addcdiv),
    Composite(("aten.neg.default",), neg),
    Composite(("aten.abs.default",), lambda b, x: b.one("abs", x), "the absolute value"),
    Composite(("aten.sign.default", "aten.sgn.default"), sign),
    Composite(("aten.square.default",), square),
    Composite(("aten.bitwise_not.default",), lambda b, x: b.one("not", x), "all bits changed"),
    Composite(("aten.logical_not.default",), logical_not),
    Composite(("aten.lerp.Scalar", "aten.lerp.Tensor"), lerp),
    Composite(
        ("aten.clamp.default", "aten.clamp.Tensor", "aten.clamp_min.default", "aten.clamp_min.Tensor"), clamp
    ),
    Composite(("aten.hardtanh.default",), hardtanh),
    Composite(("aten.clamp_max.default", "aten.clamp_max.Tensor"), clamp_max),
    Composite(
        ("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar"), where
    ),
    Composite(("aten.masked_fill.Scalar", "aten.masked_fill.Tensor"), masked_fill),
)
