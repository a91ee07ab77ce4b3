"""Operators of the domain com.microsoft, which ONNX Runtime's optimiser and model builders write."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.errors import UnsupportedOp
from ....ir.graph import Value
from ....ops import build as B
from ....ops.matmul import linear
from ..known import Known
from ..rows import ROWS, Call, row
from .quantised import MICROSOFT


def _standard(call: Call, op: str, inputs: Any, **attributes: Any) -> Any:
    """Apply an operator of the standard."""
    return call.apply(op, inputs, version=20, attributes={**call.attributes, **attributes}, n_outputs=1)


# Activations


@row("Gelu", "FastGelu", "BiasGelu", domain=MICROSOFT)
def _gelu(call: Call) -> Value:
    x = call.value(0)
    x = B.pointwise(call.b, "add", x, call.value(1)) if call.has(1) else x
    return call.aten("gelu", x, approximate="tanh" if call.op == "FastGelu" else "none")


@row("QuickGelu", domain=MICROSOFT)
def _quick_gelu(call: Call) -> Value:
    b, x = call.b, call.value(0)
    scaled = B.pointwise(b, "mul", x, float(call.attr("alpha", 1.702)))
    return B.pointwise(b, "mul", x, B.pointwise(b, "sigmoid", scaled))


# Products


@row("FusedMatMul", domain=MICROSOFT)
def _fused_matmul(call: Call) -> Value:
    if call.attr("transBatchA", 0) or call.attr("transBatchB", 0):
        raise UnsupportedOp("FusedMatMul: transBatchA and transBatchB are not compiled")
    b, operands = call.b, []
    for i, name in enumerate(("transA", "transB")):
        x = call.value(i)
        rank = len(B.shape_of(x))
        order = [*range(rank - 2), rank - 1, rank - 2]
        operands.append(B.permute(b, x, order) if call.attr(name, 0) and rank > 1 else x)
    made, alpha = call.aten("matmul", *operands), float(call.attr("alpha", 1.0))
    return made if alpha == 1 else B.pointwise(b, "mul", made, alpha, dtype=B.dtype_of(made))


#: The attributes that the parameters of a fused activation stand for.
_PARAMETERS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max")}


@row("FusedConv", "FusedGemm", domain=MICROSOFT)
def _fused(call: Call) -> Value:
    """A convolution or product, plus a tensor (of convolutions, input 3), and its activation."""
    made = _standard(call, call.op.removeprefix("Fused"), call.inputs[:3])
    if call.op == "FusedConv" and call.has(3):
        made = B.pointwise(call.b, "add", made, call.value(3))
    name = call.attr("activation", "")
    if not name:
        return made
    if ("", name) not in ROWS:
        raise UnsupportedOp(f"{call.op}: the activation {name!r} cannot be compiled")
    said = call.attr("activation_params") or [call.attr(f"activation_{key}") for key in ("alpha", "beta")]
    settings = dict(zip(_PARAMETERS.get(name, ()), said, strict=False))
    return _standard(
        call, name, [made], **{key: value for key, value in settings.items() if value is not None}
    )


@row("NhwcConv", domain=MICROSOFT)
def _channels_last(call: Call) -> Value:
    """A convolution of two axes whose tensors, but not its weight, have their channels last."""
    x = B.permute(call.b, call.value(0), [0, 3, 1, 2])
    return B.permute(call.b, _standard(call, "Conv", [x, *call.inputs[1:]]), [0, 2, 3, 1])


@row("MatMulNBits", domain=MICROSOFT)
def _matmul_by_blocks(call: Call) -> Value:
    """x [.., K] times the transposed weight [N, K] of 4 or 8 bits, whose blocks of steps have scales."""
    b, x, bits = call.b, call.value(0), call.attr("bits", 4)
    k, n, block = call.attr("K"), call.attr("N"), call.attr("block_size")
    if bits not in (4, 8) or call.has(4):
        raise UnsupportedOp(
            f"MatMulNBits: {bits} bits, or groups by index; use 4 or 8 bits and blocks in order"
        )
    count, middle = -(-k // block), 1 << (bits - 1)
    q = _unpacked(call.numbers(1).reshape(n, -1), bits)[:, : count * block]
    scale = B.cast_to(b, B.reshape(b, call.value(2), [n, count]), "f32")
    zero = None
    if call.has(3):
        given = call.numbers(3)
        packed = given.dtype == np.uint8
        zeros = _unpacked(given.reshape(n, -1), bits)[:, :count] if packed else given.reshape(n, count)
        zero = b.constant((zeros.astype(np.float32) - middle), "f32", "")
    name = call.inputs[1].name if isinstance(call.inputs[1], Known) else ""
    weight = b.constant((q.astype(np.int16) - middle).astype(np.int8), "i8", name)
    dtype = B.dtype_of(x)
    x = B.of_size(b, call.op, B.cast_to(b, x, "f32"), len(B.shape_of(x)) - 1, k)
    x = B.pad(b, x, [*[(0, 0)] * (len(B.shape_of(x)) - 1), (0, count * block - k)]) if k % block else x
    wide = b.one("dequantize", weight, scale, zero, dtype="f32")
    bias = B.cast_to(b, call.value(5), "f32") if call.has(5) else None
    return B.cast_to(b, linear(b, x, wide, bias), dtype)


def _unpacked(rows: np.ndarray, bits: int) -> np.ndarray:
    """Return the integers of rows of bytes, the low four bits first."""
    if bits == 8:
        return rows
    return np.stack([rows & 15, rows >> 4], -1).reshape(len(rows), -1)


# Normalisations


@row("SimplifiedLayerNormalization", domain="")
@row("SimplifiedLayerNormalization", domain=MICROSOFT)
def _simplified(call: Call) -> Value:
    return _standard(call, "RMSNormalization", call.inputs[:2])


@row("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip(call: Call) -> tuple[Any, ...]:
    """The normalised sum of a tensor, another and a bias; the fourth result is the sum."""
    b, is_simple = call.b, call.op == "SkipSimplifiedLayerNormalization"
    total = B.pointwise(b, "add", call.value(0), call.value(1))
    bias = call.maybe(3 if is_simple else 4)
    total = total if bias is None else B.pointwise(b, "add", total, bias)
    return (
        _normalised(call, total, call.value(2), None if is_simple else call.maybe(3), is_simple),
        None,
        None,
        total,
    )


def _normalised(call: Call, x: Value, weight: Value, bias: Value | None, is_simple: bool) -> Value:
    eps, last = call.attr("epsilon", 1e-12), [B.shape_of(x)[-1]]
    if is_simple:
        made: Value = call.aten("_fused_rms_norm", x, last, weight, eps)[0]
        return made
    return call.aten("layer_norm", x, last, weight, bias, eps)


@row("EmbedLayerNormalization", domain=MICROSOFT)
def _embed(call: Call) -> tuple[Any, ...]:
    """The normalised sum of the embeddings of words, positions and segments; the numbers of the mask's ones;
    the sum."""
    b, ids = call.b, call.value(0)
    batch, length = B.shape_of(ids)
    total = call.aten("embedding", call.value(2), B.cast_to(b, ids, "i64"))
    places = (
        B.cast_to(b, call.value(8), "i64") if call.has(8) else B.reshape(b, B.iota(b, length), [1, length])
    )
    total = B.pointwise(b, "add", total, call.aten("embedding", call.value(3), places))
    if call.has(1):
        segments = call.aten("embedding", call.value(4), B.cast_to(b, call.value(1), "i64"))
        total = B.pointwise(b, "add", total, segments)
    counts = B.full(b, 0, "i32", (batch,))
    if call.has(7):
        counts = B.reduce(b, "reduce_sum", B.cast_to(b, call.value(7), "i32"), [1], False)
    return _normalised(call, total, call.value(5), call.value(6), False), counts, total
