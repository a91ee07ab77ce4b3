"""Which size symbols types, attributes and nodes mention, and which ones values name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import sympy

from .dims import symbols_of
from .graph import Node, Value, is_named
from .types import ScalarType, TensorType, Type, parts


def sizes_named(value: Value) -> set[str]:
    """Return the symbol whose value an int value is, if any."""
    return {str(cast(ScalarType, value.type).expr)} if is_named(value) else set()


def type_sizes(type: Type) -> set[str]:
    """Return the symbols in a type."""
    if isinstance(type, TensorType):
        return {name for dim in type.shape for name in symbols_of(dim)}
    if isinstance(type, ScalarType):
        return set() if type.expr is None else set(symbols_of(type.expr))
    return {name for part in parts(type) for name in type_sizes(part)}


def attribute_sizes(values: Iterable[Any]) -> set[str]:
    """Return the symbols in attributes."""
    found: set[str] = set()
    for value in values:
        if isinstance(value, sympy.Expr):
            found |= symbols_of(value)
        elif isinstance(value, tuple):
            found |= attribute_sizes(value)
    return found


def node_sizes(node: Node) -> set[str]:
    """Return the symbols in a node's attributes and result types, its regions' nodes included."""
    found = attribute_sizes(node.attrs.values())
    for result in node.results:
        found |= type_sizes(result.type)
    for region in node.regions:
        for inner in region.nodes:
            found |= node_sizes(inner)
    return found
