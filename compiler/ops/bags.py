"""The values that torch's embedding_bag keeps for its gradient, and the gradient."""

from __future__ import annotations

from typing import Any

from ..ir.dims import DimExpr, simplify
from ..ir.errors import UnsupportedOp
from ..ir.graph import Builder, Value
from . import build as B
from .declare import Composite
from .gather import gather
from .scatter import scatter

SUM, MEAN, MAX = range(3)


def bag_of_each(b: Builder, indices: Value, offsets: Value) -> Value:
    """Return the number of the bag that each of n indices is in: i64 [n]."""
    (n,), (n_offsets,) = B.shape_of(indices), B.shape_of(offsets)
    starts = B.reshape(b, B.cast_to(b, offsets, "i64"), [1, n_offsets])
    found = b.one("search", starts, B.iota(b, n, 1, 2), right=True)
    return B.pointwise(b, "sub", B.reshape(b, found, [n]), 1)


def kept_for_gradient(
    b: Builder, weight: Value, indices: Value, offsets: Value, bags: Value, mode: int, padding_idx: int
) -> tuple[Value, Value, Value]:
    """Return torch's results besides the `bags`: the bag of each index, the number of indices of each bag,
    and for a maximum their source rows. As in PyTorch, a sum keeps zeros, and no bags where it is computed at
    once."""
    n_bags, width = B.shape_of(bags)
    is_quick = mode == SUM and padding_idx < 0 and B.dtype_of(weight) in ("f32", "f16")
    bag = bag_of_each(b, indices, offsets)
    kept_bag = B.full(b, 0, "i64", (0,)) if is_quick else bag
    if mode == SUM:
        zeros = B.full(b, 0, "i64", (n_bags,))
        return kept_bag, zeros, zeros
    counted = _unless_padding(b, B.full(b, 1, "i64", B.shape_of(indices)), indices, padding_idx)
    zero = B.full(b, 0, "i64", (1,))
    counts = scatter(b, zero, bag, counted, 0, "sum", (n_bags,))
    if mode == MEAN:
        return kept_bag, counts, counts
    return kept_bag, counts, _sources_of_maxima(b, weight, indices, bag, bags, padding_idx)


def _unless_padding(b: Builder, x: Value, indices: Value, padding_idx: int) -> Value:
    """Return x [n] or [n, width] with 0 for the index that does not count."""
    if padding_idx < 0:
        return x
    counts = B.pointwise(b, "ne", indices, padding_idx)
    counts = B.add_axis(b, counts, 1) if len(B.shape_of(x)) == 2 else counts
    return B.where(b, counts, x, B.full(b, 0, B.dtype_of(x)))


def _sources_of_maxima(
    b: Builder, weight: Value, indices: Value, bag: Value, bags: Value, padding_idx: int
) -> Value:
    """Return the row of the weight that is the maximum of each bag and column, the first of equal ones; 0
    where there is none."""
    (n,), (n_bags, width) = B.shape_of(indices), B.shape_of(bags)
    is_largest = B.pointwise(b, "eq", gather(b, weight, indices, 0), gather(b, bags, bag, 0))
    if padding_idx >= 0:
        counts = B.add_axis(b, B.pointwise(b, "ne", indices, padding_idx), 1)
        is_largest = B.pointwise(b, "and", is_largest, counts)
    place = B.where(b, is_largest, B.iota(b, n, 0, 2), B.full(b, n, "i64"))
    none = B.full(b, n, "i64", (1, 1))
    first = scatter(b, none, B.add_axis(b, bag, 1), place, 0, "min", (n_bags, width))
    line = B.concat(b, [B.cast_to(b, indices, "i64"), B.full(b, 0, "i64", (1,))], 0)
    return gather(b, line, first, 0)


# Gradients ----------------------------------------------------------------------------------------


def embedding_bag_backward(
    b: Builder,
    grad: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    bag_size: Value,
    maximum_indices: Value,
    num_weights: DimExpr,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Value | None,
    padding_idx: int = -1,
) -> Value:
    """The gradient of the weight [num_weights, width]: the contributions of each row to the bags."""
    if scale_grad_by_freq or sparse:
        raise UnsupportedOp("embedding_bag_backward: scale_grad_by_freq and sparse have no lowering")
    width = B.shape_of(grad)[1]
    shape = (simplify(num_weights), width)

    def compute(grad: Value, factors: Value | None) -> Value:
        zero = B.full(b, 0, B.dtype_of(grad), (1, 1))
        if mode == MAX:
            has_any = B.add_axis(b, B.pointwise(b, "ne", bag_size, 0), 1)
            share = B.where(b, has_any, grad, B.full(b, 0, B.dtype_of(grad)))
            return scatter(b, zero, maximum_indices, share, 0, "sum", shape)
        if mode == MEAN:
            count = B.cast_to(b, B.pointwise(b, "maximum", bag_size, 1), B.dtype_of(grad))
            grad = B.pointwise(b, "div", grad, B.add_axis(b, count, 1))
        rows = gather(b, grad, bag_of_each(b, indices, offsets), 0)
        rows = rows if factors is None else B.pointwise(b, "mul", rows, B.add_axis(b, factors, 1))
        rows = _unless_padding(b, rows, indices, padding_idx)
        return scatter(b, zero, B.add_axis(b, indices, 1), rows, 0, "sum", shape)

    return B.in_f32(b, compute, grad, per_sample_weights)


def per_sample_weights_backward(
    b: Builder,
    grad: Value,
    weight: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    mode: int,
    padding_idx: int = -1,
) -> Value:
    """The gradient of the factor of each index: the product of its row and its bag's gradient."""

    def compute(grad: Value, weight: Value) -> Value:
        of_bag = gather(b, grad, bag_of_each(b, indices, offsets), 0)
        products = B.pointwise(b, "mul", of_bag, gather(b, weight, indices, 0))
        found = B.reduce(b, "reduce_sum", products, [1], False)
        return _unless_padding(b, found, indices, padding_idx)

    return B.in_f32(b, compute, grad, weight)


OPS: tuple[Any, ...] = ()
COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten._embedding_bag_backward.default",), embedding_bag_backward),
    Composite(("aten._embedding_bag_per_sample_weights_backward.default",), per_sample_weights_backward),
)
