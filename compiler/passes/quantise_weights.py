"""`weights="int8"`: constant weights of matrix products become integers of one byte, with a scale a column.

The scale maps a column's greatest magnitude to 127; it multiplies the product's sums. Products with weights
that are not finite stay as they are.
"""

from __future__ import annotations

import numpy as np

from ..ir.graph import Block, Builder, Graph, Node, Value, erase, replace_uses
from ..ops import build as B

MAX_INTEGER = 127


def quantise_weights(graph: Graph) -> None:
    """Quantise the weights of products, where `Graph.weights` asks for it."""
    if graph.weights != "int8":
        return
    replaced: dict[Value, Value] = {}
    known: dict[Value, tuple[np.ndarray, np.ndarray] | None] = {}
    for block in graph.blocks():
        for node in [node for node in block.nodes if node.op == "matmul"]:
            _quantise(graph, block, node, known, replaced)
    graph.replace_results(replaced)


def _quantise(
    graph: Graph,
    block: Block,
    node: Node,
    known: dict[Value, tuple[np.ndarray, np.ndarray] | None],
    replaced: dict[Value, Value],
) -> None:
    """Put a product by integers, times the scales, in the place of `node`."""
    weight = node.arg(1)
    if weight.node is None or weight.node.op != "constant" or weight.tensor.dtype != "f32":
        return
    if weight not in known:
        known[weight] = quantised(weight.node.attrs["array"])
    found = known[weight]
    if found is None:
        return
    integers, scales = found
    name = str(weight.node.attrs["name"])
    b = Builder(graph, block, block.nodes.index(node))
    b.source = node.source
    result = b.one("matmul", node.arg(0), b.constant(integers, "f32", name))
    new = B.pointwise(b, "mul", result, b.constant(scales, "f32", f"{name}.scale"))
    replace_uses(node.result, new)
    replaced[node.result] = new
    erase(block, node)


def quantised(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
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
