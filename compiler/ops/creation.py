"""Sources: constant, full, iota; torch's factories of tensors; conversions of dtype."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, lcm
from typing import Any, cast

import numpy as np
import sympy

from ..ir.dims import DimExpr, equal, format_dim
from ..ir.errors import DtypeError, ShapeError, UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.promotion import DEFAULT_FLOAT, is_float
from ..ir.types import ScalarType, TensorType, Type
from . import build as B
from .conditions import add_guard
from .declare import Composite, Op, Sample
from .rules import COMPUTE, Attrs, Types, check_dtype, tensors

#: numpy's dtype of the stored elements; bf16 is stored as its bits.
STORED: dict[str, np.dtype] = COMPUTE | {"f16": np.dtype(np.float16), "bf16": np.dtype(np.uint16)}

MAX_DENOMINATOR = 1 << 20  # of an arange's start and step, so that PyTorch's arithmetic in f64 is exact

# The operators ------------------------------------------------------------------------------------


def _infer_constant(types: Types, attrs: Attrs) -> Sequence[Type]:
    tensors("constant", types, 0)
    array, dtype = attrs["array"], attrs["dtype"]
    check_dtype("constant", dtype, list(STORED))
    if array.dtype != STORED[dtype]:
        raise DtypeError(
            f"constant: the array is {array.dtype}; a {dtype} constant is stored as {STORED[dtype]}"
        )
    return (TensorType(dtype, array.shape),)


def _constant(args: Sequence[Any], attrs: Attrs) -> Any:
    array = attrs["array"]
    if attrs["dtype"] == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(COMPUTE[attrs["dtype"]], copy=False)


def _infer_full(types: Types, attrs: Attrs) -> Sequence[Type]:
    tensors("full", types, 0)
    check_dtype("full", attrs["dtype"], list(COMPUTE))
    return (TensorType(attrs["dtype"], tuple(attrs["shape"])),)


def _infer_iota(types: Types, attrs: Attrs) -> Sequence[Type]:
    tensors("iota", types, 0)
    check_dtype("iota", attrs["dtype"], [dtype for dtype in COMPUTE if dtype != "bool"])
    return (TensorType(attrs["dtype"], (attrs["length"],)),)


def _iota(args: Sequence[Any], attrs: Attrs) -> Any:
    dtype = COMPUTE[attrs["dtype"]]
    steps = np.arange(attrs["length"])
    if dtype.kind == "f":
        return steps.astype(dtype) * dtype.type(attrs["step"]) + dtype.type(attrs["start"])
    return (steps * attrs["step"] + attrs["start"]).astype(dtype)


_S0 = sympy.Symbol("s0", integer=True)
OPS: tuple[Op, ...] = (
    Op(
        "constant",
        "source",
        "constant(; array, dtype, name) -> Tensor",
        "A tensor known when compiling: `array` holds its elements (bf16 as uint16 bits), `name` is "
        "the model's for it.",
        _infer_constant,
        _constant,
        samples=(
            Sample((), {"array": np.arange(6, dtype=np.float32).reshape(2, 3), "dtype": "f32", "name": "w"}),
            Sample((), {"array": np.array(3, dtype=np.int64), "dtype": "i64", "name": "n"}),
            Sample((), {"array": np.array([[0x3F80]], dtype=np.uint16), "dtype": "bf16", "name": "one"}),
            Sample((), {"array": np.zeros((0, 2), dtype=np.bool_), "dtype": "bool", "name": "none"}),
        ),
    ),
    Op(
        "full",
        "source",
        "full(; value, dtype, shape) -> Tensor",
        "`value` (a number or a size) in every element.",
        _infer_full,
        lambda args, attrs: np.full(attrs["shape"], attrs["value"], COMPUTE[attrs["dtype"]]),
        samples=(
            Sample((), {"value": 0.5, "dtype": "f32", "shape": (2, _S0)}),
            Sample((), {"value": True, "dtype": "bool", "shape": ()}),
            Sample((), {"value": _S0, "dtype": "i64", "shape": (1,)}),
            Sample((), {"value": 7, "dtype": "u8", "shape": (0, _S0)}),
        ),
    ),
    Op(
        "iota",
        "source",
        "iota(; start, step, length, dtype) -> Tensor",
        "start, start + step, ...: `length` numbers.",
        _infer_iota,
        _iota,
        samples=(
            Sample((), {"start": 0, "step": 1, "length": _S0, "dtype": "i64"}),
            Sample((), {"start": 5, "step": -2, "length": 3, "dtype": "i32"}),
            Sample((), {"start": 0.5, "step": 0.25, "length": 4, "dtype": "f32"}),
            Sample((), {"start": _S0, "step": 1, "length": 0, "dtype": "i64"}),
        ),
    ),
)


# torch's overloads --------------------------------------------------------------------------------


def _held(b: Builder, value: Any, dtype: str) -> Any:
    """Return `value`, an integer that `dtype` must hold, as PyTorch's fills require: u8 takes negative ones
    above -256. Raises DtypeError for another constant; a run-time value is checked by a guard."""
    is_narrow = getattr(COMPUTE.get(dtype), "kind", "") in ("i", "u") and dtype != "i64"
    if not is_narrow or isinstance(value, bool | float):
        return value
    limits = np.iinfo(COMPUTE[dtype])
    low, high = int(limits.min) or -int(limits.max), int(limits.max)
    message = f"a fill: the value must be {low} to {high}, which {dtype} holds"
    if isinstance(value, int) and not low <= value <= high:
        raise DtypeError(f"{message}; it is {value}", source=b.source)
    is_number = isinstance(value, sympy.Expr) and value.is_integer
    if is_number and not (dtype == "i32" and B.is_size(b, value)):  # whose limit no size reaches
        add_guard(b, sympy.And(sympy.Ge(value, low), sympy.Le(value, high)), message)
    if isinstance(value, Value) and isinstance(value.type, ScalarType) and value.type.kind == "int":
        for sides in ((b.size(low), value), (value, b.size(high))):
            b.apply("guard", b.one("int_le", *sides), message=message)
    return value


def full(
    b: Builder, size: Sequence[DimExpr], value: B.Tensorlike, *, dtype: str | None = None, **_: Any
) -> Value:
    """The value everywhere; its own dtype unless one is given."""
    dtype = dtype or B.common_dtype(value)
    return B.full(b, _held(b, value, dtype), dtype, tuple(size))


def zeros(b: Builder, size: Sequence[DimExpr], *, dtype: str | None = None, **_: Any) -> Value:
    """Zeros (also for `empty`, whose contents are undefined)."""
    return B.full(b, 0, dtype or DEFAULT_FLOAT, tuple(size))


def empty_permuted(
    b: Builder, size: Sequence[DimExpr], order: Sequence[int], *, dtype: str | None = None, **_: Any
) -> Value:
    """Zeros; in memory the results of a program are in the order of their axes."""
    return zeros(b, size, dtype=dtype)


def new_empty_strided(
    b: Builder, x: Value, size: Sequence[DimExpr], order: Any, *, dtype: str | None = None, **_: Any
) -> Value:
    """Zeros in x's dtype and another shape."""
    return new_full(b, x, size, 0, dtype=dtype)


