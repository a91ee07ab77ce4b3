"""Distances of pairs of vectors: torch's cdist and pdist."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import UnsupportedOp
from ..ir.graph import Builder, Value
from . import build as B
from .declare import Composite
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


OPS: tuple[Any, ...] = ()
COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten._cdist_forward.default",), cdist),
    Composite(("aten._pdist_forward.default",), pdist),
)
