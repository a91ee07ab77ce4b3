"""Choosing elements by index tensors: `gather` and torch's overloads.

Indices that are known to be 0, 1, 2, ... (aranges, position ids) become views: transformers index masks and
position tables with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from ..ir.dims import DimExpr, equal, product, simplify
from ..ir.errors import ShapeError, UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.ranges import always_at_most
from ..ir.types import TensorType, Type
from . import build as B
from .declare import Composite, Op, Sample
from .rules import Attrs, Types, check_axis, check_dtype, same_dtype, same_shape, tensors


def _infer_gather(types: Types, attrs: Attrs) -> Sequence[Type]:
    table, index = tensors("gather", types, 2)
    check_axis("gather", attrs["axis"], table.rank)
    check_dtype("gather", index.dtype, ["i64", "i32"])
    axis = attrs["axis"]
    return (TensorType(table.dtype, (*table.shape[:axis], *index.shape, *table.shape[axis + 1 :])),)


def _gather(args: Sequence[Any], attrs: Attrs) -> Any:
    table, index = args
    size = table.shape[attrs["axis"]]
    wrong = index[(index < 0) | (index >= size)]
    if wrong.size:
        raise ShapeError(f"gather: index {wrong[0]} is outside of an axis of size {size}")
    return np.take(table, index, axis=attrs["axis"])


def _infer_place(types: Types, attrs: Attrs) -> Sequence[Type]:
    index, given = tensors("place", types, 2)
    check_dtype("place", same_dtype("place", [index, given]), ["i64"])
    return (TensorType("i64", same_shape("place", [index, given])),)


def _place(args: Sequence[Any], attrs: Attrs) -> Any:
    index, given = args
    wrong = given[(index < 0) | (index >= attrs["size"])]
    if wrong.size:
        raise ShapeError(f"place: index {wrong[0]} is outside of an axis of size {attrs['size']}")
    return index


def _example(table: str, index: str, axis: int, size: int) -> Sample:
    return Sample((table, index), {"axis": axis}, f"index:{size}")


OPS: tuple[Op, ...] = (
    Op(
        "gather",
        "gather",
        "gather(Tensor table, Tensor index; axis) -> Tensor",
        "table[.., index, ..] along one axis: shape table.shape[:axis] + index.shape + table.shape[axis+1:]. "
        "Indices are not negative; one that is out of range is an error when it runs.",
        _infer_gather,
        _gather,
        samples=(
            _example("f32[9, 4]", "i64[s0, 3]", 0, 9),
            _example("f32[2, 5, s0]", "i32[s1]", 1, 5),
            _example("f32[7]", "i64[]", 0, 7),
            _example("f32[3, 1]", "i64[0]", 0, 3),
            _example("i64[1, s0]", "i64[1]", 0, 1),
        ),
        errors=(
            (_example("f32[3]", "i64[2]", 1, 3), "gather: axis is 1; a tensor of rank 1 has axes 0 to 0"),
            (_example("f32[3]", "f32[2]", 0, 3), "gather: the dtype is f32; it takes i32, i64"),
        ),
    ),
    Op(
        "place",
        "pointwise",
        "place(Tensor index, Tensor given; size) -> Tensor",
        "index, an integer from 0 to below `size`. One that is none is an error when it runs, which names "
        "what was given for it.",
        _infer_place,
        _place,
        scalar="checked",
        samples=(
            Sample(("i64[2, s0]", "i64[2, s0]"), {"size": 9}, "index:9"),
            Sample(("i64[]", "i64[]"), {"size": 1}, "index:1"),
            Sample(("i64[0]", "i64[0]"), {"size": 3}, "index:3"),
        ),
        errors=((Sample(("i32[3]", "i32[3]"), {"size": 3}), "place: the dtype is i32; it takes i64"),),
    ),
)


MAX_COUNTED = 1 << 16  # elements of a constant that is compared with 0, 1, 2, ...

# Known indices ------------------------------------------------------------------------------------


class Counting(NamedTuple):
    """An index tensor that is start + position along `axis` and the same along all others; `axis` None:
    start."""

    axis: int | None
    start: DimExpr


def counting(x: Value) -> Counting | None:
    """Return how `x` counts up, if its definition shows it, else None."""
    node = x.node
    if node is None:
        return None
    if node.op == "full":
        return Counting(None, node.attrs["value"])
    if node.op == "iota":
        return Counting(0, node.attrs["start"]) if node.attrs["step"] == 1 else None
    if node.op == "constant":
        return _counting_constant(node.attrs["array"])
    if node.op not in ("reshape", "expand", "slice", "permute", "cast"):
        return None
    inner = node.arg(0)
    found = counting(inner)
    if found is None or found.axis is None or node.op == "cast":
        return found
    return _through(node.op, node.attrs, B.shape_of(inner), B.shape_of(x), found)


def _counting_constant(array: np.ndarray) -> Counting | None:
    """Return how a table of integers, such as a model's position ids, counts up."""
    if array.dtype.kind != "i" or not 0 < array.size <= MAX_COUNTED:
        return None
    start = int(array.reshape(-1)[0])
    if (array == start).all():
        return Counting(None, start)
    axis = next(axis for axis, size in enumerate(array.shape) if size > 1)
    line = np.arange(start, start + array.shape[axis])
    counts = (array == line.reshape(-1, *[1] * (array.ndim - axis - 1))).all()
    return Counting(axis, start) if counts else None