def ones(b: Builder, size: Sequence[DimExpr], *, dtype: str | None = None, **_: Any) -> Value:
    """Ones."""
    return B.full(b, 1, dtype or DEFAULT_FLOAT, tuple(size))


def full_like(b: Builder, x: Value, value: B.Tensorlike, *, dtype: str | None = None, **_: Any) -> Value:
    """The value in x's shape and dtype, or another."""
    return full(b, B.shape_of(x), value, dtype=dtype or B.dtype_of(x))


def zeros_like(b: Builder, x: Value, *, dtype: str | None = None, **_: Any) -> Value:
    """Zeros in x's shape and dtype, or another."""
    return full_like(b, x, 0, dtype=dtype)


def ones_like(b: Builder, x: Value, *, dtype: str | None = None, **_: Any) -> Value:
    """Ones in x's shape and dtype, or another."""
    return full_like(b, x, 1, dtype=dtype)


def new_full(
    b: Builder, x: Value, size: Sequence[DimExpr], value: B.Tensorlike, *, dtype: str | None = None, **_: Any
) -> Value:
    """The value in x's dtype and another shape."""
    return full(b, size, value, dtype=dtype or B.dtype_of(x))


def new_zeros(b: Builder, x: Value, size: Sequence[DimExpr], *, dtype: str | None = None, **_: Any) -> Value:
    """Zeros in x's dtype and another shape."""
    return new_full(b, x, size, 0, dtype=dtype)


