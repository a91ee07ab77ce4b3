"""The size symbols that types, attributes and nodes mention, and those that values define."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, cast

import sympy

from ...jit.spec import KernelSpec
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
    return {name for value in values for size in expressions(value) for name in symbols_of(size)}


def expressions(value: Any) -> Iterator[sympy.Expr]:
    """Yield the dimension expressions in an attribute: one itself, those of a tuple, or of an unbound
    spec."""
    if isinstance(value, sympy.Expr):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from expressions(item)
    elif is_dataclass(value) and not (isinstance(value, KernelSpec) and value.n_dims):
        for field in fields(value):
            yield from expressions(getattr(value, field.name))


def node_sizes(node: Node) -> set[str]:
    """Return the symbols in a node's attributes and result types, its regions' nodes included."""
    found = attribute_sizes(node.attrs.values())
    for result in node.results:
        found |= type_sizes(result.type)
    for region in node.regions:
        for inner in region.nodes:
            found |= node_sizes(inner)
    return found
