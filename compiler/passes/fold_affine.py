"""Factors and terms of channels after sums of integers become one multiply-add.

A scale, a bias and a batch norm after a product of bytes are constants for each column. An added residual is
usually dequantised, or another such product: it is also a multiply-add, and the operations after the sum of
both become part of the constants. This changes rounding, so it applies only to products that quantisation of
activations has made, not to programs in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..ir.graph import Builder, Graph, Node, Value
from ..lower.access import shape_of
from ..ops import build as B

VIEWS = ("expand", "reshape")


@dataclass(frozen=True)
class Affine:
    """The sum of values times factors, and a term, by channel."""

    parts: tuple[tuple[Value, np.ndarray], ...]
    term: np.ndarray

    def times(self, factor: np.ndarray) -> Affine:
        """Return the value times a factor."""
        return Affine(tuple((x, old * factor) for x, old in self.parts), self.term * factor)

    def plus(self, term: np.ndarray) -> Affine:
        """Return the value plus a term."""
        return replace(self, term=self.term + term)

    @property
    def is_finite(self) -> bool:
        """Whether all its constants are finite in f32."""
        limit = np.finfo(np.float32).max
        return all((np.abs(x) <= limit).all() for x in (self.term, *(factor for _, factor in self.parts)))

    def emit(self, b: Builder) -> Value:
        """Return its value."""
        (first, factor), *others = self.parts
        if not others and not self.term.any():
            return B.pointwise(b, "mul", first, _constant(b, factor))
        result: Value | float = _constant(b, self.term)
        for value, other in (*others, (first, factor)):
            result = B.pointwise(b, "fma", value, _constant(b, other), result)
        assert isinstance(result, Value)
        return result


def fold_affine(graph: Graph, products: Sequence[Value]) -> None:
    """Fold the operations after each of `products`, sums times a constant."""
    results = {value for block in graph.blocks() for value in block.results}
    for value in products:
        if value.node is not None and value.node.op == "mul" and value.users:
            _fold(graph, value.node, results)


def _fold(graph: Graph, first: Node, results: set[Value]) -> None:
    sums, factor = with_vector(first)
    if sums is None or factor is None:
        return
    found, last = Affine(((sums, factor),), np.zeros(1)), first
    while last.result not in results and (step := _step(last.result, found)) is not None:
        last, found = step
    if last is first or not found.is_finite:
        return
    b = Builder(graph, graph.body, graph.body.nodes.index(last))
    b.source = last.source
    graph.replace(last.result, found.emit(b))


def _step(value: Value, so_far: Affine) -> tuple[Node, Affine] | None:
    """Return the only user of `value`, which represents `so_far`, and its result as an `Affine`; None for any
    other operation."""
    users = list(dict.fromkeys(value.users))
    if len(users) != 1 or users[0].op not in ("mul", "add", "sub"):
        return None
    node = users[0]
    if shape_of(node.result) != shape_of(value) or (node.op == "sub" and node.arg(0) is not value):
        return None
    x, other = with_vector(node)
    if x is value and other is not None:
        if node.op == "mul":
            return node, so_far.times(other)
        return node, so_far.plus(other if node.op == "add" else -other)
    return _with_residual(node, value, so_far)


def _with_residual(node: Node, value: Value, so_far: Affine) -> tuple[Node, Affine] | None:
    """Return a sum of `value` and a residual that is a value times a factor; else None."""
    if node.op != "add" or len(so_far.parts) > 1 or node.arg(0) is node.arg(1):
        return None
    residual = _affine(node.arg(1) if node.arg(0) is value else node.arg(0))
    if residual is None:
        return None
    return node, Affine((*so_far.parts, *residual.parts), so_far.term + residual.term)


def _affine(value: Value) -> Affine | None:
    """Return a residual as a multiply-add of bytes, or of a value without other users."""
    node = value.node
    if node is None or len(node.present) != 2 or node.op not in ("mul", "add", "sub"):
        return None
    x, numbers = with_vector(node)
    if x is None or numbers is None or shape_of(x) != shape_of(value):
        return None
    if (node.op == "sub" and node.arg(0) is not x) or not (_is_of_bytes(x) or len(set(x.users)) == 1):
        return None
    inner = _affine(x) or Affine(((x, np.ones(1)),), np.zeros(1))
    if node.op == "mul":
        return inner.times(numbers)
    return inner.plus(numbers if node.op == "add" else -numbers)


def _is_of_bytes(value: Value) -> bool:
    """Whether a value consists of bytes and constants, so that its readers can compute it."""
    node = value.node
    if node is None or node.op == "cast":
        return node is not None and node.arg(0).tensor.dtype == "u8"
    x, _ = with_vector(node)
    return node.op in ("mul", "add", "sub") and x is not None and _is_of_bytes(x)


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