def _through(
    op: str, attrs: dict[str, Any], old: Sequence[DimExpr], new: Sequence[DimExpr], found: Counting
) -> Counting | None:
    axis = cast(int, found.axis)
    if op == "permute":
        return Counting(attrs["axes"].index(axis), found.start)
    if op == "expand":
        return Counting(axis + len(new) - len(old), found.start)
    if op == "slice":
        if attrs["axis"] != axis:
            return found
        return Counting(axis, simplify(found.start + attrs["start"])) if attrs["step"] == 1 else None
    kept = [i for i, size in enumerate(old) if not B.is_one(size)]
    placed = [i for i, size in enumerate(new) if not B.is_one(size)]
    if [old[i] for i in kept] != [new[i] for i in placed]:
        return None
    return Counting(placed[kept.index(axis)], found.start) if axis in kept else Counting(None, found.start)


def _in_range(b: Builder, index: Value, size: DimExpr) -> Counting | None:
    """Return how `index` counts if that proves every index to be in 0 .. size - 1."""
    found = counting(index)
    if found is None:
        return None
    length = 1 if found.axis is None else B.shape_of(index)[found.axis]
    low, _ = B.bounds_of(b, found.start)
    fits = (
        low is not None and low >= 0 and always_at_most(simplify(found.start + length), size, b.graph.symbols)
    )
    return found if fits else None


def gather(b: Builder, table: Value, index: Value, axis: int) -> Value:
    """The op `gather`, or a view if the indices are known to count up."""
    shape, places = B.shape_of(table), B.shape_of(index)
    found = _in_range(b, index, shape[axis])
    if found is None and _is_row_major(index, shape[axis]):
        return B.reshape(b, table, (*shape[:axis], *places, *shape[axis + 1 :]))
    if found is None:
        index = index if B.dtype_of(index) in ("i64", "i32") else B.cast_to(b, index, "i64")
        return b.one("gather", table, index, axis=axis)
    length = 1 if found.axis is None else places[found.axis]
    part = B.take(b, table, axis, found.start, length)
    block = [length if i == found.axis else 1 for i in range(len(places))]
    part = B.reshape(b, part, (*shape[:axis], *block, *shape[axis + 1 :]))
    return B.expand(b, part, (*shape[:axis], *places, *shape[axis + 1 :]))


def _is_row_major(index: Value, size: DimExpr) -> bool:
    """Return True for an index that is row * columns + column, with all rows and columns of `size` elements:
    the elements in order. Some exporters index masks so."""
    shape = B.shape_of(index)
    axes = [axis for axis, each in enumerate(shape) if not B.is_one(each)]
    if len(axes) != 2 or not equal(product(shape), size):
        return False
    node = _unwrapped(index).node
    if node is None or node.op != "add":
        return False
    wanted = [Counting(axis, 0) for axis in axes]
    return any(
        counting(column) == wanted[1] and _counted_rows(row, shape[axes[1]]) == wanted[0]
        for row, column in (node.present, node.present[::-1])
    )


def _unwrapped(index: Value) -> Value:
    """Return x of where(x < 0, x + size, x)."""
    node = index.node
    if node is None or node.op != "where" or node.arg(0).node is None:
        return index
    x, sign = node.arg(2), node.arg(0).definition
    is_sign = sign.op == "lt" and sign.arg(0) is x and counting(sign.arg(1)) == Counting(None, 0)
    return x if is_sign else index


