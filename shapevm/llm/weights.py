"""Weights of a folder's safetensors files to the parameters of a `Decoder`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..jit.evaluation import bf16_to_f32
from ..nn.module import Parameter
from ..nn.quantised import Quantised
from ..nn.weights import read_tensors
from ..vm.errors import ArgumentError, FileError
from ..vm.schema import MapOf, Number, Object, OneOf, Text, decode
from .architectures import INNER, OUTER
from .models import Decoder

Array = np.ndarray[Any, Any]
Values = Array | Quantised
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
_INDEX = Object(
    {"weight_map": MapOf(Text(most=256, plain=True))}, {"metadata": MapOf(OneOf((Number(), Text())))}
)
_PREFIXES = ("model.", "transformer.")  # some folders leave them out
_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8"}


def load_weights(decoder: Decoder, tensors: Iterable[tuple[str, Values]], where: str) -> None:
    """Give each parameter its values from tensors, f32 or quantised, with the names of a folder of Hugging
    Face; other tensors are left out.

    Raises ArgumentError, which names `where` and the tensor, for one that is missing or has another shape.
    """
    wanted: dict[str, list[tuple[int, Parameter]]] = {}
    for name, parameter in decoder.named_parameters():
        if parameter.array is None:
            file_name, place = _source(decoder, name)
            wanted.setdefault(file_name, []).append((place, parameter))
    for file_name, values in tensors:
        sharing = wanted.pop(_short(file_name), [])
        parts = [parameter for _, parameter in sorted(sharing, key=lambda each: each[0])]
        if parts:
            _give(decoder, parts, values, file_name, where)
    if wanted:
        raise ArgumentError(f"{where} has no tensor {min(wanted)!r}, which its config requires")


def _source(decoder: Decoder, name: str) -> tuple[str, int]:
    """Return the name of a parameter's tensor, without a prefix, and its place among those that share it."""
    kind = decoder.config.kind
    outer, (head, *rest) = {**OUTER, **kind.outer}, name.split(".")
    if head != "layers":
        return _short(".".join([outer[head], *rest])), 0
    index, *path, leaf = rest
    part = {**INNER, **kind.inner}[".".join(path)]
    return _short(".".join([outer[head], index, part.name, leaf])), part.place


def _short(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _give(decoder: Decoder, parts: list[Parameter], values: Values, name: str, where: str) -> None:
    """Split the rows of a tensor among parameters."""
    kind = decoder.config.kind
    is_inner = len(parts[0].shape) == 2 and ".h." in f".{name}"
    if "transposed" in kind.traits and is_inner and len(values.shape) == 2:
        values = values.transposed() if isinstance(values, Quantised) else values.T
    rows = [int(part.shape[0]) for part in parts]
    shape = (sum(rows), *parts[0].shape[1:])
    if values.shape != shape:
        raise ArgumentError(
            f"{where}: tensor {name!r:.100} has the shape {list(values.shape)}; its config says {list(shape)}"
        )
    if kind.norm == "rms1" and len(shape) == 1 and name.endswith("weight"):
        values = (values.values() if isinstance(values, Quantised) else values) + np.float32(1)
    end = 0
    for part, n in zip(parts, rows, strict=True):
        begin, end = end, end + n
        part.array = _rows(values, begin, end)


def _rows(values: Values, begin: int, end: int) -> Values:
    if isinstance(values, Quantised):
        return values if (begin, end) == (0, values.shape[0]) else values.rows(begin, end)
    return np.ascontiguousarray(values[begin:end])


def folder_tensors(folder: Path) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of a folder as f32, a file at a time. Raises FileError and ArgumentError."""
    for path in _files(folder):
        for name, found in read_tensors(path).items():
            if found["dtype"] in _DTYPES:
                yield name, _as_f32(found)


def _files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder: one, or those that an index names."""
    index = folder / INDEX
    if not index.is_file():
        return [folder / SINGLE]
    try:
        text = index.read_bytes()
    except OSError as error:
        raise FileError(f"{index} cannot be read: {error.strerror or error}") from None
    names = sorted(set(decode(text, _INDEX, str(index), ArgumentError)["weight_map"].values()))
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ArgumentError(f"{index} names the file {name!r:.80}; it must be a file of its folder")
    return [folder / name for name in names]


def _as_f32(found: dict[str, Any]) -> Array:
    dtype, shape = found["dtype"], tuple(found["shape"])
    values = np.frombuffer(found["data"], _DTYPES[dtype]).reshape(shape)
    if dtype == "BF16":
        return bf16_to_f32(values)
    return np.asarray(values, np.float32)
