"""What a model is, told without importing what compiles it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

#: Types of TorchScript's, and kinds of plain values.
PLAIN = {"IntType": "int", "FloatType": "float", "BoolType": "bool", "StringType": "str"}
KINDS = {**PLAIN, "TensorType": "tensor"}
_OF_FIXED_LISTS = ("prim::ListUnpack", "aten::__getitem__")


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

    def lists(self) -> dict[str, str]:
        """Return the kinds of the elements of arguments that are lists of plain values or ("tensor") tensors,
        where the program does more with a list than to read known positions."""
        found = {}
        for name in self.arguments:
            value, kind = self._values()[name], self.types()[name].kind()
            element = value.type().getElementType().kind() if kind == "ListType" else ""
            uses = [use.user for use in value.uses()]
            if element in KINDS and not all(map(_reads_a_known_position, uses)):
                found[name] = KINDS[element]
        return found

    def _values(self) -> dict[str, Any]:
        inputs = list(self.graph.inputs())[0 if self.module is None else 1 :]
        names = {*self.arguments, *self.defaults}
        order = dict.fromkeys([*self.positional, *self.arguments, *self.defaults])
        return dict(zip([name for name in order if name in names], inputs, strict=True))


def _reads_a_known_position(node: Any) -> bool:
    if node.kind() not in _OF_FIXED_LISTS:
        return False
    return node.kind() == "prim::ListUnpack" or node.inputsAt(1).node().kind() == "prim::Constant"


def is_script(model: Any) -> bool:
    """Return True for a scripted or traced module or function."""
    kinds = (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptModule)
    return isinstance(model, kinds)
