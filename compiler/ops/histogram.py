"""Frequencies of values: modes and histograms."""

from __future__ import annotations

from typing import Any

from ..ir.dims import DimExpr, simplify
from ..ir.errors import UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.promotion import is_float
from . import build as B
from .conditions import require_elements
from .declare import Composite, Op
from .gather import torch_gather
from .pool import line_of
from .reduce import place_of
from .scatter import scatter
from .sort import first_of

OPS: tuple[Op, ...] = ()


def mode(b: Builder, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The most frequent element along an axis, the smallest of several, and its last index."""
    if not B.shape_of(x):
        return x, B.full(b, 0, "i64")
    axis = B.axis_of("mode", dim, len(B.shape_of(x)))
    require_elements(b, "mode", B.shape_of(x)[axis])
    values, places = first_of(b, "mode", x, axis, None, False)
    counts = _run_lengths(b, values, axis)
    best = place_of(b, "max", counts, axis, True)
    found = [torch_gather(b, part, axis, best) for part in (values, places)]
    first, second = found if keepdim else [B.drop_axis(b, part, axis) for part in found]
    return first, second


def _run_lengths(b: Builder, values: Value, axis: int) -> Value:
    """Return the length of each run of equal elements along an axis, at its end, and 0 elsewhere."""
    shape = B.shape_of(values)
    length, rest = shape[axis], simplify(shape[axis] - 1)
    at = B.iota(b, length, axis, len(shape))
    first, last = (B.take(b, values, axis, place, 1) for place in (0, rest))
    before = B.concat(b, [first, B.take(b, values, axis, 0, rest)], axis)
    after = B.concat(b, [B.take(b, values, axis, 1, rest), last], axis)
    starts = B.pointwise(b, "or", B.pointwise(b, "eq", at, 0), B.pointwise(b, "ne", values, before))
    ends = B.pointwise(b, "or", B.pointwise(b, "eq", at, rest), B.pointwise(b, "ne", values, after))
    lines = B.where(b, starts, at, B.full(b, 0, "i64"))
    sizes = [B.product(shape[:axis]), length, B.product(shape[axis + 1 :])]
    began = B.reshape(b, b.apply("scan", B.reshape(b, lines, sizes), function="max")[0], shape)
    counts = B.pointwise(b, "add", B.pointwise(b, "sub", at, began), 1)
    return B.where(b, ends, counts, B.full(b, 0, "i64"))


# Histograms ---------------------------------------------------------------------------------------


def _ends(b: Builder, line: Value, low: float, high: float, margin: float) -> tuple[Value, Value]:
    """Return the ends of a histogram's range: those given, else the data's; equal ones move by a margin."""
    dtype = B.dtype_of(line)
    if low != high:
        return B.full(b, low, dtype), B.full(b, high, dtype)
    if B.shape_of(line)[0] == 0:
        return B.full(b, 0, dtype), B.full(b, 1, dtype)
    least, most = (B.reduce(b, f"reduce_{kind}", line, [0], False) for kind in ("min", "max"))
    is_empty = B.pointwise(b, "gt", least, most)  # of no elements: infinity and minus infinity
    least, most = (B.where(b, is_empty, B.full(b, n, dtype), end) for n, end in ((0, least), (1, most)))
    same = B.pointwise(b, "eq", least, most)
    wider = [B.pointwise(b, "add", end, by) for end, by in ((least, -margin), (most, margin))]
    return B.where(b, same, wider[0], least), B.where(b, same, wider[1], most)


def _counted(b: Builder, places: Value, inside: Value, weights: Value, bins: DimExpr) -> Value:
    """Return the sums of weights at indices below `bins`, of elements inside of the range."""
    kept = B.where(b, inside, places, B.full(b, bins, "i64"))
    none = B.full(b, 0, B.dtype_of(weights), (1,))
    found = scatter(b, none, kept, weights, 0, "sum", (simplify(bins + 1),))
    return B.take(b, found, 0, 0, bins)


def _inside(b: Builder, line: Value, low: Value, high: Value) -> Value:
    return B.pointwise(b, "and", B.pointwise(b, "ge", line, low), B.pointwise(b, "le", line, high))


def _line(b: Builder, op: str, x: Value) -> Value:
    if not is_float(B.dtype_of(x)):
        raise UnsupportedOp(f"{op}: the dtype is {B.dtype_of(x)}; it must be a float")
    return B.reshape(b, x, [B.product(B.shape_of(x))])


def histc(b: Builder, x: Value, bins: int = 100, low: float = 0, high: float = 0) -> Value:
    """The number of elements in each of `bins` equal parts of a range."""
    line = _line(b, "histc", x)
    first, last = _ends(b, line, low, high, 1.0)
    inside = _inside(b, line, first, last)
    part = B.pointwise(b, "mul", B.pointwise(b, "sub", line, first), float(bins))
    part = B.pointwise(b, "div", part, B.pointwise(b, "sub", last, first))
    part = B.where(b, inside, part, B.full(b, 0, B.dtype_of(x)))
    places = B.pointwise(b, "minimum", B.cast_to(b, part, "i64"), bins - 1)
    ones = B.full(b, 1, B.dtype_of(x), B.shape_of(line))
    return _counted(b, places, inside, ones, bins)


def _histogram(
    b: Builder, x: Value, edges: Value, weight: Value | None, density: bool
) -> tuple[Value, Value]:
    line, n = _line(b, "histogram", x), B.shape_of(edges)[0]
    bins = simplify(n - 1)
    first, last = (B.take(b, edges, 0, place, 1) for place in (0, bins))
    inside = _inside(b, line, first, last)
    rows = [B.reshape(b, part, [1, B.shape_of(part)[0]]) for part in (edges, line)]
    found = B.reshape(b, b.one("search", *rows, right=True), B.shape_of(line))
    places = B.pointwise(b, "minimum", B.pointwise(b, "sub", found, 1), simplify(bins - 1))
    weights = B.full(b, 1, B.dtype_of(x), B.shape_of(line))
    if weight is not None:
        weights = B.cast_to(b, B.reshape(b, weight, B.shape_of(line)), B.dtype_of(x))
    counts = _counted(b, places, inside, weights, bins)
    if density:
        widths = B.pointwise(b, "sub", B.take(b, edges, 0, 1, bins), B.take(b, edges, 0, 0, bins))
        total = B.reduce(b, "reduce_sum", counts, [0], False)
        counts = B.pointwise(b, "div", B.pointwise(b, "div", counts, total), widths)
    return counts, edges


def histogram(
    b: Builder,
    x: Value,
    bins: int = 100,
    *,
    range: Any = None,
    weight: Value | None = None,
    density: bool = False,
) -> tuple[Value, Value]:
    """The number of elements, or their weight, in each of `bins` equal parts of a range; the edges."""
    line = _line(b, "histogram", x)
    low, high = range or (0.0, 0.0)
    first, last = _ends(b, line, low, high, 0.5)
    dtype = B.dtype_of(x)
    step = B.pointwise(b, "div", B.pointwise(b, "sub", last, first), float(bins))
    up = B.cast_to(b, line_of(b, bins + 1), dtype)
    down = B.pointwise(b, "sub", float(bins), up)
    rising = B.pointwise(b, "add", first, B.pointwise(b, "mul", step, up))
    falling = B.pointwise(b, "sub", last, B.pointwise(b, "mul", step, down))
    edges = B.where(b, B.pointwise(b, "lt", up, float((bins + 1) // 2)), rising, falling)
    return _histogram(b, x, edges, weight, density)


def histogram_of_edges(
    b: Builder, x: Value, edges: Value, *, weight: Value | None = None, density: bool = False
) -> tuple[Value, Value]:
    """The number of elements, or their weight, between edges; the edges."""
    if B.dtype_of(edges) != B.dtype_of(x) or len(B.shape_of(edges)) != 1:
        raise UnsupportedOp("histogram: the edges must have one axis and the input's dtype")
    return _histogram(b, x, edges, weight, density)


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.mode.default",), mode),
    Composite(("aten.histc.default",), histc),
    Composite(("aten.histogram.bin_ct",), histogram),
    Composite(("aten.histogram.bins_tensor",), histogram_of_edges),
)