def new_ones(b: Builder, x: Value, size: Sequence[DimExpr], *, dtype: str | None = None, **_: Any) -> Value:
    """Ones in x's dtype and another shape."""
    return new_full(b, x, size, 1, dtype=dtype)


def arange(b: Builder, end: B.Tensorlike, *, dtype: str | None = None, **_: Any) -> Value:
    """0, 1, ... below `end`."""
    return arange_step(b, 0, end, 1, dtype=dtype)


def arange_step(
    b: Builder,
    start: B.Tensorlike,
    end: B.Tensorlike,
    step: B.Tensorlike = 1,
    *,
    dtype: str | None = None,
    **_: Any,
) -> Value:
    """start, start + step, ... before `end`; i64 where all three are integers, else f32, unless a dtype is
    given. Integers are counted from integers; in f16 and bf16 each number is rounded, but not its
    operands."""
    floats = any(isinstance(x, float) or _is_float_value(x) for x in (start, end, step))
    dtype = dtype or (DEFAULT_FLOAT if floats else "i64")
    if any(isinstance(x, Value) for x in (start, end, step)):
        return _counted(b, start, step, _n_steps_at_run_time(b, start, end, step), dtype)
    if dtype == "i64":  # PyTorch counts steps of narrower integers in floats
        start, end, step = (int(x) if isinstance(x, float) else x for x in (start, end, step))
        floats = False
    if step == 0:
        raise ShapeError("arange: the step is 0; it must not be")
    length: DimExpr
    if floats and isinstance(end, sympy.Expr):
        length = _n_float_steps(b, start, end, step)
    elif floats:
        numbers = [float(cast(float, x)) for x in (start, end, step)]
        length = max(ceil((numbers[1] - numbers[0]) / numbers[2]), 0)
    else:
        length = _n_steps(b, *(cast(DimExpr, x) for x in (start, end, step)))
    return _counted(b, start, step, length, dtype)


def _counted(b: Builder, start: B.Tensorlike, step: B.Tensorlike, length: DimExpr, dtype: str) -> Value:
    """Return `length` numbers start, start + step, ..."""
    if not is_float(dtype):
        start, step = (int(x) if isinstance(x, float) else x for x in (start, step))
    wide = "f32" if dtype in ("f16", "bf16") else dtype
    if all(isinstance(x, int | float) or not isinstance(x, Value) and B.is_size(b, x) for x in (start, step)):
        return B.cast_to(b, b.one("iota", start=start, step=step, length=length, dtype=wide), dtype)
    places = b.one("iota", start=0, step=1, length=length, dtype="i64")  # kernels take sizes, which are >= 0
    made = B.pointwise(b, "add", B.pointwise(b, "mul", places, step), start)
    return B.cast_to(b, B.cast_to(b, made, wide), dtype)


def _is_float_value(x: B.Tensorlike) -> bool:
    return isinstance(x, Value) and is_float(B.common_dtype(x))


def _n_steps_at_run_time(b: Builder, start: B.Tensorlike, end: B.Tensorlike, step: B.Tensorlike) -> DimExpr:
    """Return how many numbers start, start + step, ... are before `end`, with a run-time value among them, in
    f64 as in PyTorch."""
    first, last, by = (B.tensor_of(b, x, "f64") for x in (start, end, step))
    found = b.one("ceil", B.pointwise(b, "div", B.pointwise(b, "sub", last, first), by))
    return B.size_of(b, B.pointwise(b, "maximum", found, 0.0))


