"""Random numbers: of the program's own generator, so they differ from other runtimes'."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.graph import Value
from ....ops import build as B
from ....ops.random import chance, multinomial, normal, uniform
from ..reader import element_name
from ..rows import Call, row


def _seed(call: Call) -> None:
    """Give the program a generator; the first node's seed is the program's."""
    call.scope.add_generator(int(np.float32(call.attr("seed", 0.0)).view(np.int32)))


def _dtype(call: Call, default: str) -> str:
    return element_name(call.attr("dtype"), f"the result of {call.op}") if call.attr("dtype") else default


@row("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike")
def _random(call: Call) -> Value:
    _seed(call)
    is_like, b = call.op.endswith("Like"), call.b
    shape = call.shape(0) if is_like else list(call.attr("shape"))
    dtype = _dtype(call, call.dtype(0) if is_like else "f32")
    if "Normal" in call.op:
        made, by, start = normal(b, shape, dtype), call.attr("scale", 1.0), call.attr("mean", 0.0)
    else:
        start = call.attr("low", 0.0)
        made, by = uniform(b, shape, dtype), call.attr("high", 1.0) - start
    return B.pointwise(b, "add", B.pointwise(b, "mul", made, float(by)), float(start))


@row("Bernoulli")
def _bernoulli(call: Call) -> Value:
    _seed(call)
    p = call.value(0)
    return B.cast_to(call.b, chance(call.b, B.shape_of(p), p), _dtype(call, B.dtype_of(p)))


@row("Multinomial")
def _multinomial(call: Call) -> Value:
    _seed(call)
    b, logits = call.b, call.value(0)
    made = multinomial(b, call.aten("softmax.int", logits, -1), call.attr("sample_size", 1), True)
    return B.cast_to(b, made, _dtype(call, "i32"))


@row("Dropout")
def _dropout(call: Call) -> Any:
    """Dropout: its input itself, unless the model says that it trains."""
    x, trains = call.input(0), call.has(2) and bool(call.numbers(2))
    ratio = float(call.numbers(1)) if call.has(1) else call.attr("ratio", 0.5)
    b = call.b
    if not trains or not ratio:
        mask = B.full(b, True, "bool", tuple(call.shape(0))) if call.n_outputs > 1 else None
        return x, mask
    _seed(call)
    mask = chance(b, call.shape(0), 1.0 - ratio)
    grown = B.pointwise(b, "mul", call.value(0), 1.0 / (1.0 - ratio) if ratio < 1 else 0.0)
    return B.where(b, mask, grown, B.full(b, 0, call.dtype(0))), mask
