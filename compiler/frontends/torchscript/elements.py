"""Elements of lists whose length only a call tells: numbers, strings, tensors and tuples of them, each as one
value of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.dims import OPEN
from ...ir.errors import UnsupportedOp
from ...ir.graph import TYPE_RULES, Builder, Value
from ...ir.types import ListType, ScalarType, TensorType, TupleType, Type, common_type, joined
from ...ops import build as B
from .scalars import value_of
from .values import List, Tensor, kind_of


def type_of(x: Any, type_of_tensor: Callable[[Tensor], TensorType]) -> Type:
    """Return the type that a list of such elements has. Raises UnsupportedOp for what no list may hold."""
    if isinstance(x, Tensor):
        return type_of_tensor(x)
    if isinstance(x, tuple):
        return TupleType(tuple(type_of(item, type_of_tensor) for item in x))
    if isinstance(x, List):
        return ListType(element_of(x, type_of_tensor))
    if kind_of(x) in ("", "none"):
        raise UnsupportedOp(
            f"a list whose length or positions only a call tells holds a {type(x).__name__}; its elements "
            "must be numbers, strings, tensors, or lists or tuples of these"
        )
    return ScalarType(kind_of(x))


def element_of(x: List, type_of_tensor: Callable[[Tensor], TensorType]) -> Type:
    """Return the type of the elements of a list that is an element."""
    if isinstance(x.content, Value):
        assert isinstance(x.content.type, ListType)
        return x.content.type.element
    types = [type_of(item, type_of_tensor) for item in x.content]
    common = common_type(types) if types else x.declared
    if common is None:
        raise UnsupportedOp(
            "a list whose length or positions only a call tells holds a list of elements of several types, "
            "or an empty one of tensors; begin it with the first of its tensors"
        )
    return common


def packed(b: Builder, x: Any, type: Type, read: Callable[[Tensor], Value]) -> Value:
    """Return an element as a value of `type`, sizes of tensors apart."""
    if isinstance(x, tuple) and isinstance(type, TupleType):
        return b.one("tuple", *(packed(b, i, t, read) for i, t in zip(x, type.elements, strict=True)))
    if isinstance(x, List):
        x = x.read()
    if isinstance(x, list) and isinstance(type, ListType):
        made = b.one("list", element=type.element)
        for item in x:
            made = b.one("append", made, packed(b, item, type.element, read))
        return made
    if isinstance(type, ScalarType):
        return value_of(b, x, type.kind)
    value = read(x) if isinstance(x, Tensor) else x
    if isinstance(type, TensorType):
        found = B.type_of(value)
        if joined(found, type) is None:
            raise UnsupportedOp(f"a list has elements of {type} and {found}; they must be of one type")
    return value


def got(b: Builder, container: Value, key: Value) -> Value:
    """Return an element of a list or tuple; sizes of a tensor that are open get names."""
    (element,) = TYPE_RULES["get"]([container.type, key.type], {})
    axes = (
        [i for i, dim in enumerate(element.shape) if dim == OPEN] if isinstance(element, TensorType) else []
    )
    if not axes:
        return b.one("get", container, key)
    sizes = tuple((b.graph.new_name("n"), axis) for axis in axes)
    return b.apply("get", container, key, sizes=sizes)[-1]


def unpacked(b: Builder, value: Value, fresh: Callable[[Value], Tensor]) -> Any:
    """Return the element that a value stands for."""
    if isinstance(value.type, TensorType):
        return fresh(value)
    if isinstance(value.type, TupleType):
        n = len(value.type.elements)
        return tuple(unpacked(b, got(b, value, b.size(i)), fresh) for i in range(n))
    return value
