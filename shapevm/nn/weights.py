"""Parameters from safetensors files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..vm.arrays import TORCH_DTYPES
from ..vm.errors import ArgumentError
from .module import Module, Parameter

Loaded = TypeVar("Loaded", bound=Module)
_DTYPES = {**{name.upper(): name for name in TORCH_DTYPES}, "BOOL": "bool"}  # safetensors' names of ours


def load(module: Loaded, path: str | os.PathLike[str], strict: bool = True) -> Loaded:
    """Give each parameter of `module` the tensor of its name in a safetensors file; return the module.

    Raises ArgumentError for a parameter that the file lacks or has in another dtype or shape, with `strict`
    also for a tensor of the file that is not a parameter, and for an unreadable file.
    """
    tensors, parameters = read_tensors(path), dict(module.named_parameters())
    extra = sorted(set(tensors) - set(parameters))
    if strict and extra:
        raise ArgumentError(
            f'{path} has "{extra[0]}", which is no parameter of {type(module).__name__}; load with '
            "strict=False to leave it out"
        )
    arrays = {name: _array(path, name, each, tensors.get(name)) for name, each in parameters.items()}
    for name, parameter in parameters.items():
        parameter.array = arrays[name]
    return module


def read_tensors(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Return "dtype", "shape" and "data" of every tensor of a safetensors file, by name. Raises ArgumentError
    for an unreadable file."""
    try:
        from safetensors import SafetensorError, deserialize
    except ImportError:
        raise ArgumentError("nn.load needs the package safetensors: pip install shapevm[nn]") from None
    try:
        return dict(deserialize(Path(path).read_bytes()))
    except (OSError, SafetensorError) as error:
        raise ArgumentError(f"{path} cannot be read as a safetensors file: {error}") from None


def _array(
    path: str | os.PathLike[str], name: str, wanted: Parameter, found: dict[str, Any] | None
) -> np.ndarray[Any, Any]:
    if found is None:
        raise ArgumentError(f'parameter "{name}" is not in {path}; it must be there as {_shown(wanted)}')
    dtype, shape = _DTYPES.get(found["dtype"], found["dtype"]), tuple(found["shape"])
    if (dtype, shape) != (wanted.dtype, wanted.shape):
        raise ArgumentError(
            f'parameter "{name}" is {dtype}{list(shape)} in {path}, but {_shown(wanted)} in the module; '
            "change the module's sizes or dtype, or give the file that belongs to it"
        )
    kind = np.dtype("uint16" if dtype == "bf16" else TORCH_DTYPES[dtype])
    return np.frombuffer(found["data"], kind).reshape(shape)


def _shown(parameter: Parameter) -> str:
    return f"{parameter.dtype}{list(parameter.shape)}"
