"""Elements of lists whose length only a call tells: numbers, strings, tensors and tuples of them, each as one
value of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.dims import equal
from ...ir.errors import UnsupportedOp
from ...ir.graph import Builder, Value
from ...ir.types import ScalarType, TensorType, TupleType, Type
from ...ops import build as B
from .scalars import value_of
from .values import Tensor, kind_of


def type_of(x: Any, type_of_tensor: Callable[[Tensor], TensorType]) -> Type:
    """Return the type that a list of such elements has. Raises UnsupportedOp for what no list may hold."""
    if isinstance(x, Tensor):
        return type_of_tensor(x)
    if isinstance(x, tuple):
        return TupleType(tuple(type_of(item, type_of_tensor) for item in x))
    if kind_of(x) in ("", "none"):
        raise UnsupportedOp(
            f"a list whose length or positions only a call tells holds a {type(x).__name__}; its elements "
            "must be numbers, strings, tensors or tuples of these"
        )
    return ScalarType(kind_of(x))


def packed(b: Builder, x: Any, type: Type, read: Callable[[Tensor], Value]) -> Value:
    """Return an element as a value of `type`. Sizes of tensors that differ from the type's must be equal when
    a call runs."""
    if isinstance(x, tuple) and isinstance(type, TupleType):
        return b.one("tuple", *(packed(b, i, t, read) for i, t in zip(x, type.elements, strict=True)))
    if isinstance(type, ScalarType):
        return value_of(b, x, type.kind)
    value = read(x) if isinstance(x, Tensor) else x
    if isinstance(type, TensorType):
        found = B.type_of(value)
        if found.dtype != type.dtype or found.rank != type.rank:
            raise UnsupportedOp(f"a list has elements of {type} and {found}; they must be of one type")
        for axis, (size, wanted) in enumerate(zip(found.shape, type.shape, strict=True)):
            if not equal(size, wanted):
                value = B.of_size(b, "list", value, axis, wanted)
    return value


def unpacked(b: Builder, value: Value, fresh: Callable[[Value], Tensor]) -> Any:
    """Return the element that a value stands for."""
    if isinstance(value.type, TensorType):
        return fresh(value)
    if isinstance(value.type, TupleType):
        n = len(value.type.elements)
        return tuple(unpacked(b, b.one("get", value, b.size(i)), fresh) for i in range(n))
    return value
