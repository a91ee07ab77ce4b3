"""flex_attention, which torch.export keeps whole: its functions of one score are imported as elementwise
functions of [batch, heads, queries, keys]. The blocks of its mask are ignored."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from math import inf, log
from types import CodeType
from typing import Any

import torch
from torch._dynamo.eval_frame import reset_code

from ..ir.dims import equal
from ..ir.errors import UnsupportedOp
from ..ir.graph import Builder, Value
from ..ops import build as B
from ..ops.matmul import matmul
from .fx_nodes import FxImporter
from .nodes import node_argument


def forget_traces() -> None:
    """Let flex_attention be retraced: it caches its traces in the process, and torch.export fixes a free size
    to that of another model when it checks whether a cached trace fits."""
    module = sys.modules.get("torch.nn.attention.flex_attention")
    inner = () if module is None else module.flex_attention.__code__.co_consts
    for code in inner:
        if isinstance(code, CodeType):
            reset_code(code)


def flex_attention(importer: FxImporter, node: torch.fx.Node) -> list[Any]:
    """Append softmax(mask(score(q @ k * scale))) @ v, in which a row without keys is 0, and the logarithm of
    each row's sum to base 2, as in PyTorch."""
    used = [user.args[1] for user in node.users if user.target is operator.getitem and user.users]
    if 2 in used:
        raise UnsupportedOp(
            "flex_attention: its greatest scores cannot be compiled, as PyTorch has none on CPUs"
        )
    b = importer.builder
    q, k, v = (importer.values[node_argument(node, i)] for i in range(3))
    dtype = B.dtype_of(q)
    q, k, v = (B.cast_to(b, x, "f64" if dtype == "f64" else "f32") for x in (q, k, v))
    k, v = (_of_heads(b, x, B.shape_of(q)) for x in (k, v))
    given: tuple[Any, ...] = node.args[3:9]
    score, blocks, scale, _, rest_of_score, rest_of_mask = given
    products = matmul(b, q, B.permute(b, k, [0, 1, 3, 2]))
    scores = B.pointwise(b, "mul", products, importer.values_of(scale))
    scores = _applied(importer, score, [scores], B.shape_of(scores), rest_of_score)
    allowed = _applied(importer, blocks[-1], [], B.shape_of(scores), rest_of_mask)
    scores = B.where(b, allowed, scores, B.full(b, -inf, B.dtype_of(scores)))
    most = B.reduce(b, "reduce_max", scores, [3], True)
    chances = b.one("softmax", scores, axis=3)
    chances = B.where(b, B.pointwise(b, "eq", most, -inf), B.full(b, 0, B.dtype_of(scores)), chances)
    sums = _of_sums(b, scores, most) if 1 in used else None
    return [B.cast_to(b, matmul(b, chances, v), dtype), sums, None]


def _of_sums(b: Builder, scores: Value, most: Value) -> Value:
    """Return the logarithm to base 2 of each row's sum of exp(scores); of a row without keys it is -inf."""
    by = B.where(b, B.pointwise(b, "eq", most, -inf), B.full(b, 0, B.dtype_of(scores)), most)
    total = B.reduce(b, "reduce_sum", b.one("exp", B.pointwise(b, "sub", scores, by)), [3], True)
    found = B.pointwise(b, "add", b.one("log", total), by)
    return B.reshape(b, B.pointwise(b, "div", found, log(2)), B.shape_of(found)[:3])


def _of_heads(b: Builder, x: Value, wanted: Sequence[Any]) -> Value:
    """Return keys or values for each head of the queries; a group of heads shares one."""
    batch, heads, length, width = B.shape_of(x)
    if not equal(heads, wanted[1]):
        groups = B.divide(wanted[1], heads)
        x = B.expand(b, B.add_axis(b, x, 2), (batch, heads, groups, length, width))
        x = B.reshape(b, x, (batch, wanted[1], length, width))
    return B.expand(b, x, (wanted[0], wanted[1], length, width))


def _applied(
    importer: FxImporter, function: Any, given: Sequence[Value], shape: Sequence[Any], rest: Any
) -> Value:
    """Return a function of (`given`.., batch, head, query, key, `rest`..) at every index of `shape`."""
    b = importer.builder
    places = [B.cast_to(b, B.iota(b, size, axis, 4), "i32") for axis, size in enumerate(shape)]
    graph = importer.values[function]
    (made,) = importer.import_elementwise(graph, [*given, *places, *importer.values_of(rest)])
    return B.expand(b, made, tuple(shape))