def _counted_rows(x: Value, columns: DimExpr) -> Counting | None:
    """Return how the rows of row * columns count up."""
    more, node = 0, x.node
    if node is not None and node.op == "expand":
        more, node = len(B.shape_of(x)) - len(B.shape_of(node.arg(0))), node.arg(0).node
    if node is None or node.op != "mul":
        return None
    for row, factor in (node.present, node.present[::-1]):
        found, scale = counting(row), counting(factor)
        if found and scale and scale.axis is None and found.axis is not None and equal(scale.start, columns):
            return Counting(found.axis + more, found.start)
    return None


# torch's overloads --------------------------------------------------------------------------------


def embedding(b: Builder, weight: Value, indices: Value, *_: Any) -> Value:
    """Rows of the weight; negative indices are errors, as in PyTorch."""
    return gather(b, weight, indices, 0)


def index_select(b: Builder, x: Value, dim: int, index: Value) -> Value:
    """The chosen positions of an axis; negative indices are errors, as in PyTorch."""
    if not B.shape_of(x):
        return x
    index = index if B.shape_of(index) else B.reshape(b, index, [1])
    return gather(b, x, index, B.axis_of("index_select", dim, len(B.shape_of(x))))


def torch_gather(b: Builder, x: Value, dim: int, index: Value, *_: Any, **__: Any) -> Value:
    """out[i, j, ..] = x[.., index[i, j, ..] at `dim`, ..]; other axes of the index may be shorter than
    x's."""
    shape, places = B.shape_of(x), B.shape_of(index)
    if max(len(shape), 1) != max(len(places), 1):
        line = B.reshape(b, index, [B.product(places)])
        B.of_size(b, f"gather: elements of an index of rank {len(places)}, not {len(shape)}", line, 0, 0)
        return B.full(b, 0, B.dtype_of(x), places)
    if 0 in places:
        return B.full(b, 0, B.dtype_of(x), places)
    if not shape or not places:
        return B.reshape(
            b,
            gather(b, B.reshape(b, x, [B.product(shape)]), B.reshape(b, index, [B.product(places)]), 0),
            places,
        )
    axis = B.axis_of("gather", dim, len(shape))
    others = [i for i in range(len(shape)) if i != axis]
    if all(B.is_one(places[i]) for i in others):
        for i in others:
            x = B.take(b, x, i, 0, 1)
        line, rows = (B.reshape(b, t, [B.shape_of(t)[axis]]) for t in (x, index))
        return B.reshape(b, gather(b, line, rows, 0), places)
    indices = [index if i == axis else _positions(b, places, i) for i in range(len(shape))]
    return _gather_points(b, x, indices, places)


def _positions(b: Builder, shape: Sequence[DimExpr], axis: int) -> Value:
    """i64 of `shape`: every element's position along `axis`."""
    line = b.one("iota", start=0, step=1, length=shape[axis], dtype="i64")
    return B.expand(
        b, B.reshape(b, line, [shape[axis] if i == axis else 1 for i in range(len(shape))]), shape
    )


def _gather_points(b: Builder, x: Value, indices: Sequence[Value], places: Sequence[DimExpr]) -> Value:
    """x at (indices[0], indices[1], ..), which index its first axes: one gather on their merged axis."""
    shape = B.shape_of(x)
    n = len(indices)
    line = B.reshape(b, x, [B.product(shape[:n]), *shape[n:]])
    return gather(b, line, merged_index(b, shape[:n], indices, places), 0)


def merged_index(
    b: Builder, shape: Sequence[DimExpr], indices: Sequence[Value], places: Sequence[DimExpr]
) -> Value:
    """The positions (indices[0], indices[1], ..) of axes `shape` as positions of their merged axis.

    An index out of range must not become a legal one by merging, so each is checked separately.
    """
    if len(indices) == 1:
        return B.expand(b, indices[0], places)
    merged: Value | None = None
    for size, index in zip(shape, indices, strict=True):
        index = B.expand(b, _placed(b, index, index, size), places)
        merged = (
            index if merged is None else B.pointwise(b, "add", B.pointwise(b, "mul", merged, size), index)
        )
    assert merged is not None
    return merged


def _placed(b: Builder, index: Value, given: Value, size: DimExpr) -> Value:
    """Return `index`, i64, with a check that it is in 0 .. size - 1, unless that is known."""
    is_checked = index.node is not None and index.node.op == "place" and equal(index.node.attrs["size"], size)
    if is_checked or _in_range(b, index, size) is not None:
        return B.cast_to(b, index, "i64")
    return b.one("place", B.cast_to(b, index, "i64"), B.cast_to(b, given, "i64"), size=size)


