"""Index maps: the element of each argument that a node needs for one element of its result.

An access is one `Index` per axis over the loops of a kernel; views (D9) cost nothing because they only
transform accesses. Offsets are dimension expressions here; `compiler.lower.bind` turns them into kernel
parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy

from ...jit.spec import Index
from ..ir.dims import DimExpr, equal, simplify
from ..ir.graph import Node, Value

Access = tuple[Index[sympy.Expr], ...]
Shape = tuple[DimExpr, ...]


def shape_of(value: Value) -> Shape:
    """Return the shape of a tensor value."""
    return value.tensor.shape


def loops(n: int) -> Access:
    """Return the access that uses loops 0..n-1 in order."""
    return tuple(Index(loop=i) for i in range(n))


def is_unit_reshape(old: Shape, new: Shape) -> bool:
    """Return True if a reshape from `old` to `new` only adds or removes axes of size 1."""
    kept_old, kept_new = [d for d in old if d != 1], [d for d in new if d != 1]
    return len(kept_old) == len(kept_new) and all(
        equal(a, b) for a, b in zip(kept_old, kept_new, strict=True)
    )


def through_unit_reshape(access: Access, new: Shape, old: Shape) -> Access:
    """Return the access of shape `old` for an access of the reshaped `new`."""
    kept = iter([index for index, size in zip(access, new, strict=True) if size != 1])
    return tuple(Index() if size == 1 else next(kept) for size in old)


def through_view(node: Node, access: Access) -> Access | None:
    """Return the access to the view's argument, or None for a reshape that merges or splits axes."""
    (x,) = node.present
    old = shape_of(x)
    match node.op:
        case "permute":
            result = [Index()] * len(old)
            for position, axis in enumerate(node.attrs["axes"]):
                result[axis] = access[position]
            return tuple(result)
        case "expand":
            tail = access[len(access) - len(old) :] if old else ()
            new = shape_of(node.result)[len(access) - len(old) :] if old else ()
            return tuple(
                Index() if size == 1 and n != 1 else i for i, size, n in zip(tail, old, new, strict=True)
            )
        case "slice":
            axis, step, start = node.attrs["axis"], node.attrs["step"], node.attrs["start"]
            index = access[axis]
            moved = replace(index, scale=index.scale * step, offset=simplify(index.offset * step + start))
            return (*access[:axis], moved, *access[axis + 1 :])
        case "reshape":
            new = shape_of(node.result)
            return through_unit_reshape(access, new, old) if is_unit_reshape(old, new) else None
    raise AssertionError(f"{node.op} is not a view")


def is_loop(index: Index, loop: int) -> bool:
    """Return True if `index` is exactly the index of `loop`."""
    return index == Index(loop=loop)


def used_loops(access: Access) -> frozenset[int]:
    """Return the loops that `access` depends on directly."""
    return frozenset(index.loop for index in access if index.loop is not None)


# Concats ------------------------------------------------------------------------------------------


def part_sizes(node: Node) -> tuple[DimExpr, ...]:
    """Return the sizes of a concat's arguments along its axis."""
    return tuple(shape_of(arg)[node.attrs["axis"]] for arg in node.present)


def start_of(sizes: Sequence[DimExpr], part: int) -> DimExpr:
    """Return the start of a part."""
    return simplify(sum(sizes[:part]))


def moved(access: Access, axis: int, by: DimExpr) -> Access:
    """Return `access` with the position along one axis shifted."""
    index = access[axis]
    offset = simplify(index.offset + by)
    return (*access[:axis], replace(index, offset=offset), *access[axis + 1 :])


def arg_access(node: Node, part: int, access: Access) -> Access:
    """Return the access to argument `part` of a concat at `access`."""
    return moved(access, node.attrs["axis"], -start_of(part_sizes(node), part))
