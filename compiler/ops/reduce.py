"""Reductions over the last axis, which stays with size 1, and torch's reductions over any axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..ir.errors import ShapeError
from ..ir.graph import Builder, Node, Value
from ..ir.promotion import to_float, to_sum
from ..ir.types import FLOAT_DTYPES, INT_DTYPES, TensorType, Type
from . import build as B
from .conditions import require_elements
from .declare import Composite, Infer, Op, Sample
from .rules import Attrs, Types, check_axis, check_dtype, tensors

UNROUNDED = ("reduce_total", "reduce_squares")  # sums whose result is f64
_NUMBERS = (*FLOAT_DTYPES, *INT_DTYPES)
_ANY = (*_NUMBERS, "bool")

# The operators ------------------------------------------------------------------------------------


def _infer(op: str, allowed: Sequence[str]) -> Infer:
    def infer(types: Types, attrs: Attrs) -> Sequence[Type]:
        (x,) = tensors(op, types, 1)
        check_dtype(op, x.dtype, allowed)
        check_axis(op, x.rank - 1, x.rank)
        if x.shape[-1] == 0 and op in ("reduce_max", "reduce_min"):
            raise ShapeError(f"{op}: the last axis has size 0; it needs at least 1 element")
        return (TensorType("f64" if op in UNROUNDED else x.dtype, (*x.shape[:-1], 1)),)

    return infer


def _op(
    name: str,
    doc: str,
    allowed: Sequence[str],
    function: Callable[..., Any],
    empty: bool = True,
    scalar: str = "",
) -> Op:
    dtype = "bool" if allowed == ("bool",) else "f32"
    samples = [Sample((f"{dtype}{shape}",), {}) for shape in ("[2, s0]", "[1]", "[0, 3]", "[2, s0, 17]")]
    samples += [Sample(("i64[3, 4]",), {}, "positive")] if "i64" in allowed else []
    samples += [Sample((f"{dtype}[3, 0]",), {})] if empty else []
    return Op(
        f"reduce_{name}",
        "reduce",
        f"reduce_{name}(Tensor x) -> Tensor",
        f"{doc} of the last axis, which is kept with size 1.",
        _infer(f"reduce_{name}", allowed),
        lambda args, attrs: function(args[0]),
        scalar=f"reduce.{scalar or name}",
        samples=tuple(samples),
        errors=(
            (Sample((f"{dtype}[]",), {}), f"reduce_{name}: axis is -1; a tensor of rank 0 has axes 0 to -1"),
        ),
    )


def _accumulate(function: Any) -> Callable[[Any], Any]:
    """Float sums and products in f64, rounded once; integers wrap in their own dtype."""

    def evaluate(x: Any) -> Any:
        wide = np.float64 if x.dtype.kind == "f" else x.dtype
        with np.errstate(all="ignore"):
            return function.reduce(x, axis=-1, keepdims=True, dtype=wide).astype(x.dtype)

    return evaluate


def _total(x: Any) -> Any:
    return np.sum(x, axis=-1, keepdims=True, dtype=np.float64)


def _extreme(function: Any, sign: int) -> Callable[[Any], Any]:
    """The largest or smallest element; if empty, the neutral element (`sign`: which end)."""

    def evaluate(x: Any) -> Any:
        if x.dtype.kind == "f":
            initial: Any = sign * np.inf
        else:
            low, high = (
                (False, True) if x.dtype.kind == "b" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
            )
            initial = high if sign > 0 else low
        return function(x, axis=-1, keepdims=True, initial=initial)

    return evaluate


OPS: tuple[Op, ...] = (
    _op("sum", "The sum", _NUMBERS, _accumulate(np.add)),
    _op("total", "The sum, in f64 and unrounded,", ("f32", "f64"), _total, scalar="sum"),
    _op(
        "squares",
        "The sum of squares, in f64 and unrounded,",
        ("f32", "f64"),
        lambda x: _total(np.square(x.astype(np.float64))),
        scalar="sum",
    ),
    _op("prod", "The product", _NUMBERS, _accumulate(np.multiply)),
    _op(
        "max",
        "The maximum (NaN wins; of nothing the dtype's lowest value)",
        _ANY,
        _extreme(np.max, -1),
        empty=False,
    ),
    _op(
        "min",
        "The minimum (NaN wins; of nothing the dtype's highest value)",
        _ANY,
        _extreme(np.min, 1),
        empty=False,
    ),
    _op("any", "Whether any element is True", ("bool",), lambda x: np.any(x, axis=-1, keepdims=True)),
    _op("all", "Whether all elements are True", ("bool",), lambda x: np.all(x, axis=-1, keepdims=True)),
)


# Composite operators ------------------------------------------------------------------------------


def _infer_over_axes(op: str) -> Infer:
    def infer(types: Types, attrs: Attrs) -> Sequence[Type]:
        (x,) = tensors(op, types, 1)
        check_dtype(op, x.dtype, FLOAT_DTYPES)
        for axis in attrs["axes"]:
            check_axis(op, axis, x.rank)
        sizes = enumerate(x.shape)
        if attrs["keepdim"]:
            return (TensorType(x.dtype, tuple(1 if axis in attrs["axes"] else size for axis, size in sizes)),)
        return (TensorType(x.dtype, tuple(size for axis, size in sizes if axis not in attrs["axes"])),)

    return infer


def _mean(args: Sequence[Any], attrs: Attrs) -> Any:
    with np.errstate(all="ignore"):
        return np.mean(args[0], axis=attrs["axes"], keepdims=attrs["keepdim"], dtype=np.float64).astype(
            args[0].dtype
        )


def _variance(args: Sequence[Any], attrs: Attrs, root: bool) -> Any:
    x, axes = args[0], attrs["axes"]
    n = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
    with np.errstate(all="ignore"):
        squares = np.square(x - np.mean(x, axis=axes, keepdims=True, dtype=np.float64))
        total = np.sum(squares, axis=axes, keepdims=attrs["keepdim"])
        variance = total / np.float64(max(n - attrs["correction"], 0))
        return (np.sqrt(variance) if root else variance).astype(x.dtype)


def mean_of(b: Builder, x: Value, axes: Sequence[int], keepdim: bool) -> Value:
    """Return the mean of a float tensor over `axes`; f16 and bf16 are added in f32."""

    def compute(v: Value) -> Value:
        total = B.reduce(b, "reduce_total", v, axes, keepdim)
        return B.cast_to(
            b, B.pointwise(b, "mul", total, b.one("reciprocal", _count(b, v, axes))), B.dtype_of(v)
        )

    return B.in_f32(b, compute, x)


def _count(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """Return the number of elements over `axes`, in f64."""
    return B.full(b, B.product(B.shape_of(x)[axis] for axis in axes), "f64")


def variance_of(
    b: Builder, x: Value, axes: Sequence[int], correction: float, keepdim: bool, root: bool = False
) -> Value:
    """Return the variance over `axes`, or its root, in two passes: sum(d^2) - sum(d)^2 / n over n -
    correction, d being the distance to the mean, which is rounded.

    Chan, Golub and LeVeque, Algorithms for Computing the Sample Variance (1983): the corrected two-pass
    algorithm.
    """

    def compute(v: Value) -> Value:
        centred = B.pointwise(b, "sub", v, mean_of(b, v, axes, True))
        total = B.reduce(b, "reduce_total", centred, axes, keepdim)
        squares = B.reduce(b, "reduce_squares", centred, axes, keepdim)
        count = _count(b, v, axes)
        lost = B.pointwise(b, "div", b.one("mul", total, total), count)
        rest = B.pointwise(b, "maximum", B.pointwise(b, "sub", squares, lost), 0.0)
        fewer = B.pointwise(b, "maximum", B.pointwise(b, "sub", count, B.as_float(correction)), 0.0)
        variance = B.pointwise(b, "div", rest, fewer)
        return B.cast_to(b, b.one("sqrt", variance) if root else variance, B.dtype_of(v))

    return B.in_f32(b, compute, x)


def mean_square(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """Return the mean of x^2 over `axes`, which stay with size 1."""
    count = B.full(b, B.product(B.shape_of(x)[axis] for axis in axes), B.dtype_of(x))
    return B.pointwise(b, "div", B.reduce(b, "reduce_sum", b.one("mul", x, x), axes, True), count)


def _arg(node: Node) -> Value:
    return node.arg(0)


def _over(shape: str, axes: tuple[int, ...], keepdim: bool = False, **attrs: Any) -> Sample:
    return Sample((shape,), {"axes": axes, "keepdim": keepdim, **attrs})


def _decompose_variance(b: Builder, node: Node, root: bool) -> Sequence[Value]:
    attrs = node.attrs
    return [variance_of(b, _arg(node), attrs["axes"], attrs["correction"], attrs["keepdim"], root)]


_CASES = (
    ("f32[2, s0, 3]", (1,)),
    ("f32[2, s0, 3]", (0, 2)),
    ("f32[s0]", (0,)),
    ("f32[0, 3]", (1,)),
    ("f32[1, 4]", (0,)),
)
OPS += (
    Op(
        "mean",
        "composite",
        "mean(Tensor x; axes, keepdim) -> Tensor",
        "The mean over `axes` (ascending, from the front).",
        _infer_over_axes("mean"),
        _mean,
        decompose=lambda b, node: [mean_of(b, _arg(node), node.attrs["axes"], node.attrs["keepdim"])],
        samples=(*(_over(shape, axes) for shape, axes in _CASES), _over("f16[2, 3]", (1,), True)),
    ),
    *(
        Op(
            name,
            "composite",
            f"{name}(Tensor x; axes, correction, keepdim) -> Tensor",
            doc,
            _infer_over_axes(name),
            partial(_variance, root=root),
            decompose=partial(_decompose_variance, root=root),
            samples=(
                *(_over(shape, axes, correction=1) for shape, axes in _CASES),
                _over("f32[2, 3]", (1,), True, correction=0),
            ),
        )
        for name, doc, root in (
            ("var", "The variance over `axes`: squared distances to the mean over n - correction.", False),
            ("std", "The standard deviation over `axes`: the root of the variance.", True),
        )
    ),
)


# torch's overloads --------------------------------------------------------------------------------

Axes = int | Sequence[int] | None


def _summing(op: str) -> Callable[..., Value]:
    def expand(
        b: Builder, x: Value, dim: Axes = None, keepdim: bool = False, *, dtype: str | None = None
    ) -> Value:
        axes = B.axes_of(op, dim, len(B.shape_of(x)))
        x = B.cast_to(b, x, dtype or to_sum(B.dtype_of(x)))
        if dtype == "bool":
            return B.reduce(b, {"sum": "reduce_any", "prod": "reduce_all"}[op], x, axes, keepdim)
        return B.in_f32(b, lambda v: B.reduce(b, f"reduce_{op}", v, axes, keepdim), x)

    expand.__doc__ = f"The {op} over the named axes (all for none); integers and bool in i64, if not in bool."
    return expand


def extremum(op: str) -> Callable[..., Value]:
    """Return the converter of the "max" or "min" over axes."""

    def expand(b: Builder, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
        axes = B.axes_of(op, dim, len(B.shape_of(x)))
        require_elements(b, op, B.product(B.shape_of(x)[axis] for axis in axes))
        return B.reduce(b, f"reduce_{op}", x, axes, keepdim)

    expand.__doc__ = f"The {op} over the named axes (all for none)."
    return expand


def logsumexp(b: Builder, x: Value, dim: Axes, keepdim: bool = False) -> Value:
    """log(sum(exp(x))) over the named axes (all for none), also of great numbers; -inf of no elements."""
    axes = B.axes_of("logsumexp", dim, len(B.shape_of(x)))

    def compute(v: Value) -> Value:
        greatest = B.reduce(b, "reduce_max", v, axes, True)
        is_far = B.pointwise(b, "eq", b.one("abs", greatest), np.inf)
        shift = B.where(b, is_far, 0.0, greatest)
        terms = b.one("exp", B.pointwise(b, "sub", v, shift))
        total = b.one("log", B.reduce(b, "reduce_sum", terms, axes, keepdim))
        return B.pointwise(b, "add", total, B.reshape(b, shift, B.shape_of(total)))

    return B.in_f32(b, compute, B.cast_to(b, x, to_float(B.dtype_of(x))))


def _place(op: str) -> Callable[..., Value]:
    def expand(b: Builder, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        if dim is None:
            rank = len(B.shape_of(x))
            place = place_of(b, op, B.reshape(b, x, [B.product(B.shape_of(x))]), 0, False)
            return B.reshape(b, place, [1] * rank) if keepdim else place
        return place_of(b, op, x, dim, keepdim)

    expand.__doc__ = f"The first place of the {op} along an axis (of all elements for None); NaN is one."
    return expand


def place_of(b: Builder, op: str, x: Value, dim: int, keepdim: bool) -> Value:
    """Return the first index (i64) of the "max" or "min" along an axis: of a NaN, if there is one."""
    shape = B.shape_of(x)
    if not shape:
        return B.full(b, 0, "i64")
    axis = B.axis_of(f"arg{op}", dim, len(shape))
    require_elements(b, f"arg{op}", shape[axis])
    x = B.cast_to(b, x, "u8") if B.dtype_of(x) == "bool" else x
    is_best = B.pointwise(b, "eq", x, B.reduce(b, f"reduce_{op}", x, [axis], True))
    if B.dtype_of(x) in FLOAT_DTYPES:
        is_best = B.pointwise(b, "or", is_best, b.one("isnan", x))
    places = B.where(b, is_best, B.iota(b, shape[axis], axis, len(shape)), shape[axis])
    return B.reduce(b, "reduce_min", B.expand(b, places, shape), [axis], keepdim)


def _extremum_and_place(op: str) -> Callable[..., tuple[Value, Value]]:
    def expand(b: Builder, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        return extremum(op)(b, x, [dim] if B.shape_of(x) else [], keepdim), place_of(b, op, x, dim, keepdim)

    expand.__doc__ = f"The {op} along an axis and its first place; NaN is one."
    return expand


def _moments(function: Callable[..., Value]) -> Callable[..., tuple[Value, Value]]:
    """The variance or its root, and the mean."""

    def expand(
        b: Builder, x: Value, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False
    ) -> tuple[Value, Value]:
        return function(b, x, dim, correction=correction, keepdim=keepdim), mean(b, x, dim, keepdim)

    return expand


def _logical(op: str) -> Callable[..., Value]:
    def expand(b: Builder, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
        axes = B.axes_of(op, dim, len(B.shape_of(x)))
        result = B.reduce(b, f"reduce_{op}", B.cast_to(b, x, "bool"), axes, keepdim)
        return B.cast_to(b, result, "u8") if B.dtype_of(x) == "u8" else result

    expand.__doc__ = f"Whether {op} elements along the named axes are not 0."
    return expand


def mean(b: Builder, x: Value, dim: Axes = None, keepdim: bool = False, *, dtype: str | None = None) -> Value:
    """The mean over the named axes (all for none)."""
    axes = tuple(B.axes_of("mean", dim, len(B.shape_of(x))))
    return b.one("mean", B.cast_to(b, x, dtype or B.dtype_of(x)), axes=axes, keepdim=keepdim)


def whole_mean(b: Builder, x: Value, *, dtype: str | None = None) -> Value:
    """The mean of all elements."""
    return mean(b, x, dtype=dtype)


def _deviation(op: str) -> Callable[..., Value]:
    def expand(
        b: Builder, x: Value, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False
    ) -> Value:
        axes = tuple(B.axes_of(op, dim, len(B.shape_of(x))))
        if correction is not None and B.is_run_time(correction):
            return variance_of(b, x, axes, correction, keepdim, root=op == "std")
        return b.one(op, x, axes=axes, correction=1 if correction is None else correction, keepdim=keepdim)

    expand.__doc__ = f"The {op} over the named axes (all for none); correction 1 unless given."
    return expand


def _deviation_dim(op: str) -> Callable[..., Value]:
    def expand(b: Builder, x: Value, dim: Axes, unbiased: bool = True, keepdim: bool = False) -> Value:
        return _deviation(op)(b, x, dim, correction=int(unbiased), keepdim=keepdim)

    return expand


def _deviation_all(op: str) -> Callable[..., Value]:
    return lambda b, x, unbiased=True: _deviation(op)(b, x, correction=int(unbiased))


variance = _deviation("var")


def vector_norm(
    b: Builder,
    x: Value,
    order: float = 2,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: str | None = None,
) -> Value:
    """(sum |x|^order)^(1/order) over the named axes; order inf, -inf, 0, 1, 2 in their short forms."""
    axes = B.axes_of("vector_norm", dim, len(B.shape_of(x)))
    x = B.cast_to(b, x, dtype or to_float(B.dtype_of(x)))

    def compute(v: Value) -> Value:
        if order == 0:
            return B.reduce(
                b, "reduce_sum", B.cast_to(b, B.pointwise(b, "ne", v, 0.0), B.dtype_of(v)), axes, keepdim
            )
        if order == 2:
            return B.cast_to(b, b.one("sqrt", B.reduce(b, "reduce_squares", v, axes, keepdim)), B.dtype_of(v))
        v = b.one("abs", v)
        if abs(order) == np.inf:
            require_elements(b, "vector_norm", B.product(B.shape_of(v)[axis] for axis in axes))
            return B.reduce(b, "reduce_max" if order > 0 else "reduce_min", v, axes, keepdim)
        if order == 1:
            return B.reduce(b, "reduce_sum", v, axes, keepdim)
        total = B.reduce(b, "reduce_sum", B.pointwise(b, "pow", v, float(order)), axes, keepdim)
        return B.pointwise(b, "pow", total, 1.0 / order)

    return B.in_f32(b, compute, x)


def dist(b: Builder, x: Value, other: Value, p: float = 2) -> Value:
    """The vector norm of x - other."""
    return vector_norm(b, B.pointwise(b, "sub", x, other), p)


def _cast_then_reduce(function: Callable[..., Value]) -> Callable[..., Value]:
    """Overloads without dims but with a dtype."""
    return lambda b, x, *, dtype=None: function(b, x, dtype=dtype)


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.sum.dim_IntList",), _summing("sum")),
    Composite(("aten.sum.default",), _cast_then_reduce(_summing("sum"))),
    Composite(("aten.prod.dim_int",), _summing("prod")),
    Composite(("aten.prod.default",), _cast_then_reduce(_summing("prod"))),
    Composite(("aten.logsumexp.default",), logsumexp),
    Composite(("aten.amax.default", "aten.max.default"), extremum("max")),
    Composite(("aten.amin.default", "aten.min.default"), extremum("min")),
    Composite(("aten.argmax.default",), _place("max")),
    Composite(("aten.argmin.default",), _place("min")),
    Composite(("aten.max.dim",), _extremum_and_place("max")),
    Composite(("aten.min.dim",), _extremum_and_place("min")),
    Composite(("aten.any.default", "aten.any.dim", "aten.any.dims"), _logical("any")),
    Composite(("aten.all.default", "aten.all.dim", "aten.all.dims"), _logical("all")),
    Composite(("aten.mean.dim",), mean),
    Composite(("aten.mean.default",), whole_mean),
    Composite(("aten.var.correction",), variance),
    Composite(("aten.var.dim",), _deviation_dim("var")),
    Composite(("aten.var.default",), _deviation_all("var")),
    Composite(("aten.std.correction",), _deviation("std")),
    Composite(("aten.var_mean.correction",), _moments(variance)),
    Composite(("aten.std_mean.correction",), _moments(_deviation("std"))),
    Composite(("aten.std.dim",), _deviation_dim("std")),
    Composite(("aten.std.default",), _deviation_all("std")),
    Composite(("aten.linalg_vector_norm.default",), vector_norm),
    Composite(("aten.dist.default",), dist),
)
