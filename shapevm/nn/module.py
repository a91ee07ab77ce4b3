"""Modules: objects that hold parameters, buffers and other modules in their attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..vm.arrays import TORCH_DTYPES
from ..vm.errors import ArgumentError
from .current import current
from .quantised import Quantised
from .tensor import Operand


class Array(Operand):
    """A tensor that a module holds: of `shape` and `dtype` ("f32"). `array`: its values, bf16 as uint16 bits;
    None: not loaded yet."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "f32") -> None:
        if dtype not in TORCH_DTYPES:
            raise ArgumentError(f"dtype {dtype!r} is unknown; use one of {', '.join(TORCH_DTYPES)}")
        self.shape: tuple[int, ...] = tuple(shape)
        self.dtype = dtype
        self.array: np.ndarray[Any, Any] | Quantised | None = None


class Parameter(Array):
    """A weight: a constant of the program, loaded from a safetensors file. Its `array` may be `Quantised`,
    if its dtype is f32."""


class Buffer(Array):
    """State that the program keeps between calls, zeros at first; `nn.Tensor`s take its place by
    `update`. `in_place`: calls write only the rows that change, into the existing memory; each function may
    then update it once, by `index_copy` of itself, before reading it."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "f32", in_place: bool = False) -> None:
        super().__init__(shape, dtype)
        self.in_place = in_place
        kind = "uint16" if dtype == "bf16" else TORCH_DTYPES[dtype]
        self.array = np.zeros(self.shape, kind)

    def update(self, value: Any) -> None:
        """Set the buffer to `value`, a tensor of the same shape and dtype."""
        current().update(self, value)


class Module:
    """The base class: a subclass sets attributes in `__init__` and defines its computation in `forward`."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's results for tensors."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what `forward` returns."""
        return self.forward(*args, **kwargs)

    def named_arrays(self, prefix: str = "") -> Iterator[tuple[str, Array]]:
        """Yield every parameter and buffer of this module and those in it, by its name, such as
        "layers.0.weight"."""
        for name, value in vars(self).items():
            if isinstance(value, Array):
                yield prefix + name, value
            elif isinstance(value, Module):
                yield from value.named_arrays(f"{prefix}{name}.")

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield the parameters by their names."""
        return ((name, each) for name, each in self.named_arrays() if isinstance(each, Parameter))
