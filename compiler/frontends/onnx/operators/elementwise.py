"""Operators on elements."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ....ir.graph import Value
from ....ir.promotion import is_float
from ....ops import build as B
from ....ops.gather import counting
from ..known import Known
from ..reader import element_name
from ..rows import ROWS, Call, row

#: Operators with one input, and what PyTorch calls them.
_UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf",
    "Exp": "exp", "Floor": "floor", "HardSwish": "hardswish", "IsNaN": "isnan", "Log": "log",
    "Mish": "mish", "Neg": "neg", "Not": "logical_not", "Reciprocal": "reciprocal", "Relu": "relu",
    "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh",
    "Softplus": "softplus", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
#: Operators with two inputs.
_BINARY = {
    "Add": "add.Tensor", "BitwiseAnd": "bitwise_and.Tensor",
    "BitwiseOr": "bitwise_or.Tensor", "BitwiseXor": "bitwise_xor.Tensor", "Equal": "eq.Tensor",
    "Greater": "gt.Tensor", "Less": "lt.Tensor", "LessOrEqual": "le.Tensor",
    "Mul": "mul.Tensor", "Or": "logical_or", "Sub": "sub.Tensor", "Xor": "logical_xor",
}  # fmt: skip
#: Activations: PyTorch's name, and the attributes that it takes in order, with their defaults.
_ACTIVATIONS: dict[str, tuple[str, tuple[tuple[str, float], ...]]] = {
    "LeakyRelu": ("leaky_relu", (("alpha", 0.01),)),
    "Elu": ("elu", (("alpha", 1.0),)),
    "Selu": ("elu", (("alpha", 1.6732632423543772), ("gamma", 1.0507009873554805))),
}


def _named(name: str) -> Any:
    return lambda call: call.aten(name, *(call.value(i) for i in range(len(call.inputs))))


ROWS.update({("", op): _named(name) for op, name in {**_UNARY, **_BINARY}.items()})
ROWS["", "Identity"] = lambda call: call.input(0)


@row("And")
def _and(call: Call) -> Value:
    x, y = B.broadcast(call.b, "And", [call.value(0), call.value(1)])
    return y if _is_true(call, 0) else x if _is_true(call, 1) else call.b.one("and", x, y)


def _is_true(call: Call, i: int) -> bool:
    """Whether all elements of an input are known to be true."""
    x = call.input(i)
    return bool(np.all(x.items == True)) if isinstance(x, Known) else B.uniform(x) is True  # noqa: E712


@row("GreaterOrEqual")
def _at_least(call: Call) -> Value:
    """Positions are at least the first of them: exporters of masks compare them with 0."""
    x, least = call.value(0), call.input(1)
    found = counting(x)
    if found is not None and isinstance(least, Known) and least.items.size == 1:
        low, _ = B.bounds_of(call.b, found.start)
        if low is not None and least.items.ndim <= len(B.shape_of(x)) and low >= least.items.reshape(-1)[0]:
            return B.full(call.b, True, "bool", B.shape_of(x))
    return call.aten("ge.Tensor", x, call.value(1))


@row(*_ACTIVATIONS)
def _activation(call: Call) -> Value:
    name, settings = _ACTIVATIONS[call.op]
    return call.aten(name, call.value(0), *(call.attr(*each) for each in settings))


@row("Celu")
def _celu(call: Call) -> Value:
    alpha = call.attr("alpha", 1.0)
    return call.aten("elu", call.value(0), alpha, 1.0, 1.0 / alpha)


@row("Gelu")
def _gelu(call: Call) -> Value:
    return call.aten("gelu", call.value(0), approximate=call.attr("approximate", "none"))


@row("HardSigmoid")
def _hard_sigmoid(call: Call) -> Value:
    b, x = call.b, call.value(0)
    line = B.pointwise(b, "mul", x, float(call.attr("alpha", 0.2)))
    line = B.pointwise(b, "add", line, float(call.attr("beta", 0.5)))
    return call.aten("clamp", line, 0.0, 1.0)


@row("ThresholdedRelu")
def _thresholded(call: Call) -> Value:
    x = call.value(0)
    above = B.pointwise(call.b, "gt", x, float(call.attr("alpha", 1.0)))
    return B.where(call.b, above, x, B.full(call.b, 0, B.dtype_of(x)))


@row("PRelu")
def _prelu(call: Call) -> Value:
    b, x = call.b, call.value(0)
    slope = B.pointwise(b, "mul", x, call.value(1))
    return B.where(b, B.pointwise(b, "lt", x, 0), slope, x)


@row("Div")
def _div(call: Call) -> Value:
    x, y = call.value(0), call.value(1)
    mode = {} if is_float(B.dtype_of(x)) else {"rounding_mode": "trunc"}
    return call.aten("div.Tensor_mode" if mode else "div.Tensor", x, y, **mode)


@row("Mod")
def _mod(call: Call) -> Value:
    name = "fmod.Tensor" if call.attr("fmod", 0) else "remainder.Tensor"
    return call.aten(name, call.value(0), call.value(1))


@row("Pow")
def _pow(call: Call) -> Value:
    x = call.value(0)
    exponent = call.value(1)
    constant = B.uniform(exponent)
    if constant is None and exponent.node is not None and exponent.node.op == "constant":
        array = exponent.node.attrs["array"]
        constant = (
            array.reshape(-1)[0].item() if array.size == 1 and array.ndim <= len(B.shape_of(x)) else None
        )
    if constant is not None and B.dtype_of(x) in ("f32", "f64"):
        return call.aten("pow.Tensor_Scalar", x, constant)
    return B.cast_to(call.b, call.aten("pow.Tensor_Tensor", x, exponent), B.dtype_of(x))


@row("BitShift")
def _shift(call: Call) -> Value:
    way = "left" if call.attr("direction") == "LEFT" else "right"
    return call.aten(f"bitwise_{way}_shift.Tensor", call.value(0), call.value(1))


@row("Sum", "Min", "Max", "Mean")
def _several(call: Call) -> Value:
    name = {"Sum": "add.Tensor", "Mean": "add.Tensor", "Min": "minimum", "Max": "maximum"}[call.op]
    values = call.values()
    total = reduce(lambda x, y: call.aten(name, x, y), values)
    return call.aten("div.Scalar", total, len(values)) if call.op == "Mean" else total


@row("Clip")
def _clip(call: Call) -> Value:
    b, x = call.b, call.value(0)
    for i, name, op in ((1, "min", "maximum"), (2, "max", "minimum")):
        bound = call.maybe(i) if call.has(i) else call.attr(name)
        if bound is not None:
            x = B.pointwise(b, op, x, bound, dtype=B.dtype_of(x))
    return x


@row("Where")
def _where(call: Call) -> Value:
    b = call.b
    return b.one("where", *B.broadcast(b, "Where", [call.value(i) for i in range(3)]))


@row("Cast", "BitCast")
def _cast(call: Call) -> Value:
    name = "to.dtype" if call.op == "Cast" else "view.dtype"
    return call.aten(name, call.value(0), element_name(call.attr("to"), f"the result of {call.op}"))


@row("CastLike")
def _cast_like(call: Call) -> Value:
    return call.aten("to.dtype", call.value(0), call.dtype(1))


@row("IsInf")
def _is_inf(call: Call) -> Value:
    b, x = call.b, call.value(0)
    found = b.one("isinf", x)
    for name, relation in (("detect_positive", "lt"), ("detect_negative", "gt")):
        if not call.attr(name, 1):
            found = B.pointwise(b, "and", found, B.pointwise(b, relation, x, 0))
    return found


@row("Shrink")
def _shrink(call: Call) -> Value:
    b, x = call.b, call.value(0)
    limit, bias = float(call.attr("lambd", 0.5)), float(call.attr("bias", 0.0))
    zero = B.full(b, 0, B.dtype_of(x))
    low, high = (B.pointwise(b, op, x, bias, dtype=B.dtype_of(x)) for op in ("add", "sub"))
    upper = B.where(b, B.pointwise(b, "gt", x, limit), high, zero)
    return B.where(b, B.pointwise(b, "lt", x, -limit), low, upper)


@row("Softsign")
def _softsign(call: Call) -> Value:
    x = call.value(0)
    below = B.pointwise(call.b, "add", call.b.one("abs", x), 1.0, dtype=B.dtype_of(x))
    return B.pointwise(call.b, "div", x, below)
