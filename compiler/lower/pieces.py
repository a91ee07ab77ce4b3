"""Concats inside kernels: a loop along the axis of a concat is cut, and the kernel has a piece for each box.

A group's `cuts` hold for a loop the sizes of its parts. A box selects a part of each loop that is cut in it;
inside it, each concat is one of its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..ir.dims import DimExpr
from ..ir.graph import Node
from ..ops import OPS
from .access import Access, arg_access, moved, part_sizes
from .group import Group, arg_demands, can_compute

Box = dict[int, int]  # loop -> number of its part

#: Limits of one kernel: its compilation time, and the number of sizes that a kernel can have.
MAX_PIECES, MAX_SYMBOLIC = 32, 10
MIN_WIDTH = 16  # a part of the last loop narrower than a vector slows down its computation


def inside(access: Access, starts: Mapping[int, DimExpr]) -> Access:
    """Return `access` for loops that begin at `starts`."""
    for axis, index in enumerate(access):
        if index.loop is not None and index.loop in starts:
            access = moved(access, axis, index.scale * starts[index.loop])
    return access


def can_cut(node: Node, group: Group, places: Sequence[Access]) -> bool:
    """Return True if a concat can join: at each of `places` one loop runs along its axis and can be cut into
    its parts, without too many pieces."""
    if not all(can_compute(node, group, access) and _is_wide(node, group, access) for access in places):
        return False
    loops = {access[node.attrs["axis"]].along for access in places}
    if loops <= set(group.cuts):
        return True
    cuts = group.cuts | dict.fromkeys(loops, part_sizes(node))
    n_symbolic = sum(not isinstance(size, int) for parts in cuts.values() for size in parts)
    trial = replace(group, cuts=cuts, places={**group.places, node: list(places)})
    return n_symbolic <= MAX_SYMBOLIC and len(boxes(trial)) <= MAX_PIECES


def _is_wide(node: Node, group: Group, access: Access) -> bool:
    """Return True unless a concat cuts the vector loop into narrow parts that compute something, or crosses
    it where it is narrow: copying the parts is faster then."""
    loop, width = access[node.attrs["axis"]].loop, group.domain[-1] if group.domain else 0
    is_narrow = isinstance(width, int) and 1 < width < MIN_WIDTH
    if is_narrow and access[-1].loop != len(group.domain) - 1:
        return False
    if loop in group.cuts or loop != len(group.domain) - 1:
        return True
    has_narrow = any(isinstance(size, int) and size < MIN_WIDTH for size in part_sizes(node))
    return not (has_narrow and any(OPS[member.op].kind == "pointwise" for member in group.places))


def boxes(group: Group) -> list[Box]:
    """Return the boxes that a group's cuts make, in the order of the output."""
    done: list[Box] = []
    pending: list[Box] = [{}]
    while pending:
        box = pending.pop(0)
        loop = _uncut(group, box)
        if loop is None:
            done.append(box)
        else:
            pending[:0] = [box | {loop: part} for part in range(len(group.cuts[loop]))]
    return done


def _uncut(group: Group, box: Box) -> int | None:
    """Return a loop that must be cut for the computation in `box`, if any."""
    pending, seen = [(group.root, group.access)], set()
    while pending:
        value, access = pending.pop()
        node = value.node
        if node is None or node not in group.places or (value, access) in seen:
            continue
        seen.add((value, access))
        if node.op != "concat":
            pending += [(arg, at) for arg, at, _ in arg_demands(node, access, group) if at is not None]
            continue
        loop = access[node.attrs["axis"]].loop
        if loop is None or loop not in box:
            return loop
        pending.append((node.arg(box[loop]), arg_access(node, box[loop], access)))
    return None
