"""Elements of lists of run-time length: numbers, strings, tensors, and tuples, lists, dicts and
optionals of them, each as one value of the graph.

A dict is the list of its pairs if its values are of one type, else the tuple of its values with known keys;
an optional is the list of its value, if present. Types record this: `ListType.form`, `TupleType.keys`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....ir.dims import OPEN
from ....ir.errors import UnsupportedOp
from ....ir.graph import TYPE_RULES, Builder, Value
from ....ir.types import NONE, ListType, ScalarType, TensorType, TupleType, Type, common_type, joined
from ....ops import build as B
from .scalars import value_of
from .values import Dict, List, Maybe, Tensor, kind_of

ZEROS: Mapping[str, Any] = {"bool": False, "int": 0, "float": 0.0, "str": ""}


def type_of(x: Any, type_of_tensor: Callable[[Tensor], TensorType]) -> Type:
    """Return the type that a list of such elements has. Raises UnsupportedOp for values that no list may
    hold."""
    if isinstance(x, Tensor):
        return type_of_tensor(x)
    if isinstance(x, tuple):
        return TupleType(tuple(type_of(item, type_of_tensor) for item in x))
    if isinstance(x, List):
        return ListType(element_of(x, type_of_tensor))
    if isinstance(x, Dict):
        if isinstance(x.content, Value):
            return ListType(element_of(x, type_of_tensor), "dict")
        values = [type_of(item, type_of_tensor) for item in x.content.values()]
        return dict_type(list(x.content), values, x.declared)
    if isinstance(x, Maybe):
        return ListType(type_of(x.value, type_of_tensor), "optional")
    if x is None:
        return ListType(NONE, "optional")
    if kind_of(x) == "":
        raise UnsupportedOp(
            f"a list with run-time length or positions holds a {type(x).__name__}; its elements "
            "must be numbers, strings, tensors, or lists, tuples or dicts of these"
        )
    return ScalarType(kind_of(x))


def dict_type(keys: Sequence[Any], values: Sequence[Type], declared: Type | None = None) -> Type:
    """Return the type of a dict of known keys: that of its pairs if its values are of one type. `declared`:
    that of the pairs of an empty one. Raises UnsupportedOp if none is known."""
    common = common_type(values) if keys else None
    pair = declared if common is None else TupleType((ScalarType(kind_of(keys[0])), common))
    if values and common is None and all(isinstance(key, str) for key in keys):
        return TupleType(tuple(values), tuple(keys))
    if pair is None:
        raise UnsupportedOp(
            "a list with run-time length or positions holds an empty dict, or one whose values are "
            "of several types; begin it with the first of its keys"
        )
    return ListType(pair, "dict")


def element_of(x: List | Dict, type_of_tensor: Callable[[Tensor], TensorType]) -> Type:
    """Return the type of the elements of a list that is an element, or of a dict's pairs."""
    if isinstance(x.content, Value):
        assert isinstance(x.content.type, ListType)
        return x.content.type.element
    types = [type_of(item, type_of_tensor) for item in x.content]
    common = common_type(types) if types else x.declared
    if common is None:
        raise UnsupportedOp(
            "a list with run-time length or positions holds a list of elements of several types, "
            "or an empty one of tensors; begin it with the first of its tensors"
        )
    return common


def packed(b: Builder, x: Any, type: Type, read: Callable[[Tensor], Value]) -> Value:
    """Return an element as a value of `type`, except for sizes of tensors."""
    if isinstance(type, ListType) and type.form == "optional":
        return _packed_optional(b, x, type, read)
    if isinstance(x, Dict) and isinstance(type, TupleType):
        x = tuple(x.content[key] for key in type.keys)
    if isinstance(x, tuple) and isinstance(type, TupleType):
        return b.one("tuple", *(packed(b, i, t, read) for i, t in zip(x, type.elements, strict=True)))
    if isinstance(x, List | Dict):
        x = x.read()
    items = list(x.items()) if isinstance(x, dict) else x
    if isinstance(items, list) and isinstance(type, ListType):
        made = b.one("list", element=type.element)
        for item in items:
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


def _packed_optional(b: Builder, x: Any, type: ListType, read: Callable[[Tensor], Value]) -> Value:
    """Return the list that represents an optional."""
    made = b.one("list", element=type.element)
    if x is None:
        return made
    there = x.value if isinstance(x, Maybe) else x
    made = b.one("append", made, packed(b, there, type.element, read))
    if not isinstance(x, Maybe):
        return made
    return b.one("list_slice", made, b.size(0), b.one("to_int", x.is_there))


def zero(b: Builder, type: Type) -> Value:
    """Return a value of a type: zeros for numbers, small tensors; empty lists."""
    if isinstance(type, TupleType):
        return b.one("tuple", *(zero(b, part) for part in type.elements))
    if isinstance(type, ListType):
        return b.one("list", element=type.element)
    if isinstance(type, TensorType):
        return B.full(b, 0, type.dtype, tuple(0 if dim == OPEN else dim for dim in type.shape))
    assert isinstance(type, ScalarType)
    return value_of(b, ZEROS[type.kind], type.kind)


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
