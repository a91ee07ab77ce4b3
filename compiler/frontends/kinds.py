"""What a model is, told without importing what compiles it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

#: Types of TorchScript's, and kinds of plain values.
PLAIN = {"IntType": "int", "FloatType": "float", "BoolType": "bool", "StringType": "str"}
_OF_FIXED_LISTS = ("prim::ListUnpack", "aten::__getitem__")
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

    def varying(self) -> frozenset[str]:
        """Return the arguments that are lists or dicts, perhaps optional ones, with which the program does
        more than to read known positions or keys."""
        found = self._values()
        return frozenset(
            name
            for name in self.arguments
            if _is_container(found[name].type())
            and any(not _reads_a_known_place(node) for node in _users(found[name]))
        )

    def _values(self) -> dict[str, Any]:
        inputs = list(self.graph.inputs())[0 if self.module is None else 1 :]
        names = {*self.arguments, *self.defaults}
        order = dict.fromkeys([*self.positional, *self.arguments, *self.defaults])
        return dict(zip([name for name in order if name in names], inputs, strict=True))


def _is_container(type: Any) -> bool:
    type = type.getElementType() if type.kind() == "OptionalType" else type
    return type.kind() in ("ListType", "DictType")


def _users(value: Any) -> Iterator[Any]:
    """Yield the nodes that use a value, or an optional's value where it is there."""
    for use in value.uses():
        if use.user.kind() in _UNWRAPPING:
            yield from _users(use.user.output())
        elif use.user.kind() not in _ASKING:
            yield use.user


def _reads_a_known_place(node: Any) -> bool:
    if node.kind() not in _OF_FIXED_LISTS:
        return False
    return node.kind() == "prim::ListUnpack" or node.inputsAt(1).node().kind() == "prim::Constant"


def is_script(model: Any) -> bool:
    """Return True for a scripted or traced module or function."""
    kinds = (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptModule)
    return isinstance(model, kinds)
