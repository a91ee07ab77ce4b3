"""What a model is, told without importing what compiles it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


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
        inputs = list(self.graph.inputs())[0 if self.module is None else 1 :]
        names = [*self.arguments, *self.defaults]
        order = list(dict.fromkeys([*self.positional, *names]))
        return {name: x.type() for name, x in zip([n for n in order if n in names], inputs, strict=True)}


def is_script(model: Any) -> bool:
    """Return True for a scripted or traced module or function."""
    kinds = (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptModule)
    return isinstance(model, kinds)
