"""Binding: the dimension expressions of a spec become its parameters.

The pass names the distinct expressions of a kernel's spec `Dim(0), Dim(1), ...` and gives the node the
attribute `dims`, the expressions in that order. A kernel that has this attribute is *bound*: its spec does
not change any more.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import is_
from typing import Any, cast

import sympy

from ...jit.spec import Dim, Index, Instr, KernelSpec
from ..ir.dims import DimExpr, simplify
from ..ir.graph import Graph
from .launches import unbound_kernels


def bind(graph: Graph) -> None:
    """Bind every kernel, both specs of one that has two."""
    for node in unbound_kernels(graph):
        node.attrs["spec"], node.attrs["dims"] = bound(node.attrs["spec"])
        if "exchanged" in node.attrs:
            other, _, *rows = node.attrs["exchanged"]
            node.attrs["exchanged"] = (*bound(other), *rows)


def bound(spec: KernelSpec[sympy.Expr]) -> tuple[KernelSpec, tuple[DimExpr, ...]]:
    """Return the spec with Dims for its distinct expressions, and these expressions in the Dims' order."""
    dims: dict[DimExpr, Dim] = {}

    def visit(item: Any) -> Any:
        if isinstance(item, sympy.Expr):
            item = simplify(item)
            return item if isinstance(item, int) else dims.setdefault(item, Dim(len(dims)))
        if isinstance(item, Index) and item.scale < 0 and isinstance(item.offset, sympy.Expr):
            item = replace(item, offset=sympy.Max(item.offset, 0))  # below 0 for empty loops only
        if isinstance(item, Instr) and isinstance(item.size, sympy.Expr):
            item = replace(item, size=sympy.Max(item.size, 0))  # the same
        if isinstance(item, tuple):
            parts = tuple(map(visit, item))
            return item if all(map(is_, parts, item)) else parts
        changed, kind = {}, cast(Any, type(item))
        for name in _names(kind):
            old = getattr(item, name)
            if (new := visit(old)) is not old:
                changed[name] = new
        return replace(item, **changed) if changed else item

    found = visit(spec)
    return replace(found, n_dims=len(dims)), tuple(dims)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a data class, none of any other."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
