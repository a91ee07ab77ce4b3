"""Reading and writing by index."""

from __future__ import annotations

from typing import Any

from ....ir.dims import product
from ....ir.errors import UnsupportedOp
from ....ir.graph import Value
from ....ops import build as B
from ....ops.gather import counting, gather
from ....ops.nonzero import unique, unique_dim
from ....ops.sort import first_of
from ..known import Known
from ..rows import Call, row


def _index(call: Call, i: int, size: Any) -> Value:
    """Return input `i` as positions from the front; negative ones count from the end."""
    index = B.cast_to(call.b, call.value(i), "i64")
    found = call.input(i)
    if isinstance(found, Known) and not found.is_symbolic and found.items.size and found.items.min() >= 0:
        return index
    counted = counting(index)
    if counted is not None and B.is_size(call.b, counted.start):
        return index
    return _from_front(call, index, size)


def _from_front(call: Call, index: Value, size: Any) -> Value:
    """Return positions of which negative ones count from the end of an axis."""
    end = B.pointwise(call.b, "add", index, B.full(call.b, size, "i64"))
    return B.where(call.b, B.pointwise(call.b, "lt", index, 0), end, index)


@row("Gather")
def _gather(call: Call) -> Value:
    x = call.value(0)
    axis = call.axis("axis", len(B.shape_of(x)), 0)
    index = call.input(1)
    if isinstance(index, Known) and index.items.ndim == 0:
        return call.aten("select.int", x, axis, index.dims[0])
    size = B.shape_of(x)[axis]
    return gather(call.b, x, _index(call, 1, size), axis)


@row("GatherElements")
def _gather_elements(call: Call) -> Value:
    x = call.value(0)
    axis = call.axis("axis", len(B.shape_of(x)), 0)
    return call.aten("gather", x, axis, _index(call, 1, B.shape_of(x)[axis]))


@row("GatherND")
def _gather_nd(call: Call) -> Value:
    b, x = call.b, call.value(0)
    n_batch, shape = call.attr("batch_dims", 0), B.shape_of(x)
    index = B.cast_to(b, call.value(1), "i64")
    *outer, depth = B.shape_of(index)
    if not isinstance(depth, int):
        raise UnsupportedOp("GatherND: the last axis of the indices has a free size; it must be a constant")
    rank = len(outer)
    parts: list[Any] = [B.reshape(b, B.iota(b, shape[i]), [-1 if j == i else 1 for j in range(rank)])
                        for i in range(n_batch)]  # fmt: skip
    columns = _columns(index, rank) or [B.take(b, index, rank, i, 1) for i in range(depth)]
    return call.aten("index.Tensor", x, [*parts, *(B.drop_axis(b, each, rank) for each in columns)])


def _columns(index: Value, axis: int) -> list[Value]:
    """Return the tensors of size 1 along an axis of which an index is put together; nothing if it is not."""
    node = index.node
    is_split = node is not None and node.op == "concat" and node.attrs["axis"] == axis
    parts = node.present if is_split and node is not None else []
    return parts if all(B.is_one(B.shape_of(part)[axis]) for part in parts) else []


_REDUCTIONS = {"add": "sum", "mul": "prod", "min": "amin", "max": "amax"}


@row("ScatterElements", "Scatter")
def _scatter_elements(call: Call) -> Value:
    x = call.value(0)
    axis = call.axis("axis", len(B.shape_of(x)), 0)
    index, updates = _index(call, 1, B.shape_of(x)[axis]), call.value(2)
    how = call.attr("reduction", "none")
    if how == "none":
        return call.aten("scatter.src", x, axis, index, updates)
    return call.aten("scatter_reduce.two", x, axis, index, updates, _REDUCTIONS[how], include_self=True)


@row("ScatterND")
def _scatter_nd(call: Call) -> Value:
    b, x = call.b, call.value(0)
    index, updates = B.cast_to(b, call.value(1), "i64"), call.value(2)
    *outer, depth = B.shape_of(index)
    if not isinstance(depth, int):
        raise UnsupportedOp("ScatterND: the last axis of the indices has a free size; it must be a constant")
    parts = [B.drop_axis(b, B.take(b, index, len(outer), i, 1), len(outer)) for i in range(depth)]
    how = call.attr("reduction", "none")
    if how in ("none", "add"):
        return call.aten("index_put", x, parts, updates, how == "add")
    return _scatter_rows(call, x, parts, updates, _REDUCTIONS[how])


