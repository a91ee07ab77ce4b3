"""Tensors of an archive: numpy arrays over their storages, checked against them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....vm.arrays import TORCH_DTYPES
from ...ir.errors import ArchiveError
from .container import Container
from .records import Global

#: Our dtype of a storage; None: a dtype that shapevm does not have.
_STORAGES = {
    "torch.BoolStorage": "bool", "torch.ByteStorage": "u8", "torch.CharStorage": "i8",
    "torch.ShortStorage": "i16", "torch.IntStorage": "i32", "torch.LongStorage": "i64",
    "torch.HalfStorage": "f16", "torch.BFloat16Storage": "bf16", "torch.FloatStorage": "f32",
    "torch.DoubleStorage": "f64",
}  # fmt: skip
MAX_RANK = 32
MAX_ELEMENTS = 1 << 47  # of a tensor, however small its storage
MAX_REPEATED = 1 << 27  # elements of all tensors together beyond those of their storages


@dataclass(frozen=True, eq=False)
class Storage:
    """A storage of tensors: PyTorch's name of its kind, our dtype, its member's name and its elements."""

    kind: str
    dtype: str
    member: str
    elements: np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor: its elements as an array, with its strides (bf16 are the bits as uint16), and its location:
    `offset` and `strides` count elements of its storage."""

    array: np.ndarray[Any, Any]
    storage: Storage
    offset: int
    strides: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """Our name of its dtype."""
        return self.storage.dtype


class Tensors:
    """Makes the tensors of one pickle, whose storages are members of `folder`."""

    def __init__(self, container: Container, folder: str) -> None:
        self.container, self.folder = container, folder
        self._bytes: dict[str, bytes] = {}
        self._n_repeated = 0

    def rebuild(self, function: str, args: tuple[Any, ...]) -> Any:
        """Return a storage or a tensor, None for another function."""
        if function == "storage":
            return self._storage(args)
        if function == "torch._utils._rebuild_tensor_v2":
            return self._counted(_tensor(args))
        if function == "torch._utils._rebuild_qtensor":
            raise ArchiveError(f"{self.folder}.pkl has a quantised tensor, which is not read")
        return None

    def _counted(self, made: StoredTensor) -> StoredTensor:
        """Return a tensor. Raises ArchiveError if tensors repeat elements of their storages so often that
        copies would fill the memory."""
        self._n_repeated += max(0, made.array.size - made.storage.elements.size)
        if self._n_repeated > MAX_REPEATED:
            raise ArchiveError(
                f"the tensors of {self.folder}.pkl have {self._n_repeated:,} elements more than the archive "
                f"stores; at most {MAX_REPEATED:,} are read"
            )
        return made

    def _storage(self, args: tuple[Any, ...]) -> Storage:
        match args:
            case ("storage", Global(name), str(key), str(), int(n)) if type(n) is int and n >= 0:
                pass
            case _:
                raise ArchiveError(f"{self.folder}.pkl describes a storage in a way PyTorch does not write")
        if name not in _STORAGES:
            raise ArchiveError(f"{self.folder}.pkl has a storage {name[:100]!r}, whose dtype is not read")
        dtype = _STORAGES[name]
        number = np.dtype(np.uint16 if dtype == "bf16" else TORCH_DTYPES[dtype]).newbyteorder("<")
        member = f"{self.folder}/{key}"
        if len(self._bytes.get(member, b"")) != n * number.itemsize or member not in self._bytes:
            self._bytes[member] = self.container.storage(member, n * number.itemsize)
        elements = np.frombuffer(self._bytes[member], np.uint8 if dtype == "bool" else number)
        if dtype == "bool":
            if elements.size and elements.max() > 1:
                raise ArchiveError(f"{member} holds bools other than 0 and 1")
            elements = elements.view(np.bool_)
        return Storage(name, dtype, member, elements)


def _tensor(args: tuple[Any, ...]) -> StoredTensor:
    match args:
        case (Storage() as storage, int(offset), tuple(sizes), tuple(strides), bool(), dict(), *_):
            pass
        case _:
            raise ArchiveError("a tensor is described in a way that PyTorch does not write")
    numbers = (offset, *sizes, *strides)
    if (
        len(sizes) != len(strides)
        or len(sizes) > MAX_RANK
        or any(type(n) is not int or n < 0 for n in numbers)
    ):
        raise ArchiveError("a tensor's offset, sizes and strides are not matching lists of ints from 0 on")
    if math.prod(max(size, 1) for size in sizes) > MAX_ELEMENTS or any(n > MAX_ELEMENTS for n in numbers):
        raise ArchiveError(f"a tensor has more than {MAX_ELEMENTS:,} elements")
    total, elements = storage.elements.size, storage.elements
    is_empty = 0 in sizes
    last = offset + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    if (offset > total) if is_empty else (last >= total):
        raise ArchiveError(f"a tensor reads element {last:,} of a storage of {total:,}")
    if is_empty:
        return StoredTensor(np.zeros(sizes, elements.dtype), storage, offset, strides)
    item = elements.itemsize
    steps = tuple(step if size > 1 else 0 for size, step in zip(sizes, strides, strict=True))
    array = np.lib.stride_tricks.as_strided(
        elements[offset:], sizes, [s * item for s in steps], writeable=False
    )
    return StoredTensor(array, storage, offset, strides)
