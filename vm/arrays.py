"""Arrays of other libraries: recognising them without importing torch, their addresses, and making new ones.

torch tensors are known by their class's module; numpy arrays are themselves; anything else comes in through
DLPack. bf16 is torch.bfloat16 in torch, uint16 in numpy (arrays with a dtype named bfloat16 are also read).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import prod
from typing import Any, Final, Protocol, cast

import numpy as np

from .errors import DeviceError, DtypeError, KindError, OutOfMemory
from .program import NUMPY_DTYPES

TORCH_DTYPES: Final[dict[str, str]] = {
    "bool": "bool", "u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
}  # fmt: skip


MAX_LISTS: Final = 16  # nested; a tensor has no more axes
MAX_OVERLAP_WORK: Final = 10_000  # candidates that are tested for whether two arrays share memory


class Library(Protocol):
    """The operations of an array library that calls need."""

    def array(self, value: Any, what: str) -> tuple[Any, str]:
        """Return `value` as a contiguous, aligned array in the CPU's memory that the caller keeps alive, and
        its dtype.

        Raises DeviceError, DtypeError or KindError, naming `what`.
        """
        ...

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a new contiguous array, contents undefined."""
        ...

    def address(self, array: Any) -> int:
        """Return the address of a contiguous array's data."""
        ...

    def over(self, memory: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a contiguous array over a buffer, which must live as long."""
        ...

    def numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a contiguous array's memory as a numpy array (bf16 as uint16)."""
        ...


class NumpyLibrary:
    """numpy, and everything that speaks DLPack."""

    def array(self, value: Any, what: str) -> tuple[np.ndarray[Any, Any], str]:
        """See Library."""
        if not isinstance(value, (np.ndarray, np.generic)):
            value = _from_dlpack(value, what)
        if type(value) is not np.ndarray and np.ma.is_masked(value):
            raise KindError(f"{what} is a masked array, and no program knows masks: pass x.filled(value)")
        array = np.asarray(value)
        name = "bf16" if array.dtype.name == "bfloat16" else NUMPY_NAMES.get(array.dtype.newbyteorder("="))
        if name is None:
            raise DtypeError(
                f"{what} is {array.dtype}; no program takes that: use one of {', '.join(NUMPY_DTYPES)}"
            )
        little = array.dtype.newbyteorder("<")
        copy = f"a copy of {what}"
        return _allocated(lambda: np.require(array, little, ("C", "A")), copy, array.nbytes), name

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        """See Library."""
        n_bytes = prod(shape) * NUMPY_DTYPES[dtype].itemsize
        return _allocated(lambda: np.empty(shape, NUMPY_DTYPES[dtype]), "a result", n_bytes)

    def address(self, array: np.ndarray[Any, Any]) -> int:
        """See Library."""
        return int(array.__array_interface__["data"][0])

    def over(self, memory: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        """See Library."""
        return np.frombuffer(memory, NUMPY_DTYPES[dtype]).reshape(shape)

    def numpy(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """See Library."""
        return array


def _allocated(make: Callable[[], Any], what: str, n_bytes: int) -> Any:
    """Return what `make` returns, which may allocate. Raises OutOfMemory if numpy or torch cannot
    allocate."""
    try:
        return make()
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        raise OutOfMemory(
            f"memory: there is none for {what} of {n_bytes} bytes; use smaller inputs"
        ) from None


#: numpy dtype -> dtype. bf16 is represented as uint16.
NUMPY_NAMES: Final[dict[np.dtype[Any], str]] = {dtype: name for name, dtype in NUMPY_DTYPES.items()}
NUMPY: Final = NumpyLibrary()


def _from_dlpack(value: Any, what: str) -> np.ndarray[Any, Any]:
    if not hasattr(value, "__dlpack__"):
        raise KindError(
            f"{what} is a {type(value).__name__}; pass a torch tensor, a numpy array or another DLPack array"
        )
    device = value.__dlpack_device__()
    if device[0] != 1:  # kDLCPU
        raise DeviceError(
            f"{what} is on DLPack device {tuple(map(int, device))}; the program runs on the CPU: copy it"
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        raise KindError(f"{what} cannot be read through DLPack: {error}") from None


def as_array(value: Any, dtype: str, what: str) -> Any:
    """Return nested lists of numbers, and objects with `__array__`, as numpy arrays; anything else unchanged.
    Numbers are converted to the program's `dtype`; ints may become floats.

    Raises KindError for lists of different lengths, DtypeError for numbers that `dtype` cannot hold.
    """
    if is_array(value):
        return value
    if not _is_numbers(value):
        return _converted(value, what) if hasattr(value, "__array__") else value
    try:
        array = np.array(value)
    except ValueError:
        raise KindError(f"{what} is a list of lists of different lengths; make them equally long") from None
    wanted = NUMPY_DTYPES[dtype]
    fits = array.size == 0 or (np.can_cast(array.dtype, wanted, "same_kind") and dtype != "bf16")
    made = array.astype(wanted) if fits else None
    if made is None or (wanted.kind in "iu" and not np.array_equal(made, array)):
        held = f"{what} is a list of {array.dtype} that {dtype} cannot hold"
        raise DtypeError(f"{held}; pass an array of {dtype}")
    return made


def _converted(value: Any, what: str) -> np.ndarray[Any, Any]:
    """Convert an object of another library by its `__array__`; subclasses such as masked arrays are kept.
    Raises KindError."""
    try:
        return np.asanyarray(value)
    except Exception as error:  # whatever the object raises
        reason = f"{type(error).__name__}: {error}"
        raise KindError(
            f"{what} is a {type(value).__name__} that makes no array of itself ({reason})"
        ) from error


def _is_numbers(value: Any, depth: int = 0) -> bool:
    """Return whether `value` is a list or tuple of numbers, or of such lists."""
    if not isinstance(value, (list, tuple)) or depth > MAX_LISTS:
        return False
    return all(isinstance(x, (bool, int, float)) or _is_numbers(x, depth + 1) for x in value)


class TorchLibrary:
    """torch, as the caller imported it."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._dtypes = {name: getattr(torch, full) for name, full in TORCH_DTYPES.items()}
        self._names = {dtype: name for name, dtype in self._dtypes.items()}

    def array(self, value: Any, what: str) -> tuple[Any, str]:
        """See Library."""
        if value.device.type != "cpu":
            raise DeviceError(f"{what} is on {value.device}; the program runs on the CPU: pass .cpu()")
        if value.layout != self._torch.strided:
            raise KindError(f"{what} has layout {value.layout}; pass .to_dense()")
        if value.dtype not in self._names:
            raise DtypeError(
                f"{what} is {value.dtype}; no program takes that: use one of {', '.join(self._dtypes)}"
            )
        fake = sys.modules.get("torch._subclasses.fake_tensor")
        if fake is not None and isinstance(value, fake.FakeTensor):
            raise KindError(f"{what} is a FakeTensor, which has no memory; pass a real tensor")
        plain = value.detach() if value.requires_grad else value
        if not value.is_contiguous() or value.is_neg():
            copied = plain
            plain = _allocated(lambda: copied.resolve_neg().contiguous(), f"a copy of {what}", copied.nbytes)
        try:
            misaligned = plain.data_ptr() % value.element_size() != 0
        except RuntimeError as error:
            raise KindError(f"{what} is a {type(value).__name__} without memory: {error}") from None
        return plain.clone() if misaligned else plain, self._names[value.dtype]

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """See Library."""
        wanted = self._dtypes[dtype]
        make = lambda: self._torch.empty(shape, dtype=wanted, device="cpu")  # noqa: E731
        return _allocated(make, "a result", prod(shape) * wanted.itemsize)

    def address(self, array: Any) -> int:
        """See Library."""
        return int(array.data_ptr())

    def over(self, memory: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """See Library."""
        if not len(memory):
            return self.empty(shape, dtype)
        made = self._torch.frombuffer(memory, dtype=self._dtypes[dtype])
        return made if len(shape) == 1 else made.view(shape)

    def numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """See Library."""
        is_bf16 = self._names[array.dtype] == "bf16"
        made: np.ndarray[Any, Any] = (array.view(self._torch.uint16) if is_bf16 else array).numpy()
        return made


@cache
def torch_library() -> TorchLibrary:
    """Return the library of torch, which must be imported."""
    return TorchLibrary(sys.modules["torch"])


def has_torch() -> bool:
    """Return whether torch is completely imported, and not blocked by a program (None)."""
    return hasattr(sys.modules.get("torch"), "compile")


def is_torch(value: Any) -> bool:
    """Return whether `value` is a torch tensor (or of a subclass of it)."""
    return isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))


def is_array(value: Any) -> bool:
    """Return whether `value` is an array of any library (numpy's scalars count)."""
    return isinstance(value, (np.ndarray, np.generic)) or is_torch(value) or hasattr(value, "__dlpack__")


def is_writable(array: Any) -> bool:
    """Return whether the elements of an array may be changed."""
    flags = getattr(array, "flags", None)
    return is_torch(array) or (flags is not None and bool(flags.writeable))


def sharing_pairs(arrays: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield the positions, the lower first, of each pair of `arrays` that share memory of some element;
    values that are not arrays in memory share none. If the exact test is too expensive, pairs that may
    overlap count. Only arrays whose address ranges overlap are compared: n disjoint arrays take O(n log n)
    steps."""
    spans = sorted((*bounds, i) for i, x in enumerate(arrays) if (bounds := _bounds(x)) is not None)
    for i, (_, end, position) in enumerate(spans):
        for start, _, other in itertools.islice(spans, i + 1, None):
            if start >= end:
                break
            if _overlap(arrays[position], arrays[other]):
                yield min(position, other), max(position, other)


def _bounds(x: Any) -> tuple[int, int] | None:
    """Return the addresses of an array's first byte and of the one after its last, if it has any."""
    if not is_array(x):
        return None
    try:
        start, shape, strides, size = _torch_layout(x) if is_torch(x) else _numpy_layout(_bytes_of(x))
    except (RuntimeError, DeviceError, KindError):  # sparse or fake tensors: binding reports the error
        return None
    if 0 in shape:
        return None
    end = start + size
    for n, stride in zip(shape, strides, strict=True):
        reach = (n - 1) * stride
        start, end = (start, end + reach) if reach > 0 else (start + reach, end)
    return start, end


def _torch_layout(x: Any) -> tuple[int, Sequence[int], Sequence[int], int]:
    size = x.element_size()
    return x.data_ptr(), x.shape, [stride * size for stride in x.stride()], size


def _numpy_layout(x: np.ndarray[Any, Any]) -> tuple[int, Sequence[int], Sequence[int], int]:
    return x.__array_interface__["data"][0], x.shape, x.strides, x.itemsize


def _overlap(x: Any, y: Any) -> bool:
    mine, other = _bytes_of(x), _bytes_of(y)
    try:
        return np.shares_memory(mine, other, max_work=cast(Any, MAX_OVERLAP_WORK))
    except np.exceptions.TooHardError:
        return np.may_share_memory(mine, other)


class _Bytes:
    """A numpy array interface for memory that is not read."""

    def __init__(self, tensor: Any) -> None:
        size = tensor.element_size()
        strides = tuple(stride * size for stride in tensor.stride())
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{size}",
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "strides": strides,
        }


def _bytes_of(array: Any) -> np.ndarray[Any, Any]:
    """Return an array's memory as a numpy array of untyped elements."""
    if is_torch(array):
        return np.asarray(_Bytes(array)) if array.numel() else np.empty(0)
    return np.asarray(
        array if isinstance(array, (np.ndarray, np.generic)) else _from_dlpack(array, "an array")
    )


def library_of(value: Any) -> Library:
    """Return the library that an array belongs to; numpy for anything but torch."""
    return torch_library() if is_torch(value) else NUMPY
