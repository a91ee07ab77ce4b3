"""Activation functions: the composite operators relu, silu, gelu, and torch's others as compositions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, sqrt
from typing import Any

import numpy as np

from ...jit.math import reference as R
from ..ir.dims import simplify
from ..ir.graph import Builder, Node, Value
from ..ir.types import FLOAT_DTYPES, INT_DTYPES, Type
from . import build as B
from .declare import Composite, Infer, Op, Sample
from .rules import Attrs, Types, check_dtype, tensors

# The operators ------------------------------------------------------------------------------------


def _infer(op: str, allowed: Sequence[str] = FLOAT_DTYPES) -> Infer:
    def infer(types: Types, attrs: Attrs) -> Sequence[Type]:
        (x,) = tensors(op, types, 1)
        check_dtype(op, x.dtype, allowed)
        return (x,)

    return infer


def _gelu(args: Sequence[Any], attrs: Attrs) -> Any:
    x = args[0].astype(np.float64)
    if attrs["approximate"] == "tanh":
        gate = np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))
    else:
        gate = R.erf(x * sqrt(0.5))
    return (0.5 * x * (1 + gate)).astype(args[0].dtype)


def _gelu_of(b: Builder, x: Value, approximate: str) -> Value:
    """x times the normal distribution at x, or PyTorch's tanh form of it."""
    if approximate == "tanh":
        cube = b.one("mul", b.one("mul", x, x), x)
        inner = B.pointwise(
            b, "mul", B.pointwise(b, "add", x, B.pointwise(b, "mul", cube, 0.044715)), sqrt(2 / pi)
        )
        gate = b.one("tanh", inner)
        return b.one("mul", B.pointwise(b, "mul", x, 0.5), B.pointwise(b, "add", gate, 1.0))
    return b.one("gelu_erf", x)


def _decompose(compute: Callable[..., Value]) -> Callable[[Builder, Node], Sequence[Value]]:
    def decompose(b: Builder, node: Node) -> Sequence[Value]:
        return [B.in_f32(b, lambda v: compute(b, v, **node.attrs), node.arg(0))]

    return decompose


def _samples(**attrs: Any) -> tuple[Sample, ...]:
    return tuple(Sample((text,), attrs) for text in ("f32[2, s0]", "f32[]", "f32[0, 3]", "f32[1]", "bf16[5]"))


OPS: tuple[Op, ...] = (
    Op(
        "relu",
        "composite",
        "relu(Tensor x) -> Tensor",
        "max(x, 0).",
        _infer("relu", (*FLOAT_DTYPES, *INT_DTYPES)),
        lambda args, attrs: np.maximum(args[0], args[0].dtype.type(0)),
        decompose=lambda b, node: [B.pointwise(b, "maximum", 0, node.arg(0))],  # -0 stays
        samples=_samples(),
    ),
    Op(
        "silu",
        "composite",
        "silu(Tensor x) -> Tensor",
        "x * sigmoid(x).",
        _infer("silu"),
        lambda args, attrs: R.silu(args[0]),
        decompose=_decompose(lambda b, x: b.one("silu_exp", x)),
        samples=_samples(),
    ),
    Op(
        "gelu",
        "composite",
        "gelu(Tensor x; approximate) -> Tensor",
        '0.5 x (1 + erf(x / sqrt 2)), or with tanh ("none", "tanh").',
        _infer("gelu"),
        _gelu,
        decompose=_decompose(_gelu_of),
        samples=(*_samples(approximate="none"), *_samples(approximate="tanh")),
    ),
)


# torch's overloads --------------------------------------------------------------------------------


def _wide(compute: Callable[..., Value]) -> Callable[..., Value]:
    """Compute f16 and bf16 in f32 and round once."""

    def expand(b: Builder, x: Value, *args: Any, **kwargs: Any) -> Value:
        return B.in_f32(b, lambda v: compute(b, v, *args, **kwargs), x)

    expand.__doc__ = compute.__doc__
    return expand


def _leaky_relu(b: Builder, x: Value, slope: float = 0.01) -> Value:
    """X, or slope * x where it is negative."""
    return B.where(b, B.pointwise(b, "gt", x, 0), x, B.pointwise(b, "mul", x, slope))