def index(b: Builder, x: Value, indices: Sequence[Value | None]) -> Value:
    """x[i, j, ..] with integer index tensors (they broadcast; negative ones count from the end), bool masks
    and None for whole axes."""
    x, indices = without_masks(b, x, indices)
    shape = B.shape_of(x)
    named = {axis: i for axis, i in enumerate(indices) if i is not None}
    if not named:
        return x
    axes = list(named)
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    position = axes[0] if together else 0
    chosen = B.agreeing(b, "index", list(named.values()))
    places = B.broadcast_shape("index", [B.shape_of(i) for i in chosen])
    chosen = [wrapped(b, i, shape[axis]) for axis, i in zip(named, chosen, strict=True)]
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    if len(axes) == 1:
        return gather(b, x, chosen[0], axes[0])
    x = B.permute(b, x, [*axes, *rest])
    result = _view_of_points(b, x, chosen, places)
    if result is None:
        result = _gather_points(b, x, chosen, places)
    n = len(places)
    order = [*range(n, n + position), *range(n), *range(n + position, n + len(rest))]
    return B.permute(b, result, order)


def take(b: Builder, x: Value, index: Value) -> Value:
    """Elements of x as one long axis; negative indices count from the end."""
    n = B.product(B.shape_of(x))
    return gather(b, B.reshape(b, x, [n]), wrapped(b, index, n), 0)


def holding(b: Builder, mask: Value) -> Value:
    """The indices of all true elements of a mask, in order. A mask that is used again has the same ones, with
    the same size."""
    if mask not in b.places:
        b.places[mask] = _holding(b, mask)
    return b.places[mask]


def _holding(b: Builder, mask: Value) -> Value:
    line = B.reshape(b, B.cast_to(b, mask, "bool"), [B.product(B.shape_of(mask))])
    total = B.reduce(b, "reduce_sum", B.cast_to(b, line, "i64"), [0], False)
    return b.one("nonzero", line, count=B.size_of(b, total))


def without_masks(b: Builder, x: Value, indices: Sequence[Value | None]) -> tuple[Value, list[Value | None]]:
    """Return x and its indices with the axes of each bool mask merged to one, indexed by the mask's true
    elements."""
    found: list[Value | None] = []
    for i in indices:
        if i is not None and B.dtype_of(i) in ("bool", "u8"):
            shape, axis, n = B.shape_of(x), len(found), len(B.shape_of(i))
            if n == 0:
                raise UnsupportedOp("index: a mask without axes has no lowering; use torch.where instead")
            x = B.reshape(b, x, [*shape[:axis], B.product(shape[axis : axis + n]), *shape[axis + n :]])
            i = holding(b, i)
        found.append(i)
    return x, found


def wrapped(b: Builder, index: Value, size: DimExpr) -> Value:
    """Return `index` with negative ones counted from the end; those out of range are errors."""
    if _in_range(b, index, size) is not None:
        return index
    index = B.cast_to(b, index, "i64")
    placed = B.where(b, B.pointwise(b, "lt", index, 0), B.pointwise(b, "add", index, size), index)
    return _placed(b, placed, index, size)


def _view_of_points(
    b: Builder, x: Value, indices: Sequence[Value], places: Sequence[DimExpr]
) -> Value | None:
    """Return x at `indices` as a view, if every index counts up along a different axis of the result."""
    shape, n = B.shape_of(x), len(indices)
    found = [_in_range(b, i, size) for i, size in zip(indices, shape, strict=False)]
    axes = [
        None if f is None or f.axis is None else f.axis + len(places) - len(B.shape_of(i))
        for f, i in zip(found, indices, strict=True)
    ]
    if None in found or len({axis for axis in axes if axis is not None}) != sum(
        axis is not None for axis in axes
    ):
        return None
    for i, (f, axis) in enumerate(zip(cast(Sequence[Counting], found), axes, strict=True)):
        x = B.take(b, x, i, f.start, 1 if axis is None else places[axis])
    order = sorted(range(n), key=lambda i: -1 if axes[i] is None else cast(int, axes[i]))
    x = B.permute(b, x, [*order, *range(n, len(shape))])
    block = [places[i] if i in axes else 1 for i in range(len(places))]
    return B.expand(b, B.reshape(b, x, [*block, *shape[n:]]), [*places, *shape[n:]])


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.embedding.default",), embedding),
    Composite(("aten.index_select.default",), index_select),
    Composite(("aten.gather.default",), torch_gather),
    Composite(("aten.index.Tensor", "aten._unsafe_index.Tensor"), index),
    Composite(("aten.take.default",), take),
)
