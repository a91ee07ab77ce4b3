"""Distances of pairs of vectors: torch's cdist and pdist."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.dims import DimExpr, simplify
from ..ir.graph import Builder, Value
from . import build as B
from .declare import Composite
from .reduce import vector_norm


def _norm_of_difference(b: Builder, x: Value, y: Value, p: float) -> Value:
    """(sum |x - y|^p)^(1/p) over the last axis, computed as in PyTorch's distance kernels."""
    difference = B.pointwise(b, "sub", x, y)
    if B.shape_of(difference)[-1] == 0:
        return B.full(b, 0, B.dtype_of(difference), B.shape_of(difference)[:-1])
    if p == np.inf:  # of no numbers it is 0 here, while norms refuse an empty axis
        last = len(B.shape_of(difference)) - 1
        found = B.reduce(b, "reduce_max", b.one("abs", difference), [last], False)
        return B.pointwise(b, "maximum", found, 0.0)
    return vector_norm(b, difference, p, [-1])


def cdist(b: Builder, x: Value, y: Value, p: float, compute_mode: int | None = None) -> Value:
    """The distance of every row of x to every row of y, for each batch."""
    x, y = B.add_axis(b, x, len(B.shape_of(x)) - 1), B.add_axis(b, y, len(B.shape_of(y)) - 2)
    return _norm_of_difference(b, x, y, p)


def pdist(b: Builder, x: Value, p: float = 2) -> Value:
    """The distance of every pair of rows, each pair once."""
    (n, _) = B.shape_of(x)
    first, second = _pairs(b, n)
    one, other = (b.one("gather", x, places, axis=0) for places in (first, second))
    return _norm_of_difference(b, one, other, p)


def _pairs(b: Builder, n: DimExpr) -> tuple[Value, Value]:
    """Return the first and the second of every pair of `n` rows, by the first one."""
    if isinstance(n, int):
        first, second = (b.constant(rows.astype(np.int64), "i64", "") for rows in np.triu_indices(n, 1))
        return first, second
    rows, pairs = B.iota(b, n), B.iota(b, B.divide(simplify(n * (n - 1)), 2))
    after = B.pointwise(b, "sub", simplify(2 * n - 1), rows)
    begun = B.pointwise(b, "shr", B.pointwise(b, "mul", rows, after), 1)  # by pairs with rows before
    lines = [B.reshape(b, line, [1, B.shape_of(line)[0]]) for line in (begun, pairs)]
    found = B.reshape(b, b.one("search", *lines, right=True), B.shape_of(pairs))
    first = B.pointwise(b, "sub", found, 1)
    steps = B.pointwise(b, "sub", pairs, b.one("gather", begun, first, axis=0))
    return first, B.pointwise(b, "add", B.pointwise(b, "add", steps, first), 1)


OPS: tuple[Any, ...] = ()
COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten._cdist_forward.default",), cdist),
    Composite(("aten._pdist_forward.default",), pdist),
)