def _elu(b: Builder, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    """Scale * x, or scale * alpha * (exp(input_scale * x) - 1) where x is negative."""
    below = b.one("expm1", _times(b, x, input_scale))
    is_known = not B.is_run_time(alpha) and not B.is_run_time(scale)
    below = _times(b, below, alpha * scale) if is_known else _times(b, _times(b, below, alpha), scale)
    return B.where(b, B.pointwise(b, "gt", x, 0), _times(b, x, scale), below)


def _times(b: Builder, x: Value, factor: B.Tensorlike) -> Value:
    return x if factor == 1 else B.pointwise(b, "mul", x, B.as_float(factor))


def _softplus(b: Builder, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """log(1 + exp(beta * x)) / beta; x itself if beta * x is above the threshold."""
    scaled = _times(b, x, beta)
    curve = b.one("log1p", b.one("exp", scaled))
    curve = curve if beta == 1 else B.pointwise(b, "div", curve, B.as_float(beta))
    return B.where(b, B.pointwise(b, "gt", scaled, B.as_float(threshold)), x, curve)


def _mish(b: Builder, x: Value) -> Value:
    """X * tanh(softplus(x))."""
    return b.one("mul", x, b.one("tanh", b.one("log1p", b.one("exp", x))))


def _hardsigmoid(b: Builder, x: Value) -> Value:
    """min(max(x + 3, 0), 6) / 6."""
    shifted = B.pointwise(b, "minimum", 6.0, B.pointwise(b, "maximum", 0.0, B.pointwise(b, "add", x, 3.0)))
    return B.pointwise(b, "div", shifted, 6.0)


def _hardswish(b: Builder, x: Value) -> Value:
    """X * hardsigmoid(x)."""
    return b.one("mul", x, _hardsigmoid(b, x))


def _log_sigmoid(b: Builder, x: Value) -> Value:
    """min(x, 0) - log(1 + exp(-|x|))."""
    tail = b.one("log1p", b.one("exp", b.one("neg", b.one("abs", x))))
    return B.pointwise(b, "sub", B.pointwise(b, "minimum", x, 0), tail)


def _logit(b: Builder, x: Value, eps: float | None = None) -> Value:
    """log(x / (1 - x)), x clamped to eps .. 1 - eps if eps is given."""
    if eps is not None:
        x = B.pointwise(b, "minimum", B.pointwise(b, "maximum", x, float(eps)), 1.0 - eps)
    return b.one("log", B.pointwise(b, "div", x, B.pointwise(b, "sub", 1.0, x)))


def gelu(b: Builder, x: Value, *, approximate: str = "none") -> Value:
    """torch.nn.functional.gelu."""
    return b.one("gelu", x, approximate=approximate)


def sigmoid_gate(b: Builder, x: Value, dim: int = -1) -> Value:
    """glu: the first half of an axis times the sigmoid of the second."""
    axis = B.axis_of("glu", dim, len(B.shape_of(x)))
    half = B.divide(B.shape_of(x)[axis], 2)
    x = B.of_size(b, "glu: an even size is needed", x, axis, simplify(2 * half))
    gate = B.take(b, x, axis, half, half)
    return B.in_f32(b, lambda v, g: b.one("mul", v, b.one("sigmoid", g)), B.take(b, x, axis, 0, half), gate)


def threshold_backward(b: Builder, grad: Value, x: Value, threshold: B.Number) -> Value:
    """The gradient, masked to 0 where x is at most the threshold, in the common dtype."""
    dtype = B.common_dtype(grad, x)
    limit = B.tensor_of(b, threshold, dtype)
    return B.where(
        b, B.pointwise(b, "le", x, limit, dtype=dtype), B.full(b, 0, dtype), B.cast_to(b, grad, dtype)
    )


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.threshold_backward.default",), threshold_backward),
    Composite(("aten.relu.default",), lambda b, x: b.one("relu", x), "max(x, 0)"),
    Composite(
        ("aten.relu6.default",),
        lambda b, x: B.pointwise(b, "minimum", b.one("relu", x), 6),
        "min(max(x, 0), 6)",
    ),
    Composite(("aten.silu.default",), lambda b, x: b.one("silu", x), "x * sigmoid(x)"),
    Composite(("aten.gelu.default",), gelu),
    Composite(("aten.leaky_relu.default",), _wide(_leaky_relu)),
    Composite(("aten.elu.default",), _wide(_elu)),
    Composite(("aten.softplus.default",), _wide(_softplus)),
    Composite(("aten.mish.default",), _wide(_mish)),
    Composite(("aten.hardsigmoid.default",), _wide(_hardsigmoid)),
    Composite(("aten.hardswish.default",), _wide(_hardswish)),
    Composite(("aten.log_sigmoid.default",), _wide(_log_sigmoid)),
    Composite(("aten.logit.default",), _wide(_logit)),
    Composite(("aten.glu.default",), sigmoid_gate),
)
