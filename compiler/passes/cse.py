"""Common subexpression elimination: of nodes that compute the same value, only the first is kept.

Nodes are the same if op, arguments and attributes are. Constants are the same if they share memory, or are
small and hold the same bits. A node in a region may be replaced by one outside of it, never the other way
round.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import sympy

from ..ir.graph import Block, Graph, Node, Value, erase, is_named, replace_uses

#: Ops whose equal applications are not interchangeable: `item` names a new size, the others have effects.
DISTINCT = frozenset(("item", "extern", "call", "if", "while", "guard", "fail", "free", "kernel"))
SMALL_BYTES = 1024  # constants up to this size are compared by their bits


def cse(graph: Graph) -> None:
    """Remove repeated nodes."""
    merged: dict[Value, Value] = {}
    _merge(graph.body, {}, merged)
    graph.replace_results(merged)


def _merge(block: Block, outer: dict[Hashable, Node], merged: dict[Value, Value]) -> None:
    """Remove a block's repeated nodes, all uses of their results as arguments; put these into `merged`."""
    seen = dict(outer)
    for node in list(block.nodes):
        for region in node.regions:
            _merge(region, seen, merged)
        if node.op in DISTINCT or node.regions or any(map(is_named, node.results)):
            continue
        first = seen.setdefault(key(node), node)
        if first is not node:
            for old, new in zip(node.results, first.results, strict=True):
                replace_uses(old, new)
                merged[old] = new
            erase(block, node)


def key(node: Node) -> Hashable:
    """Return a key that interchangeable nodes share."""
    attrs = tuple(
        sorted((name, _frozen(value)) for name, value in node.attrs.items() if not _is_label(node, name))
    )
    return node.op, tuple(map(id, node.args)), attrs


def _is_label(node: Node, name: str) -> bool:
    return node.op == "constant" and name == "name"


def _frozen(value: Any) -> Hashable:
    """Return `value` in a hashable form in which 1, True and 1.0, and 0.0 and -0.0, differ."""
    if isinstance(value, sympy.Basic):
        return "dimension", value  # hashing is done once, whereas writing it as text takes milliseconds
    if isinstance(value, tuple):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, np.ndarray):
        header = (str(value.dtype), value.shape)
        if value.nbytes <= SMALL_BYTES:
            return (*header, value.tobytes())
        return (*header, value.strides, value.__array_interface__["data"][0])
    return type(value).__name__, repr(value)