def _scatter_rows(call: Call, x: Value, parts: list[Value], updates: Value, how: str) -> Value:
    """Combine updates with the elements that lists of indices name, by merging the indexed axes."""
    b, shape, n = call.b, B.shape_of(x), len(parts)
    place = None
    for size, part in zip(shape, parts, strict=False):
        part = _from_front(call, part, size)
        place = part if place is None else B.pointwise(
            b, "add", B.pointwise(b, "mul", place, B.full(b, size, "i64")), part)  # fmt: skip
    assert place is not None
    count, rest = product(B.shape_of(place)), shape[n:]
    rows = B.reshape(b, x, [product(shape[:n]), *rest])
    index = B.expand(b, B.reshape(b, place, [count, *[1] * len(rest)]), [count, *rest])
    source = B.reshape(b, updates, [count, *rest])
    made = call.aten("scatter_reduce.two", rows, 0, index, source, how, include_self=True)
    return B.reshape(b, made, shape)


@row("NonZero")
def _nonzero(call: Call) -> Value:
    return B.permute(call.b, call.aten("nonzero", call.value(0)), [1, 0])


@row("Compress")
def _compress(call: Call) -> Value:
    b, x, mask = call.b, call.value(0), call.value(1)
    if call.attr("axis") is None:
        x = B.reshape(b, x, [-1])
        axis = 0
    else:
        axis = call.axis("axis", len(B.shape_of(x)))
    places = call.aten("nonzero", mask)
    return b.one("gather", x, B.reshape(b, places, [B.shape_of(places)[0]]), axis=axis)


@row("OneHot")
def _one_hot(call: Call) -> Value:
    b, index = call.b, call.value(0)
    shape = B.shape_of(index)
    axis = call.attr("axis", -1)
    axis = axis + len(shape) + 1 if axis < 0 else axis
    depth = call.size(1)
    values = call.value(2)
    off, on = (B.reshape(b, B.take(b, values, 0, i, 1), []) for i in (0, 1))
    index = B.add_axis(b, _from_front(call, B.cast_to(b, index, "i64"), depth), axis)
    places = B.iota(b, depth, axis, len(shape) + 1)
    return B.where(b, B.pointwise(b, "eq", places, index), on, off)


@row("ReverseSequence")
def _reverse_sequence(call: Call) -> Value:
    b, x, lengths = call.b, call.value(0), call.value(1)
    time, batch, rank = call.attr("time_axis", 0), call.attr("batch_axis", 1), len(B.shape_of(x))
    size = B.shape_of(x)[time]
    ends = B.reshape(b, lengths, [B.shape_of(x)[batch] if i == batch else 1 for i in range(rank)])
    places = B.iota(b, size, time, rank)
    turned = B.pointwise(b, "sub", B.pointwise(b, "sub", ends, 1), places)
    index = B.where(b, B.pointwise(b, "lt", places, ends), turned, places)
    return call.aten("gather", x, time, B.expand(b, index, B.shape_of(x)))


@row("TensorScatter")
def _tensor_scatter(call: Call) -> Value:
    """Write updates at each row's own place along an axis."""
    b, x, updates = call.b, call.value(0), call.value(1)
    shape = B.shape_of(x)
    axis = call.axis("axis", len(shape), -2)
    index = B.iota(b, B.shape_of(updates)[axis], axis, len(shape))
    if call.has(2):
        starts = B.reshape(b, call.value(2), [shape[0], *[1] * (len(shape) - 1)])
        index = B.pointwise(b, "add", index, starts)
    mode = call.attr("mode", "linear")
    if mode == "circular":
        index = B.pointwise(b, "mod", index, B.full(b, shape[axis], "i64"))
    elif mode != "linear":
        raise UnsupportedOp(f"TensorScatter: the mode {mode!r} is neither linear nor circular")
    return call.aten("scatter.src", x, axis, B.expand(b, index, B.shape_of(updates)), updates)


@row("Unique")
def _unique(call: Call) -> tuple[Value, Value, Value, Value]:
    """The distinct elements or slices, where each comes first, where each element went, and counts."""
    b, x = call.b, call.value(0)
    if call.attr("axis") is None:
        axis, x = 0, B.reshape(b, x, [product(B.shape_of(x))])
        values, inverse, counts = unique(b, x, True, True, True)
    else:
        axis = call.axis("axis", len(B.shape_of(x)))
        values, inverse, counts = unique_dim(b, x, axis, True, True, True)
    size, count = B.shape_of(x)[axis], B.shape_of(counts)[0]
    last = B.full(b, size, "i64", (count,))
    first = call.aten("scatter_reduce.two", last, 0, inverse, B.iota(b, size), "amin", include_self=True)
    if call.attr("sorted", 1):
        return values, first, inverse, counts
    first, order = first_of(b, call.op, first, 0, None, False)
    back = first_of(b, call.op, order, 0, None, False)[1]
    values, counts = (b.one("gather", v, order, axis=at) for v, at in ((values, axis), (counts, 0)))
    return values, first, b.one("gather", back, inverse, axis=0), counts