def _n_float_steps(b: Builder, start: B.Number, end: DimExpr, step: B.Number) -> DimExpr:
    """Return how many numbers start, start + step, ... lie before a size `end`: a quotient of integers where
    f64 computes it without rounding."""
    if not all(
        isinstance(x, int | float) and Fraction(x).denominator <= MAX_DENOMINATOR for x in (start, step)
    ):
        return _n_steps_at_run_time(b, start, end, step)
    first, by = Fraction(cast(float, start)), Fraction(cast(float, step))
    scale = lcm(first.denominator, by.denominator)
    return _n_steps(b, int(first * scale), B.simplify(end * scale), int(by * scale))


def _n_steps(b: Builder, start: DimExpr, end: DimExpr, step: DimExpr) -> DimExpr:
    """Return how many integers start, start + step, ... lie before `end`."""
    if not isinstance(step, int | sympy.Integer):
        return _n_symbolic_steps(b, B.simplify(end - start), step)
    distance = B.simplify(end - start if step > 0 else start - end)
    length = B.divide(distance + abs(int(step)) - 1, abs(int(step)))
    low, _ = B.bounds_of(b, length)
    return length if low is not None and low >= 0 else B.simplify(sympy.Max(0, length))


def _n_symbolic_steps(b: Builder, distance: DimExpr, step: DimExpr) -> DimExpr:
    """Return how many steps of run-time size are within `distance`."""
    add_guard(b, sympy.Ge(sympy.sympify(step), 1), f"arange: the step, {format_dim(step)}, must be above 0")
    whole = B.divide(distance, step)
    if not equal(distance, whole * step):
        whole = B.divide(B.simplify(distance + step - 1), step)
    low, _ = B.bounds_of(b, whole)
    return whole if low is not None and low >= 0 else B.simplify(sympy.Max(0, whole))


def linspace(
    b: Builder,
    start: B.Tensorlike,
    end: B.Tensorlike,
    steps: DimExpr,
    *,
    dtype: str | None = None,
    **_: Any,
) -> Value:
    """`steps` numbers at equal distances from start to end; both are of the result's dtype first, and each
    step of the arithmetic is rounded to it, if it is a float."""
    dtype = dtype or DEFAULT_FLOAT
    return B.cast_to(b, _evenly(b, start, end, steps, dtype, dtype if is_float(dtype) else "f64"), dtype)


def logspace(
    b: Builder,
    start: B.Tensorlike,
    end: B.Tensorlike,
    steps: DimExpr,
    base: float = 10.0,
    *,
    dtype: str | None = None,
    **_: Any,
) -> Value:
    """base to the power of the numbers of linspace; of one alone, start is not rounded."""
    dtype = dtype or DEFAULT_FLOAT
    exponents = _evenly(b, start, end, steps, "f64" if steps == 1 else dtype, "f64")
    return B.cast_to(b, B.pointwise(b, "pow", B.full(b, B.as_float(base), "f64"), exponents), dtype)


def _evenly(
    b: Builder, start: B.Tensorlike, end: B.Tensorlike, steps: DimExpr, dtype: str, wide: str
) -> Value:
    """Return numbers from start to end, both rounded to `dtype`, in `wide`; the second half is counted from
    the end."""

    def rounded(x: B.Tensorlike) -> Value:
        number = int(x) if isinstance(x, float) and not is_float(dtype) else x
        return B.cast_to(b, B.tensor_of(b, number, dtype), wide)

    first, last = rounded(start), rounded(end)
    gaps = B.tensor_of(b, B.simplify(sympy.Max(steps - 1, 1)), wide)
    step = B.pointwise(b, "div", B.pointwise(b, "sub", last, first), gaps)
    place = B.iota(b, steps, 0, 1)
    before, after = (B.cast_to(b, n, wide) for n in (place, B.pointwise(b, "sub", steps - 1, place)))
    return B.where(
        b,
        B.pointwise(b, "lt", place, B.simplify(sympy.Max(B.divide(steps, 2), 1))),
        B.pointwise(b, "add", first, B.pointwise(b, "mul", step, before)),
        B.pointwise(b, "sub", last, B.pointwise(b, "mul", step, after)),
    )


def filled(b: Builder, x: Value, value: B.Tensorlike) -> Value:
    """value, a number or a 0-d tensor, in the shape and dtype of x."""
    dtype = B.dtype_of(x)
    return B.expand(b, B.tensor_of(b, _held(b, value, dtype), dtype), B.shape_of(x))


