"""Normalisations: softmax, log_softmax, layer_norm (composite operators) and torch's overloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from ..dims import DimExpr
from ..errors import ShapeError
from ..ir import Builder, Node, Value
from ..types import FLOAT_DTYPES, Type
from . import build as B
from .declare import Composite, Infer, Op, Sample
from .reduce import mean_of, mean_square
from .rules import Attrs, Types, check_axis, check_dtype, equal_shapes, show, tensor, tensors

# The operators ------------------------------------------------------------------------------------


def _infer_softmax(op: str) -> Infer:
    def infer(types: Types, attrs: Attrs) -> Sequence[Type]:
        (x,) = tensors(op, types, 1)
        check_dtype(op, x.dtype, FLOAT_DTYPES)
        check_axis(op, attrs["axis"], x.rank)
        return (x,)

    return infer


def _softmax(args: Sequence[Any], attrs: Attrs) -> Any:
    return np.exp(_log_softmax(args, attrs))


def _log_softmax(args: Sequence[Any], attrs: Attrs) -> Any:
    x, axis = args[0].astype(np.float64), attrs["axis"]
    with np.errstate(all="ignore"):
        shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
        return (shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))).astype(args[0].dtype)


def _along_last(compute: Callable[[Builder, Value], Value]) -> Callable[[Builder, Node], Sequence[Value]]:
    """Make a decomposition that moves `axis` last, computes, and moves it back."""

    def decompose(b: Builder, node: Node) -> Sequence[Value]:
        x, axis = cast(Value, node.args[0]), node.attrs["axis"]
        if B.shape_of(x)[axis] == 0:
            return [x]
        order = list(range(len(B.shape_of(x))))
        order[axis], order[-1] = order[-1], order[axis]
        result = B.in_f32(b, lambda v: compute(b, v), B.permute(b, x, order))
        return [B.permute(b, result, order)]

    return decompose


def _softmax_last(b: Builder, x: Value) -> Value:
    powers = b.one("exp", B.pointwise(b, "sub", x, b.one("reduce_max", x)))
    return B.pointwise(b, "div", powers, b.one("reduce_sum", powers))


def _log_softmax_last(b: Builder, x: Value) -> Value:
    shifted = B.pointwise(b, "sub", x, b.one("reduce_max", x))
    return B.pointwise(b, "sub", shifted, b.one("log", b.one("reduce_sum", b.one("exp", shifted))))


def _infer_layer_norm(types: Types, attrs: Attrs) -> Sequence[Type]:
    x, n = tensor("layer_norm", types, 0), attrs["n_axes"]
    check_dtype("layer_norm", x.dtype, FLOAT_DTYPES)
    if not 1 <= n <= x.rank:
        raise ShapeError(f"layer_norm: n_axes is {n}; a tensor of rank {x.rank} takes 1 to {x.rank}")
    for position, name in ((1, "weight"), (2, "bias")):
        found = types[position] if len(types) > position else None
        if found is not None and not equal_shapes(tensor("layer_norm", types, position).shape, x.shape[-n:]):
            raise ShapeError(f"layer_norm: {name} is {found}; it must have shape {show(x.shape[-n:])}")
    return (x,)


def _layer_norm(args: Sequence[Any], attrs: Attrs) -> Any:
    x, weight, bias = args
    axes, wide = tuple(range(-attrs["n_axes"], 0)), args[0].astype(np.float64)
    with np.errstate(all="ignore"):
        mean = wide.mean(axis=axes, keepdims=True)
        result = (wide - mean) / np.sqrt(wide.var(axis=axes, keepdims=True) + attrs["eps"])
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias).astype(x.dtype)


def normalised(b: Builder, x: Value, axes: Sequence[int], eps: float) -> tuple[Value, Value, Value]:
    """Return ((x - mean) * rstd, mean, rstd) over `axes`, which stay with size 1."""
    mean = mean_of(b, x, axes, True)
    centred = B.pointwise(b, "sub", x, mean)
    variance = mean_square(b, centred, axes, 0, True)
    rstd = b.one("rsqrt", B.pointwise(b, "add", variance, eps, dtype=B.dtype_of(x)))
    return B.pointwise(b, "mul", centred, rstd), mean, rstd


def _decompose_layer_norm(b: Builder, node: Node) -> Sequence[Value]:
    x, n = cast(Value, node.args[0]), node.attrs["n_axes"]
    rank = len(B.shape_of(x))

    def compute(v: Value, weight: Value | None, bias: Value | None) -> Value:
        result, _, _ = normalised(b, v, range(rank - n, rank), node.attrs["eps"])
        result = result if weight is None else B.pointwise(b, "mul", result, weight)
        return result if bias is None else B.pointwise(b, "add", result, bias)

    return [B.in_f32(b, compute, x, *(list(node.args[1:]) + [None, None])[:2])]


def _along(shape: str, axis: int) -> Sample:
    return Sample((shape,), {"axis": axis})


_SOFTMAX_SAMPLES = tuple(
    _along(shape, axis)
    for shape, axis in (
        ("f32[2, s0]", 1),
        ("f32[s0, 3]", 0),
        ("f32[1]", 0),
        ("f32[0, 4]", 1),
        ("f32[4, 0]", 1),
        ("bf16[2, s0]", 1),
    )
)
_SOFTMAX_ERROR = ((_along("f32[2, 3]", 2), "{}: axis is 2; a tensor of rank 2 has axes 0 to 1"),)
_SOFTMAX_OPS = tuple(
    Op(
        name, "composite", f"{name}(Tensor x; axis) -> Tensor", doc, _infer_softmax(name), reference,
        decompose=_along_last(last), samples=_SOFTMAX_SAMPLES,
        errors=tuple((sample, text.format(name)) for sample, text in _SOFTMAX_ERROR),
    )
    for name, doc, reference, last in (
        ("softmax", "exp(x - max) / sum(exp(x - max)) along one axis.", _softmax, _softmax_last),
        ("log_softmax", "x - max - log(sum(exp(x - max))) along one axis.", _log_softmax, _log_softmax_last),
    )
)  # fmt: skip
OPS: tuple[Op, ...] = (
    *_SOFTMAX_OPS,
    Op(
        "layer_norm",
        "composite",
        "layer_norm(Tensor x, Tensor? weight, Tensor? bias; n_axes, eps) -> Tensor",
        "(x - mean) / sqrt(variance + eps) over the last `n_axes` axes, times weight, plus bias.",
        _infer_layer_norm,
        _layer_norm,
        decompose=_decompose_layer_norm,
        samples=(
            Sample(("f32[2, s0, 8]", "f32[8]", "f32[8]"), {"n_axes": 1, "eps": 1e-5}),
            Sample(("f32[s0, 2, 3]", "f32[2, 3]", ""), {"n_axes": 2, "eps": 1e-5}),
            Sample(("f32[0, 4]", "", ""), {"n_axes": 1, "eps": 1e-12}),
            Sample(("f32[1, 1]", "", "f32[1]"), {"n_axes": 1, "eps": 1e-5}),
            Sample(("f16[3, 8]", "f16[8]", "f16[8]"), {"n_axes": 1, "eps": 1e-5}),
        ),
        errors=(
            (
                Sample(("f32[2, 3]", "f32[4]", ""), {"n_axes": 1, "eps": 1e-5}),
                "layer_norm: weight is f32[4]; it must have shape [3]",
            ),
        ),
    ),
)


# torch's overloads --------------------------------------------------------------------------------


def _softmax_of(op: str) -> Callable[..., Value]:
    def expand(b: Builder, x: Value, dim: int, dtype: str | None = None) -> Value:
        rank = len(B.shape_of(x))
        x = B.cast_to(b, x, dtype or B.dtype_of(x))
        if rank == 0:
            return B.reshape(b, b.one(op, B.reshape(b, x, [1]), axis=0), [])
        return b.one(op, x, axis=B.axis_of(op, dim, rank))

    return expand


def _raw_softmax_of(op: str) -> Callable[..., Value]:
    def expand(b: Builder, x: Value, dim: int, half_to_float: bool) -> Value:
        return _softmax_of(op)(b, x, dim, "f32" if half_to_float else None)

    return expand


def layer_norm(
    b: Builder,
    x: Value,
    shape: Sequence[DimExpr],
    weight: Value | None,
    bias: Value | None,
    eps: float,
    *_: Any,
) -> Value:
    """torch.nn.functional.layer_norm."""
    return b.one("layer_norm", x, weight, bias, n_axes=len(shape), eps=float(eps))


def native_layer_norm(
    b: Builder, x: Value, shape: Sequence[DimExpr], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """layer_norm with the mean and 1 / sqrt(variance + eps) that it used."""
    rank = len(B.shape_of(x))
    wide = B.cast_to(b, x, "f64" if B.dtype_of(x) == "f64" else "f32")
    _, mean, rstd = normalised(b, wide, range(rank - len(shape), rank), eps)
    return (
        layer_norm(b, x, shape, weight, bias, eps),
        B.cast_to(b, mean, B.dtype_of(x)),
        B.cast_to(b, rstd, B.dtype_of(x)),
    )


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.softmax.int",), _softmax_of("softmax")),
    Composite(("aten.log_softmax.int",), _softmax_of("log_softmax")),
    Composite(("aten._softmax.default",), _raw_softmax_of("softmax")),
    Composite(("aten._log_softmax.default",), _raw_softmax_of("log_softmax")),
    Composite(("aten.layer_norm.default",), layer_norm),
    Composite(("aten.native_layer_norm.default",), native_layer_norm),
)
