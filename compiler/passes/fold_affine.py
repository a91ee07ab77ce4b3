"""What is multiplied by and added to sums of integers, channel by channel, becomes one product and one sum.

A scale, a bias and a batch norm behind a product of bytes are constants for each column. Rounding changes, so
programs in f32 are left as they are: only products that rounding of activations made are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.graph import Builder, Graph, Node, Value
from ..lower.access import shape_of
from ..ops import build as B

VIEWS = ("expand", "reshape")


def fold_affine(graph: Graph, products: Sequence[Value]) -> None:
    """Fold what follows each of `products`, sums times a constant."""
    results = {value for block in graph.blocks() for value in block.results}
    for value in products:
        if value.node is not None and value.node.op == "mul":
            _fold(graph, value.node, results)


def _fold(graph: Graph, first: Node, results: set[Value]) -> None:
    sums, factor = with_vector(first)
    if sums is None or factor is None:
        return
    term, last = np.zeros(1), first
    while last.result not in results and (step := _step(last.result, factor, term)) is not None:
        last, factor, term = step
    if last is first or not (np.isfinite(factor).all() and np.isfinite(term).all()):
        return
    b = Builder(graph, graph.body, graph.body.nodes.index(last))
    b.source = last.source
    result = B.pointwise(b, "mul", sums, _constant(b, factor))
    if term.any():
        result = B.pointwise(b, "add", result, _constant(b, term))
    graph.replace(last.result, result)


def _step(value: Value, factor: np.ndarray, term: np.ndarray) -> tuple[Node, np.ndarray, np.ndarray] | None:
    """Return the only user of `value`, and the factor and the term with what it multiplies by or adds; None
    where it does something else."""
    users = list(dict.fromkeys(value.users))
    if len(users) != 1 or users[0].op not in ("mul", "add", "sub"):
        return None
    node = users[0]
    x, other = with_vector(node)
    if x is not value or other is None or (node.op == "sub" and node.arg(1) is value):
        return None
    if shape_of(node.result) != shape_of(value):
        return None
    if node.op == "mul":
        return node, factor * other, term * other
    return node, factor, term + other if node.op == "add" else term - other


def with_vector(node: Node) -> tuple[Value | None, np.ndarray | None]:
    """Return the other argument of a pointwise node and the numbers of one that `vector_of` knows."""
    if len(node.present) != 2:
        return None, None
    x, y = node.present
    for value, constant in ((x, y), (y, x)):
        if (numbers := vector_of(constant)) is not None:
            return value, numbers
    return None, None


def vector_of(value: Value) -> np.ndarray | None:
    """Return the numbers of a constant in f64, one for each index of the last axis or one for all; else
    None."""
    inner = value
    while inner.node is not None and inner.node.op in VIEWS:
        inner = inner.node.arg(0)
    node = inner.node
    if node is None or inner.tensor.dtype != "f32":
        return None
    if node.op == "full" and isinstance(node.attrs["value"], int | float):
        return np.array([float(node.attrs["value"])])
    if node.op != "constant":
        return None
    array = node.attrs["array"]
    is_last = array.size == 1 or (array.shape[-1] == array.size and shape_of(value)[-1] == array.size)
    return array.reshape(-1).astype(np.float64) if is_last else None


def _constant(b: Builder, numbers: np.ndarray) -> Value | float:
    if numbers.size == 1:
        return float(numbers[0])
    return b.constant(numbers.astype(np.float32), "f32", "affine")
