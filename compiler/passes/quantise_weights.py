"""`weights="int8"`: constant weights of matrix products become integers of one byte, with a scale a column.

The scale maps a column's greatest magnitude to 127; it multiplies the product's sums. Products with weights
that are not finite stay as they are.
"""

from __future__ import annotations

import numpy as np

from ..ir.graph import Builder, Graph, Node, Value
from ..ops import build as B
from .rewrite import rewrite

MAX_INTEGER = 127

Quantised = tuple[np.ndarray, np.ndarray]  # integers and scales


def quantise_weights(graph: Graph) -> None:
    """Quantise the weights of products, where `Graph.weights` asks for it."""
    if graph.weights != "int8":
        return
    known: dict[Value, Quantised | None] = {}  # a weight may have several readers
    rewrite(graph, lambda b, node: _by_integers(b, node, known) if node.op == "matmul" else None)


def _by_integers(b: Builder, node: Node, known: dict[Value, Quantised | None]) -> Value | None:
    """Return a product by a constant as one by integers, times the scales."""
    weight = node.arg(1)
    if weight.node is None or weight.node.op != "constant" or weight.tensor.dtype != "f32":
        return None
    if weight not in known:
        known[weight] = quantised(weight.node.attrs["array"])
    found = known[weight]
    if found is None:
        return None
    integers, scales = found
    name = str(weight.node.attrs["name"])
    result = b.one("matmul", node.arg(0), b.constant(integers, "f32", name))
    return B.pointwise(b, "mul", result, b.constant(scales, "f32", f"{name}.scale"))


def quantised(weight: np.ndarray) -> Quantised | None:
    """Return the integers of a weight [K, N], in f32, and the scale of each column; None where it has no
    columns of finite numbers, or holds integers of a byte already."""
    if weight.ndim != 2 or not weight.size or not np.isfinite(weight).all():
        return None
    greatest = np.abs(weight).max(0)
    scales = np.where(greatest > 0, greatest / np.float32(MAX_INTEGER), np.float32(1)).astype(np.float32)
    if not scales.all():  # of subnormal columns
        return None
    integers = np.rint(weight / scales).astype(np.float32) + np.float32(0)  # no zero is negative
    is_whole = greatest.max() <= MAX_INTEGER and np.array_equal(weight, np.rint(weight))
    return None if is_whole else (integers, scales)
