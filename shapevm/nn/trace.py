"""The graph that is being built: module arrays become its constants and state."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..compiler.frontends.importer import Importer
from ..compiler.ir.graph import Value
from ..compiler.ir.types import TensorType
from ..vm.errors import ArgumentError
from .module import Array, Buffer, Module, Parameter
from .quantised import Quantised
from .tensor import Tensor

_HERE = str(Path(__file__).parent)


class Trace:
    """Appends operators to `importer.graph`, through the converters of torch's operators."""

    def __init__(self, model: Module, name: str) -> None:
        self.importer = Importer(name)
        self.names = {id(array): name for name, array in model.named_arrays()}
        self._values: dict[int, Value] = {}  # of arrays, by identity
        self._kept: list[Array] = []  # keeps identities of arrays outside the model valid

    def add_state(self, model: Module) -> None:
        """Add inputs for the model's buffers, after the user's."""
        graph = self.importer.graph
        for target, buffer in model.named_arrays():
            if isinstance(buffer, Buffer) and id(buffer) not in self._values:
                assert isinstance(buffer.array, np.ndarray)
                graph.state[f"state.{target}"] = (buffer.array, buffer.dtype)
                graph.structure.setdefault("state", []).append(target)
                self._values[id(buffer)] = graph.input(
                    f"state.{target}", TensorType(buffer.dtype, buffer.shape)
                )

    def state(self, model: Module) -> dict[str, Value]:
        """Return the values of the model's buffers that were updated, by their names; note which of them are
        written in place, and which are returned."""
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
        """Set the buffer to `value`. Raises ArgumentError for another dtype or shape."""
        old, new = self.value(buffer), self.value(value)
        if str(old.type) != str(new.type):
            raise ArgumentError(
                f'buffer "{self.names[id(buffer)]}" is {old.type}; it cannot be updated to {new.type}'
            )
        self._values[id(buffer)] = new

    def value(self, x: Any) -> Any:
        """Return the graph's value of a tensor, parameter or buffer; of a list its items'; anything else
        unchanged."""
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
        if isinstance(x.array, Quantised):
            return self._dequantised(x.array, x, name)
        return self.importer.constant(x.array, x.dtype, name)

    def _dequantised(self, array: Quantised, x: Array, name: str) -> Value:
        """Return the values of a weight of integers, which products read as they are."""
        if (x.dtype, x.shape) != ("f32", array.shape):
            raise ArgumentError(
                f'parameter "{name}" is {x.dtype}{list(x.shape)}, but its quantised values are '
                f"f32{list(array.shape)}; give values of its shape"
            )
        add = self.importer.constant
        zeros = None if array.zeros is None else add(array.zeros, "f32", f"{name}.zeros")
        parts = (
            add(array.integers, "i8", name),
            array.blocks,
            add(array.scales, "f32", f"{name}.scales"),
            zeros,
        )
        made: Value = self.importer.convert(
            "torchao.dequantize_affine.default", [*parts, "i8"], {}, _source()
        )
        return made

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
