"""Descriptions of inputs and of a model, and values on the CPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .absent import refused
from .errors import Fail

#: ONNX Runtime's name of each of our dtypes.
TYPES = {
    "bool": "bool", "u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float", "f64": "double",
}  # fmt: skip
#: numpy's dtypes by ONNX's numbers.
NUMBERS = (
    "", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "", "bool", "float16", "float64",
)  # fmt: skip


@dataclass(frozen=True)
class NodeArg:
    """An input or output: its name, type such as "tensor(float)", and shape of ints, names and None."""

    name: str
    type: str
    shape: list[int | str | None]

    def __str__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says of itself."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


class OrtValue:
    """A tensor on the CPU."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    @classmethod
    def ortvalue_from_numpy(
        cls, array: Any, device_type: str = "cpu", device_id: int = 0, *_: Any
    ) -> OrtValue:
        """Return the value of an array, which it shares. Raises Fail for another device than the CPU."""
        check_device(device_type)
        return cls(np.asarray(array))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Any, element_type: Any = np.float32, device_type: str = "cpu", device_id: int = 0, *_: Any
    ) -> OrtValue:
        """Return a tensor of undefined content."""
        check_device(device_type)
        return cls(np.empty(tuple(shape), element_type))

    def numpy(self) -> np.ndarray:
        """Return the array, which is shared."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._array, dtype)

    def shape(self) -> list[int]:
        """Return the sizes."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """Return the type, such as "tensor(float)"."""
        name = {"float32": "float", "float64": "double"}.get(self._array.dtype.name, self._array.dtype.name)
        return f"tensor({name})"

    def element_type(self) -> int:
        """Return ONNX's number of the type."""
        return NUMBERS.index(self._array.dtype.name)

    ort_value_from_sparse_tensor = as_sparse_tensor = refused("shapevm has no sparse tensors")
    from_dlpack = refused("give numpy.from_dlpack's array to ortvalue_from_numpy")
    ortvalue_from_numpy_with_onnx_type = refused("an array has the type of its dtype")

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Return the number of bytes."""
        return self._array.nbytes

    def update_inplace(self, array: Any) -> None:
        """Copy an array of the same shape into the tensor."""
        np.copyto(self._array, array)

    def device_name(self) -> str:
        """Return "cpu"."""
        return "cpu"

    def has_value(self) -> bool:
        """Return True."""
        return True

    is_tensor = has_value

    def is_sparse_tensor(self) -> bool:
        """Return False."""
        return False

    is_tensor_sequence = is_sparse_tensor


def check_device(name: str) -> None:
    """Raise Fail for another device than the CPU."""
    if str(name).lower() not in ("cpu", "cpu_pinned"):
        raise Fail(f"device_type is {name!r}; shapevm runs on the CPU: give 'cpu'")
