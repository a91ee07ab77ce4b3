"""Functions of tensors, with torch's names, arguments and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..compiler.ir.dims import DimExpr
from .tensor import Tensor, call


def relu(x: Any) -> Tensor:
    """Return max(x, 0)."""
    return call("aten.relu.default", x)


def gelu(x: Any, approximate: str = "none") -> Tensor:
    """Return gelu(x), by erf or with `approximate="tanh"` by tanh."""
    return call("aten.gelu.default", x, approximate=approximate)


def silu(x: Any) -> Tensor:
    """Return x * sigmoid(x)."""
    return call("aten.silu.default", x)


def tanh(x: Any) -> Tensor:
    """Return tanh(x)."""
    return call("aten.tanh.default", x)


def sigmoid(x: Any) -> Tensor:
    """Return 1 / (1 + exp(-x))."""
    return call("aten.sigmoid.default", x)


def softmax(x: Any, dim: int = -1) -> Tensor:
    """Return exp(x) over its sum along `dim`."""
    return call("aten.softmax.int", x, dim)


def mean(x: Any, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """Return the mean along axes."""
    return call("aten.mean.dim", x, [dim] if isinstance(dim, int) else list(dim), keepdim)


def argmax(x: Any, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Return the index of the greatest element along `dim`, as i64."""
    return call("aten.argmax.default", x, dim, keepdim)


def cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Concatenate tensors along `dim`."""
    return call("aten.cat.default", list(tensors), dim)


def arange(end: DimExpr, dtype: str = "i64") -> Tensor:
    """Return 0, 1, .. below `end`, which may be a size."""
    return call("aten.arange.default", end, dtype=dtype)


def index_copy(x: Any, dim: int, index: Any, source: Any) -> Tensor:
    """Return x with `source` at the positions `index` of axis `dim`."""
    return call("aten.index_copy.default", x, dim, index, source)


def max_pool2d(x: Any, kernel_size: int, stride: int | None = None, padding: int = 0) -> Tensor:
    """Return the greatest value of each window."""
    sizes = ([kernel_size] * 2, [stride or kernel_size] * 2, [padding] * 2, [1, 1], False)
    return call("aten.max_pool2d.default", x, *sizes)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return softmax(scale * query key^T) value; a mask is bool (True keeps), or is added."""
    return call(
        "aten.scaled_dot_product_attention.default", query, key, value, attn_mask, 0.0, is_causal,
        scale=scale, enable_gqa=enable_gqa,
    )  # fmt: skip


def paged_attention(
    query: Any,
    keys: Any,
    values: Any,
    table: Any,
    offsets: Any,
    lengths: Any,
    scale: float,
    *,
    window: int = 0,
    soft_cap: float = 0.0,
    scales: Any = None,
) -> Tensor:
    """Return the causal attention [tokens, heads, v_size] of new tokens of many sequences to the keys and
    values in their pages of a cache.

    `query` f32[tokens, heads, size]; sequence s has the tokens `offsets[s]` .. `offsets[s + 1]` - 1, the last
    of its `lengths[s]` positions. Position p is slot 16 * table[s, p // 16] + p % 16 of `keys` [slots,
    kv_heads, size] and `values` [slots, kv_heads, v_size], f32 or bf16, or i8 with `scales` f32[slots,
    kv_heads, 2], of the keys and of the values; `table` is i32[sequences, pages], `offsets` and `lengths`
    i64. Query head h reads head h // (heads / kv_heads). A token sees the last
    `window` positions up to its own (0: all); `soft_cap` (0: none) limits scores by tanh. The bits of a
    token's result depend only on its query and on the keys and values that it sees.
    """
    given = (query, keys, values, table, offsets, lengths)
    rule = (float(scale), int(window), float(soft_cap))
    return call("shapevm.paged_attention.default", *given, *rule, scales)


def rope(x: Any, positions: Any, base: float = 10000.0) -> Tensor:
    """Return x [.., length, width] rotated by its positions i64[length], as Llama rotates queries and keys:
    the first half of the width pairs with the second."""
    width = int(x.shape[-1])
    halves = arange(width // 2).to("f32") * 2.0 / float(width)
    frequencies = call("aten.pow.Scalar", float(base), -halves)
    angles = positions.to("f32")[:, None] * frequencies[None, :]
    angles = cat([angles, angles], -1)
    turned = cat([-x[..., width // 2 :], x[..., : width // 2]], -1)
    return x * call("aten.cos.default", angles) + turned * call("aten.sin.default", angles)
