"""Reductions over pairs and groups of vectors: torch's cdist, pdist and embedding_bag."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ..dims import DimExpr, equal
from ..errors import UnsupportedOp
from ..ir import Builder, Value
from . import build as B
from .declare import Composite
from .gather import gather
from .pool import lowest
from .reduce import vector_norm


def _norm_of_difference(b: Builder, x: Value, y: Value, p: float) -> Value:
    """(sum |x - y|^p)^(1/p) over the last axis, computed as PyTorch's kernels of distances do."""
    difference = B.pointwise(b, "sub", x, y)
    if B.shape_of(difference)[-1] == 0:
        return B.full(b, 0, B.dtype_of(difference), B.shape_of(difference)[:-1])
    return vector_norm(b, difference, p, [-1])


def cdist(b: Builder, x: Value, y: Value, p: float, compute_mode: int | None = None) -> Value:
    """The distance of every row of x to every row of y, for each batch."""
    x, y = B.add_axis(b, x, len(B.shape_of(x)) - 1), B.add_axis(b, y, len(B.shape_of(y)) - 2)
    return _norm_of_difference(b, x, y, p)


def pdist(b: Builder, x: Value, p: float = 2) -> Value:
    """The distance of every pair of rows, each pair once."""
    (n, _) = B.shape_of(x)
    if not isinstance(n, int):
        raise UnsupportedOp("pdist: the number of rows depends on the input; use torch.cdist instead")
    first, second = np.triu_indices(n, 1)
    one, other = (
        b.one("gather", x, b.constant(places.astype(np.int64), "i64", ""), axis=0)
        for places in (first, second)
    )
    return _norm_of_difference(b, one, other, p)


# Bags of embeddings -----------------------------------------------------------------------------------

_SUM, _MEAN, _MAX = range(3)


def embedding_bag(
    b: Builder,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Value, None, None, None]:
    """The sum, mean or maximum of the weight's rows in every bag, for bags of one size (of 2-d indices).

    Raises UnsupportedOp for bags whose sizes depend on data. The other results only serve the backward pass.
    """
    size = _bag_size(indices, offsets, include_last_offset)
    bags = [B.shape_of(offsets)[0], size]
    indices = B.reshape(b, indices, bags)
    rows = gather(b, weight, indices, 0)
    kept = None if padding_idx < 0 else B.add_axis(b, B.pointwise(b, "ne", indices, padding_idx), 2)
    if mode == _MAX:
        return _largest(b, rows, kept), None, None, None
    factors = None if per_sample_weights is None else B.reshape(b, per_sample_weights, [*bags, 1])

    def compute(rows: Value, factors: Value | None) -> Value:
        rows = rows if factors is None else B.pointwise(b, "mul", rows, factors)
        rows = rows if kept is None else B.where(b, kept, rows, B.full(b, 0, B.dtype_of(rows)))
        total = B.reduce(b, "reduce_sum", rows, [1], False)
        return total if mode == _SUM else B.pointwise(b, "div", total, _n_kept(b, kept, size, total))

    return B.in_f32(b, compute, rows, factors), None, None, None


def _bag_size(indices: Value, offsets: Value, include_last_offset: bool) -> DimExpr:
    """Return the one size of all bags, where the offsets are known to be its multiples."""
    node = offsets.node
    if node is not None and node.op == "iota" and not include_last_offset and node.attrs["start"] == 0:
        size = node.attrs["step"]
        (n_bags,), (n,) = B.shape_of(offsets), B.shape_of(indices)
        if equal(B.product((n_bags, size)), n):
            return cast(DimExpr, size)
    raise UnsupportedOp(
        "embedding_bag: the bags have sizes that depend on data; give indices in 2 dimensions"
    )


def _n_kept(b: Builder, kept: Value | None, size: DimExpr, like: Value) -> Value:
    """Return by how much the sum of a bag is divided: never by 0."""
    dtype = B.dtype_of(like)
    if kept is None:
        return B.pointwise(b, "maximum", B.full(b, size, dtype), 1.0)
    count = B.reduce(b, "reduce_sum", B.cast_to(b, kept, dtype), [1], False)
    return B.pointwise(b, "maximum", count, 1.0)


def _largest(b: Builder, rows: Value, kept: Value | None) -> Value:
    """Return the maximum over axis 1 of the rows that are kept; 0 where there are none."""
    zero = B.full(b, 0, B.dtype_of(rows))
    if equal(B.shape_of(rows)[1], 0):
        return B.expand(b, zero, [B.shape_of(rows)[0], B.shape_of(rows)[2]])
    if kept is None:
        return B.reduce(b, "reduce_max", rows, [1], False)
    found = B.reduce(b, "reduce_max", B.where(b, kept, rows, lowest(B.dtype_of(rows))), [1], False)
    return B.where(b, B.reduce(b, "reduce_any", kept, [1], False), found, zero)


OPS: tuple[Any, ...] = ()
COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten._cdist_forward.default",), cdist),
    Composite(("aten._pdist_forward.default",), pdist),
    Composite(("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default"), embedding_bag),
)
