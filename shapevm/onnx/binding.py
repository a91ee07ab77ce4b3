"""Inputs and outputs that are bound to a session before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_char
from typing import Any, Protocol

import numpy as np

from .errors import InvalidArgument
from .values import NodeArg, OrtValue, check_device


class Bindable(Protocol):
    """What a binding asks of a session."""

    def get_outputs(self) -> Sequence[NodeArg]:
        """Return the outputs."""
        ...


class IOBinding:
    """Bound arrays, by name. Outputs that have memory are copied into it, the others are new arrays."""

    def __init__(self, session: Bindable) -> None:
        self._names = [each.name for each in session.get_outputs()]
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, np.ndarray | None] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, array: Any) -> None:
        """Bind an array to an input."""
        self.inputs[name] = np.asarray(array)

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Bind a value to an input."""
        self.inputs[name] = value.numpy()

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Any, buffer_ptr: int
    ) -> None:
        """Bind memory at an address to an input; it must live until the binding is cleared."""
        check_device(device_type)
        self.inputs[name] = _array_at(buffer_ptr, element_type, shape)

    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Any = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """Bind memory at an address to an output; without an address, a new array is made."""
        check_device(device_type)
        self._check(name)
        self.outputs[name] = None if buffer_ptr is None else _array_at(buffer_ptr, element_type, shape)

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Bind a value to an output."""
        self._check(name)
        self.outputs[name] = value.numpy()

    def _check(self, name: str) -> None:
        if name not in self._names:
            raise InvalidArgument(f"{name!r} is no output of the model; it has {', '.join(self._names)}")

    def keep(self, results: dict[str, np.ndarray]) -> None:
        """Take the results of a call."""
        self._results = []
        for name, result in results.items():
            memory = self.outputs[name]
            if memory is not None:
                if memory.shape != result.shape or memory.dtype != result.dtype:
                    raise InvalidArgument(
                        f"output {name!r} is {result.dtype}{list(result.shape)}; the memory bound to it is "
                        f"{memory.dtype}{list(memory.shape)}"
                    )
                np.copyto(memory, result)
                result = memory
            self._results.append(OrtValue(result))

    def get_outputs(self) -> list[OrtValue]:
        """Return the results of the last call, in the order in which outputs were bound."""
        return list(self._results)

    get_outputs_as_ortvaluevector = get_outputs

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """Return the results of the last call as arrays."""
        return [each.numpy() for each in self._results]

    def clear_binding_inputs(self) -> None:
        """Unbind all inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Unbind all outputs."""
        self.outputs.clear()
        self._results = []

    def synchronize_inputs(self) -> None:
        """Do nothing: memory of the CPU is always ready."""

    synchronize_outputs = synchronize_inputs


SessionIOBinding = IOBinding


def _array_at(address: int, element_type: Any, shape: Any) -> np.ndarray:
    """Return an array over the caller's memory."""
    dtype = np.dtype(element_type)
    n_bytes = dtype.itemsize * int(np.prod(tuple(shape), dtype=np.int64))
    memory = (c_char * n_bytes).from_address(address)
    return np.frombuffer(memory, dtype).reshape(tuple(shape))
