"""The classes of named tuples in TorchScript's types."""

from __future__ import annotations

import sys
from typing import Any

import torch

_PLAIN = {"IntType": 0, "FloatType": 0.0, "BoolType": False, "StringType": "", "NoneType": None}
_EMPTY: dict[str, Any] = {"OptionalType": None, "ListType": [], "DictType": {}}
_CLASS = type
_PREFIX = "__torch__"  # of the names of all types that have one


def named_tuple(type: Any) -> Any:
    """Return the class of a type that is a named tuple, None for another type: the model's own if a loaded
    module has it by this name, else the one that TorchScript makes."""
    if type is None or type.kind() != "TupleType" or not type.annotation_str.startswith(_PREFIX):
        return None
    made = _class_of(type)
    if made is None:
        return None
    _, *modules, name = type.annotation_str.split(".")
    own = getattr(sys.modules.get(".".join(modules) or "__main__"), "__dict__", {}).get(name)
    is_own = isinstance(own, _CLASS) and issubclass(own, tuple)
    return own if is_own and getattr(own, "_fields", None) == made._fields else made


def _class_of(type: Any) -> Any:
    """Return the class of the objects that a TorchScript function returns for a type: the type itself does
    not have its fields."""
    graph = torch._C.Graph()
    value = graph.addInput("x")
    value.setType(type)
    graph.registerOutput(value)
    try:
        found = torch._C._create_function_from_graph("identity", graph)(_example(type))
    except (RuntimeError, TypeError):  # a field of a type without an example
        return None
    return found.__class__ if hasattr(found, "_fields") else None


def _example(type: Any) -> Any:
    """Return a value of a type."""
    kind = type.kind()
    if kind == "TensorType":
        return torch.empty(0)
    if kind == "TupleType":
        return tuple(map(_example, type.elements()))
    return _EMPTY[kind] if kind in _EMPTY else _PLAIN.get(kind)
