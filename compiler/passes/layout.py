"""Layout: channels-last values stay so between convolutions.

A convolution returns its result channels first, by a permute. Here every such permute moves down through its
users as long as they compute the same on permuted operands: pointwise nodes, slices, concats, gathers along
an axis, reshapes of axes that stay adjacent. It ends at the permute before the next convolution, and both are
removed. Graphs without a convolution are unchanged: there a permute is an index map in its consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.dims import DimExpr, equal, product
from ..ir.graph import Builder, Graph, Node, Value
from ..lower.access import shape_of
from ..ops import OPS
from ..ops import build as B
from .rewrite import rewrite

Axes = tuple[int, ...]


def choose_layout(graph: Graph) -> None:
    """Move the permutes after convolutions down."""
    if any(node.op == "conv" for node in graph.nodes()):
        rewrite(graph, _sunk)


def _sunk(builder: Builder, node: Node) -> Value | None:
    """Return the permuted result of `node` computed before the permute of an argument."""
    move = MOVES.get(OPS[node.op].kind, MOVES.get(node.op)) if node.op in OPS else None
    axes = next((_axes(arg) for arg in node.present if _is_sinking(arg)), None)
    return None if move is None or axes is None else move(builder, node, axes)


def _is_sinking(value: Value) -> bool:
    """Return True for a permute that brings the last axis to the front of the spatial ones."""
    node = value.node
    if node is None or node.op != "permute" or len(node.attrs["axes"]) < 3:
        return False
    rank = len(node.attrs["axes"])
    return tuple(node.attrs["axes"]) == (0, rank - 1, *range(1, rank - 1))


def _axes(value: Value) -> Axes:
    return tuple(value.definition.attrs["axes"])


def _inverse(axes: Axes) -> Axes:
    return tuple(axes.index(i) for i in range(len(axes)))


def permuted(b: Builder, value: Value, axes: Axes) -> Value:
    """Return `value` with its axes in the order `axes`; permutes are merged, sources recreated, and permutes
    move before an expand."""
    node = value.node
    if node is not None and node.op == "permute":
        before = node.attrs["axes"]
        return permuted(b, node.arg(0), tuple(before[axis] for axis in axes))
    if list(axes) == sorted(axes):
        return value
    if node is not None and node.op == "full":
        shape = tuple(shape_of(value)[axis] for axis in axes)
        return b.one("full", **{**node.attrs, "shape": shape})
    if node is not None and node.op == "expand":
        small = node.arg(0)
        rank = len(shape_of(small))
        small = B.reshape(b, small, (*(1,) * (len(axes) - rank), *shape_of(small)))
        return B.expand(b, permuted(b, small, axes), tuple(shape_of(value)[axis] for axis in axes))
    return B.permute(b, value, axes)


# How a permute moves below a node: each returns the new result, or None if it cannot -----------------


def _below_permute(b: Builder, node: Node, axes: Axes) -> Value | None:
    return permuted(b, node.arg(0), node.attrs["axes"])


def _below_pointwise(b: Builder, node: Node, axes: Axes) -> Value | None:
    args = [None if arg is None else permuted(b, arg, _inverse(axes)) for arg in node.args]
    return B.permute(b, b.one(node.op, *args, **node.attrs), axes)


def _below_slice(b: Builder, node: Node, axes: Axes) -> Value | None:
    (x,) = node.present
    attrs = {**node.attrs, "axis": axes[node.attrs["axis"]]}
    return B.permute(b, b.one("slice", permuted(b, x, _inverse(axes)), **attrs), axes)


def _below_concat(b: Builder, node: Node, axes: Axes) -> Value | None:
    args = [permuted(b, arg, _inverse(axes)) for arg in node.present]
    return B.permute(b, b.one("concat", *args, axis=axes[node.attrs["axis"]]), axes)


def _below_gather(b: Builder, node: Node, axes: Axes) -> Value | None:
    """The axes of the index are adjacent, at the position of the table's axis."""
    table, index = node.present
    rank, axis = len(shape_of(index)), node.attrs["axis"]
    if _is_sinking(index) or rank == 0:
        return None
    place = axes[axis]
    moved = b.one("gather", permuted(b, table, _inverse(axes)), index, axis=place)
    groups = [[i] if i < place else [i + rank - 1] for i in axes]
    groups[axis] = list(range(place, place + rank))
    return B.permute(b, moved, tuple(i for group in groups for i in group))


def _below_expand(b: Builder, node: Node, axes: Axes) -> Value | None:
    (x,) = node.present
    shape = node.attrs["shape"]
    if len(shape) != len(axes):
        return None
    inverse = _inverse(axes)
    wide = b.one("expand", permuted(b, x, inverse), shape=tuple(shape[axis] for axis in inverse))
    return B.permute(b, wide, axes)


def _below_reshape(b: Builder, node: Node, axes: Axes) -> Value | None:
    """The reshape must merge only axes that are also adjacent, in order, above the permute."""
    (x,) = node.present
    groups = merged_axes(shape_of(x), node.attrs["shape"])
    if groups is None or all(len(group) == 1 for group in groups):
        return None
    above = [[axes[axis] for axis in group] for group in groups]
    if any(group != list(range(group[0], group[0] + len(group))) for group in above):
        return None
    order = sorted(range(len(above)), key=lambda i: above[i][0])
    shape = tuple(node.attrs["shape"][i] for i in order)
    flat = B.reshape(b, permuted(b, x, _inverse(axes)), shape)
    return B.permute(b, flat, _inverse(tuple(order)))


def merged_axes(old: Sequence[DimExpr], new: Sequence[DimExpr]) -> list[list[int]] | None:
    """Return the axes of `old` that each axis of `new` merges, in order; None if axes are split or added."""
    groups: list[list[int]] = []
    axis = 0
    for size in new:
        group = [axis]
        axis += 1
        while axis < len(old) and not equal(product(old[i] for i in group), size):
            group.append(axis)
            axis += 1
        if axis > len(old) or not equal(product(old[i] for i in group), size):
            return None
        groups.append(group)
    if groups and axis < len(old) and all(old[i] == 1 for i in range(axis, len(old))):
        groups[-1] += range(axis, len(old))
        axis = len(old)
    return groups if axis == len(old) else None


#: Of a kind, or of an op of other kinds.
MOVES: dict[str, Callable[[Builder, Node, Axes], Value | None]] = {
    "pointwise": _below_pointwise,
    "permute": _below_permute,
    "slice": _below_slice,
    "concat": _below_concat,
    "gather": _below_gather,
    "expand": _below_expand,
    "reshape": _below_reshape,
}