def scalar_tensor(b: Builder, value: B.Number, *, dtype: str | None = None, **_: Any) -> Value:
    """The value as a 0-d tensor."""
    return B.full(b, value, dtype or DEFAULT_FLOAT)


def to_dtype(b: Builder, x: Value, dtype: str | None = None, *_: Any, **__: Any) -> Value:
    """x as `dtype`."""
    return x if dtype is None else B.cast_to(b, x, dtype)


def to_copy(b: Builder, x: Value, *, dtype: str | None = None, **_: Any) -> Value:
    """x as `dtype`, if given; devices and layouts do not matter here."""
    return to_dtype(b, x, dtype)


def to_device(b: Builder, x: Value, device: Any, dtype: str, *_: Any, **__: Any) -> Value:
    """x as `dtype`."""
    return to_dtype(b, x, dtype)


def as_bits(b: Builder, x: Value, dtype: str) -> Value:
    """The bits of x as elements of `dtype`, which has the same width. Bytes as bool: 0 is False. A NaN of f16
    or bf16 may become another one. Raises UnsupportedOp for other widths."""
    own = B.dtype_of(x)
    if STORED[own].itemsize != STORED[dtype].itemsize:
        raise UnsupportedOp(
            f"the bits of {own} as {dtype}: only dtypes of equal width are read as each other"
        )
    if own == dtype:
        return x
    bits = _bits_of(b, x) if is_float(own) else x
    if not is_float(dtype):
        return B.cast_to(b, bits, dtype)
    if dtype == "bf16":
        return B.cast_to(b, b.one("bits", B.pointwise(b, "shl", B.cast_to(b, bits, "i32"), 16)), "bf16")
    return b.one("bits", bits)


def _bits_of(b: Builder, x: Value) -> Value:
    """The bits of floats as integers of their width."""
    own = B.dtype_of(x)
    if own != "bf16":
        return b.one("half_bits" if own == "f16" else "bits", x)
    wide = b.one("bits", B.cast_to(b, x, "f32"))
    return B.cast_to(b, B.pointwise(b, "shr", wide, 16), "i16")


def type_as(b: Builder, x: Value, other: Value, *_: Any, **__: Any) -> Value:
    """x in the other's dtype."""
    return B.cast_to(b, x, B.dtype_of(other))


_ENDS = ("default", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.full.default",), full),
    Composite(tuple(f"aten.linspace.{ends}" for ends in _ENDS), linspace),
    Composite(tuple(f"aten.logspace.{ends}" for ends in _ENDS), logspace),
    Composite(("aten.zeros.default", "aten.empty.memory_format"), zeros),
    Composite(("aten.empty_permuted.default", "aten.empty_strided.default"), empty_permuted),
    Composite(("aten.new_empty_strided.default",), new_empty_strided),
    Composite(("aten.ones.default",), ones),
    Composite(("aten.full_like.default",), full_like),
    Composite(("aten.zeros_like.default", "aten.empty_like.default"), zeros_like),
    Composite(("aten.ones_like.default",), ones_like),
    Composite(("aten.fill.Scalar", "aten.fill.Tensor"), filled),
    Composite(("aten.zero.default",), lambda b, x: filled(b, x, 0), "x with zeros in place of its elements"),
    Composite(("aten.new_full.default",), new_full),
    Composite(("aten.new_zeros.default", "aten.new_empty.default"), new_zeros),
    Composite(("aten.new_ones.default",), new_ones),
    Composite(("aten.arange.default",), arange),
    Composite(("aten.arange.start", "aten.arange.start_step"), arange_step),
    Composite(("aten.scalar_tensor.default", "prims.scalar_tensor.default"), scalar_tensor),
    Composite(("aten.to.dtype", "prims.convert_element_type.default"), to_dtype),
    Composite(("aten.view.dtype",), as_bits),
    Composite(("aten._to_copy.default", "aten.to.dtype_layout"), to_copy),
    Composite(("aten.to.device",), to_device),
    Composite(("aten.type_as.default", "aten.to.other"), type_as),
)
