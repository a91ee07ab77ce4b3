"""The graph that is being built: module arrays become its constants and state."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ..compiler.frontends.importer import Importer
from ..compiler.ir.graph import Value
from ..compiler.ir.types import TensorType
from ..vm.errors import ArgumentError
from .module import Array, Buffer, Module, Parameter
from .tensor import Tensor

CURRENT: ContextVar[Trace] = ContextVar("shapevm.nn.trace")
_HERE = str(Path(__file__).parent)


def current() -> Trace:
    """Return the trace of the compilation that runs. Raises ArgumentError outside of one."""
    found = CURRENT.get(None)
    if found is None:
        raise ArgumentError("tensors of shapevm.nn exist in forward only; call nn.compile(module, inputs)")
    return found


class Trace:
    """Appends operators to `importer.graph`, through the converters of torch's operators."""

    def __init__(self, model: Module, name: str) -> None:
        self.importer = Importer(name)
        self.names = {id(array): name for name, array in model.named_arrays()}
        self._values: dict[int, Value] = {}  # of arrays, by identity
        self._kept: list[Array] = []  # keeps identities of arrays outside the model valid

    def add_state(self, model: Module) -> None:
        """Make inputs of the model's buffers, behind the user's."""
        graph = self.importer.graph
        for target, buffer in model.named_arrays():
            if isinstance(buffer, Buffer) and id(buffer) not in self._values:
                assert buffer.array is not None
                graph.state[f"state.{target}"] = (buffer.array, buffer.dtype)
                graph.structure.setdefault("state", []).append(target)
                self._values[id(buffer)] = graph.input(
                    f"state.{target}", TensorType(buffer.dtype, buffer.shape)
                )

    def state(self, model: Module) -> dict[str, Value]:
        """Return the values of the model's buffers that were updated, by their names; note which of them are
        written in place, and which are given back."""
        graph, arrays = self.importer.graph, dict(model.named_arrays())
        updated: dict[str, Value] = {}
        for name in graph.structure.get("state", []):
            value = self._values[id(arrays[name])]
            if value is not graph.body.params[graph.inputs.index(f"state.{name}")]:
                updated[name] = value
        in_place = [name for name in updated if getattr(arrays[name], "in_place", False)]
        if in_place:
            graph.structure["in_place"] = in_place
        if "state" in graph.structure:
            graph.structure["kept"] = [name for name in updated if name not in in_place]
        return updated

    def update(self, buffer: Buffer, value: Any) -> None:
        """Make `value` the buffer's. Raises ArgumentError for one of another dtype or shape."""
        old, new = self.value(buffer), self.value(value)
        if str(old.type) != str(new.type):
            raise ArgumentError(
                f'buffer "{self.names[id(buffer)]}" is {old.type}; it cannot be updated to {new.type}'
            )
        self._values[id(buffer)] = new

    def value(self, x: Any) -> Any:
        """Return the graph's value of a tensor, parameter or buffer; of a list its items'; others as they
        are."""
        if isinstance(x, Tensor):
            return x.value
        if isinstance(x, list | tuple):
            return [self.value(each) for each in x]
        if not isinstance(x, Array):
            return x
        if id(x) not in self._values:
            self._values[id(x)] = self._constant(x)
        return self._values[id(x)]

    def _constant(self, x: Array) -> Value:
        name = self.names.get(id(x))
        if not isinstance(x, Parameter) or name is None:
            raise ArgumentError(
                "forward uses a parameter or buffer that the module does not hold; set it as an attribute in "
                "__init__"
            )
        if x.array is None:
            raise ArgumentError(
                f'parameter "{name}" has no values; call nn.load(module, file) before compiling'
            )
        return self.importer.constant(x.array, x.dtype, name)

    def call(self, overload: str, *args: Any, **kwargs: Any) -> Any:
        """Append the operator that torch calls `overload`, such as "aten.relu.default"."""
        given: Mapping[str, Any] = {name: self.value(each) for name, each in kwargs.items()}
        made = self.importer.convert(overload, [self.value(x) for x in args], dict(given), _source())
        return tuple(map(Tensor, made)) if isinstance(made, tuple) else Tensor(made)


def _source() -> str:
    """Return the line of the caller that is not in this package, "model.py:12"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
