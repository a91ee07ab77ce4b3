"""The kind of a model, determined without importing its compiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

#: TorchScript's types, and kinds of plain values.
PLAIN = {"IntType": "int", "FloatType": "float", "BoolType": "bool", "StringType": "str"}
_UNPACKING = ("prim::ListUnpack", "prim::TupleUnpack")
_READING = ("prim::TupleIndex", "aten::__getitem__")
_UNWRAPPING, _ASKING = ("prim::unchecked_cast", "aten::_unwrap_optional"), ("aten::__is__", "aten::__isnot__")


@dataclass(frozen=True)
class Script:
    """A TorchScript program with the arguments of an example call. `module`: None for a function; `defaults`:
    arguments that the call leaves out."""

    graph: Any
    module: Any
    arguments: dict[str, Any]
    positional: tuple[str, ...]
    defaults: dict[str, Any]

    def types(self) -> dict[str, Any]:
        """Return TorchScript's types of the arguments."""
        return {name: x.type() for name, x in self._values().items()}

    def reads(self, attribute: str) -> bool:
        """Return True if the program reads an attribute of this name."""
        return any(node.s("name") == attribute for node in self.graph.findAllNodes("prim::GetAttr"))

    def absent(self) -> tuple[str, ...]:
        """Return the optional arguments with tensors that are None in the example."""
        given = {**self.defaults, **self.arguments}
        kinds = {name: type for name, type in self.types().items() if type.kind() == "OptionalType"}
        return tuple(n for n, type in kinds.items() if given[n] is None and "Tensor" in type.annotation_str)

    def varying(self) -> frozenset[str]:
        """Return the arguments, and parts of them, that are lists or dicts, perhaps optional, with which the
        program does more than read known positions or keys; parts as "states.0"."""
        found = self._values()
        return frozenset(path for name in self.arguments for path in _varying(name, [found[name]]))

    def _values(self) -> dict[str, Any]:
        inputs = list(self.graph.inputs())[0 if self.module is None else 1 :]
        names = {*self.arguments, *self.defaults}
        order = dict.fromkeys([*self.positional, *self.arguments, *self.defaults])
        return dict(zip([name for name in order if name in names], inputs, strict=True))


def _varying(path: str, values: list[Any]) -> Iterator[str]:
    """Yield the parts of `values`, all of one value, that are lists or dicts of any structure."""
    type = values[0].type()
    type = type.getElementType() if type.kind() == "OptionalType" else type
    if type.kind() not in ("ListType", "DictType", "TupleType"):
        return
    users = [node for value in values for node in _users(value)]
    if type.kind() != "TupleType" and not all(map(_reads_known_places, users)):
        yield path
        return
    parts: dict[Any, list[Any]] = {}
    for node in filter(_reads_known_places, users):
        for key, part in _parts_read(node):
            parts.setdefault(key, []).append(part)
    if all(map(_reads_known_places, users)):
        for key, found in parts.items():
            yield from _varying(f"{path}.{key}", found)
    else:
        yield from _inside(path, type)


def _inside(path: str, type: Any) -> Iterator[str]:
    """Yield the parts of a tuple that are lists or dicts."""
    type = type.getElementType() if type.kind() == "OptionalType" else type
    if type.kind() in ("ListType", "DictType"):
        yield path
    for i, part in enumerate(type.elements() if type.kind() == "TupleType" else ()):
        yield from _inside(f"{path}.{i}", part)


def _users(value: Any) -> Iterator[Any]:
    """Yield the nodes that use a value, or an optional's value if present."""
    for use in value.uses():
        if use.user.kind() in _UNWRAPPING:
            yield from _users(use.user.output())
        elif use.user.kind() not in _ASKING:
            yield use.user


def _reads_known_places(node: Any) -> bool:
    if node.kind() in _UNPACKING:
        return True
    return node.kind() in _READING and node.inputsAt(1).node().kind() == "prim::Constant"


def _parts_read(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the keys and values that a node reads out of a tuple, list or dict."""
    if node.kind() in _UNPACKING:
        yield from enumerate(node.outputs())
    else:
        yield node.inputsAt(1).toIValue(), node.output()


def is_script(model: Any) -> bool:
    """Return True for a scripted or traced module or function."""
    kinds = (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptModule)
    return isinstance(model, kinds)
