"""Products of a run-time matrix by a vector, as sums of products along a row.

A tile of a product has rows and columns; with a single row or column, most of it would be empty, and a matrix
whose steps are adjacent would be copied first. Kernels of row sums read the matrix once, in place: lanes are
steps if these are adjacent in memory, else columns (`jit.families.nest`). The order of the sums is then that
of these kernels, on every tier.
"""

from __future__ import annotations

from ..ir.graph import Builder, Graph, Node, Value
from ..ops import build as B
from .rewrite import rewrite

LEAST_STEPS = 16  # in the lanes of a row's vector: fewer are summed faster by a product's tiles
LEAST_COLUMNS = 3  # adjacent in memory: with fewer, lanes are steps


def sum_products(graph: Graph) -> None:
    """Make sums of such products of f32. Constant matrices at the right have panels, and stay."""
    rewrite(graph, lambda b, node: _sums(b, node) if _is_of_vector(node) else None)


def _is_of_vector(node: Node) -> bool:
    """Whether a node is a product of f32 with one row or one column, and no constant at the right."""
    if node.op != "matmul" or node.result.tensor.dtype != "f32" or len(node.present) != 2:
        return False
    x, y = node.present
    is_packed = y.node is not None and y.node.op == "constant"
    if is_packed or {x.tensor.dtype, y.tensor.dtype} != {"f32"}:
        return False
    return any(map(B.is_one, node.result.tensor.shape[-2:])) and not _is_short(node)


def _is_short(node: Node) -> bool:
    """Whether a product is known to have few steps, which lie in the lanes of a vector."""
    steps, columns = node.arg(0).tensor.shape[-1], node.result.tensor.shape[-1]
    has_few = isinstance(columns, int) and columns < LEAST_COLUMNS
    return isinstance(steps, int) and steps < LEAST_STEPS and has_few


def _sums(b: Builder, node: Node) -> Value:
    """Return the product of x [batch.., M, K] by y [K, N] or [batch.., K, N], where M or N is 1."""
    x, y = node.present
    shape = B.shape_of(node.result)
    rank = len(B.shape_of(y))
    columns = B.permute(b, y, [*range(rank - 2), rank - 1, rank - 2])
    terms = B.pointwise(b, "mul", x, columns)  # one of them is repeated: [batch.., M or N, K]
    return B.reshape(b, b.one("reduce_sum", terms), shape)
