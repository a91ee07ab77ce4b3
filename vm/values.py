"""Python values to `svm_value`s and back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

from ._runtime import ffi, lib
from .arrays import Library, is_array, is_writable, library_of
from .errors import (
    BY_CODE,
    OK,
    ArgumentError,
    Cancelled,
    Error,
    ExternError,
    IntegerOverflow,
    InternalError,
    KindError,
    LimitExceeded,
    OutOfMemory,
)
from .isa import DTYPES, TAGS
from .program import DTYPE_NAMES

INT64 = range(-(1 << 63), 1 << 63)
TAG_NAMES = {code: name for name, code in TAGS.items()}
_NO_MEMORY = 64  # the address of an empty array whose library returns 0: NULL would be refused
_CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", dict: "dict"}


#: `raised`: the exception of a callback of this thread, which cannot pass through C.
_KEPT = threading.local()


def keep_raised(kind: type[BaseException], raised: BaseException, traceback: Any) -> None:
    """Keep a callback's exception until the C function that called it returns (cffi's `onerror`). A signal
    handler may raise anywhere, even before a callback's first line."""
    _KEPT.raised = raised


def raise_kept() -> None:
    """Raise the exception of a callback of this thread, if any."""
    raised, _KEPT.raised = getattr(_KEPT, "raised", None), None
    if raised is not None:
        raise raised


def _was_interrupted(code: int, message: str) -> bool:
    """Return whether a call failed in a callback whose exception was lost: a second signal arrived while the
    first one's exception was being kept."""
    return (
        code == Cancelled.code
        or (code == OutOfMemory.code and "allocator refused" in message)
        or (code == ExternError.code and message.endswith("and no message"))
    )


def text_of(pointer: Any) -> str:
    """Return the text at a `const char *`, "" for NULL."""
    return "" if pointer == ffi.NULL else ffi.string(pointer).decode(errors="replace")


def check_cancelled(code: int, flag: Any) -> None:
    """Raise Cancelled if a call's flag (an `int32_t *` or NULL) stopped it, or a callback's exception if one
    did. Without a flag only callbacks stop calls."""
    if code == Cancelled.code and flag != ffi.NULL and flag[0]:
        raise_kept()
        raise Cancelled("the call was stopped: its CancelFlag is set")


def check(code: int, error: Any) -> None:
    """Raise the exception of a code other than SVM_OK, with the `svm_error`'s message and position; or a
    callback's exception."""
    if code == OK:
        return
    raise_kept()
    message = ffi.string(error.message).decode(errors="replace")
    if _was_interrupted(code, message):
        raise KeyboardInterrupt
    source = "" if error.source == ffi.NULL else ffi.string(error.source).decode(errors="replace")
    raise BY_CODE.get(code, InternalError)(message, function=error.function, pc=error.pc, source=source)


def fill_error(error: Any, raised: BaseException) -> int:
    """Write an exception into an `svm_error`; return its code (extern for exceptions that are not the
    VM's).
    """
    code = raised.code if isinstance(raised, Error) else ExternError.code
    text = str(raised) if isinstance(raised, Error) else f"{type(raised).__name__}: {raised}"
    encoded = text.encode(errors="replace")[: lib.SVM_MESSAGE_BYTES - 1].decode(errors="ignore").encode()
    ffi.memmove(error.message, encoded + b"\0", len(encoded) + 1)
    error.code = code
    return int(code)


def fill_tensor(tensor: Any, address: int, dtype: str, shape: tuple[int, ...], what: str) -> None:
    """Fill an `svm_tensor` (contiguous). Raises KindError for a rank over the runtime's limit."""
    if len(shape) > lib.SVM_MAX_RANK:
        raise KindError(f"{what} has rank {len(shape)}; at most {lib.SVM_MAX_RANK} is possible")
    tensor.data = ffi.cast("void *", address)
    tensor.dtype = DTYPES[dtype][0]
    tensor.rank = len(shape)
    if shape:
        tensor.sizes[0 : len(shape)] = shape
    tensor.strides = ffi.NULL


def check_written(x: Any, what: str) -> None:
    """Raise ArgumentError if an array cannot be changed in place: it is read-only, or would be copied."""
    library = library_of(x)
    if not is_writable(x):
        raise ArgumentError(f"{what} is changed in place; pass an array that can be written")
    if library.address(library.array(x, what)[0]) != library.address(x):
        raise ArgumentError(f"{what} is changed in place; pass a contiguous array with aligned elements")


def check_in_rows(x: Any, what: str) -> None:
    """Raise ArgumentError unless an array is row-major from the start of its storage."""
    library, start = library_of(x), getattr(x, "storage_offset", int)
    if start() or library.address(library.array(x, what)[0]) != library.address(x):
        raise ArgumentError(
            f"{what} is read as it lies in memory (as_strided, stride, is_contiguous); pass a contiguous copy"
        )


def fill(value: Any, x: Any, keep: list[Any], what: str) -> None:
    """Fill an `svm_value` with a Python value; objects that must stay alive during its use are appended to
    `keep`.

    Raises KindError for a value that registers cannot hold, IntegerOverflow for an int beyond int64, and
    Library.array's errors.
    """
    if x is None:
        value.tag = TAGS["none"]
    elif is_array(x):
        library = library_of(x)
        array, dtype = library.array(x, what)
        keep.append(array)
        value.tag = TAGS["tensor"]
        fill_tensor(value.tensor, library.address(array), dtype, tuple(array.shape), what)
    elif isinstance(x, bool):
        value.tag, value.integer = TAGS["bool"], x
    elif isinstance(x, int):
        if x not in INT64:
            raise IntegerOverflow(f"{what} is {x}; it must fit 64 bits")
        value.tag, value.integer = TAGS["int"], x
    elif isinstance(x, float):
        value.tag, value.number = TAGS["float"], x
    elif isinstance(x, str):
        text = x.encode()
        keep.append(ffi.new("char[]", text))
        value.tag, value.text, value.length = TAGS["str"], keep[-1], len(text)
    elif type(x) in _CONTAINERS:
        _fill_container(value, x, keep, what)
    else:
        raise KindError(
            f"{what} is of type {type(x).__name__}; pass an array, int, float, bool, str, list, tuple, dict "
            "or None"
        )


def _fill_container(value: Any, x: Any, keep: list[Any], what: str) -> None:
    items = [item for pair in x.items() for item in pair] if isinstance(x, dict) else list(x)
    values, own = ffi.new("svm_value[]", max(len(items), 1)), list[Any]()
    try:
        for index, item in enumerate(items):
            fill(values[index], item, own, f"{what}[{index}]")
    except RecursionError:
        raise _too_deep(what) from None
    else:
        error = ffi.new("svm_error *")
        tag = TAGS[_CONTAINERS[type(x)]]
        check(lib.svm_value_make(tag, values, len(items), ffi.addressof(value), error), error)
    finally:
        for index in range(len(items)):
            lib.svm_value_release(ffi.addressof(values, index))
    keep.append(own)


def _too_deep(what: str) -> LimitExceeded:
    limit = sys.getrecursionlimit()
    return LimitExceeded(
        f"nesting: {what[:40]} nests containers deeper than Python's recursion limit of {limit} "
        "lets it be read; raise that (sys.setrecursionlimit), or flatten it"
    )


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Return the sizes of an `svm_tensor`."""
    return tuple(tensor.sizes[0 : tensor.rank])


def n_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Return the number of bytes of a contiguous tensor."""
    count = DTYPES[dtype][1]
    for size in shape:
        count *= size
    return count


class Allocation:
    """The allocator of one call: makes the results' arrays in one library and finds them again by their
    address.
    """

    def __init__(self, library: Library, room: Mapping[int, tuple[Any, str]] | None = None) -> None:
        """`room`: the caller's arrays for some leaves, each with its name for errors."""
        self.library, self.room = library, room or {}
        self.leaves: dict[
            int, tuple[int, tuple[int, ...], str, Any]
        ] = {}  # leaf: address, shape, dtype, array
        self.handle = ffi.new_handle(self)
        self.allocator = ffi.new("svm_allocator *", (self.handle, lib.svm_py_allocate, ffi.NULL))

    def allocate(self, leaf: int, like: Any) -> int:
        """Return the address of a new array for a leaf of the outputs."""
        shape, dtype = shape_of(like), DTYPE_NAMES[like.dtype]
        given, library = self.room.get(leaf), self.library
        if given is not None:
            library = library_of(given[0])
            check_room(*given, shape, dtype)
        array = library.empty(shape, dtype) if given is None else given[0]
        address = library.address(array) or _NO_MEMORY
        self.leaves[leaf] = (address, shape, dtype, array)
        return address

    def take(self, tensor: Any) -> Any:
        """Return the array of a tensor that the call returned: the one allocated for it, or else a copy."""
        shape, dtype, address = (
            shape_of(tensor),
            DTYPE_NAMES[tensor.dtype],
            int(ffi.cast("uintptr_t", tensor.data)),
        )
        for leaf, (known, *form, array) in self.leaves.items():
            if known == address and form == [shape, dtype]:
                del self.leaves[leaf]  # a second result at this address gets a copy
                return array
        array, size = self.library.empty(shape, dtype), n_bytes(shape, dtype)
        if size:
            ffi.memmove(ffi.cast("void *", self.library.address(array)), tensor.data, size)
        return array


def check_room(array: Any, name: str, shape: tuple[int, ...], dtype: str) -> None:
    """Raise ArgumentError for an array that cannot hold a result of this form in place."""
    library = library_of(array)
    plain, given = library.array(array, f'out "{name}"')
    is_plain = library.address(plain) == library.address(array) and is_writable(array)
    if (tuple(array.shape), given) != (shape, dtype):
        raise ArgumentError(f'out "{name}" is {given}{list(array.shape)}; the result is {dtype}{list(shape)}')
    if not is_plain:
        raise ArgumentError(f'out "{name}" must be contiguous, aligned and writable')


@ffi.def_extern(name="svm_py_allocate", onerror=keep_raised, error=ffi.NULL)
def _allocate(context: Any, leaf: int, like: Any, size: int) -> Any:
    return ffi.cast("void *", ffi.from_handle(context).allocate(leaf, like))


class Lent:
    """Acts as an allocation whose tensors become arrays over their own memory, to be read for a while."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def take(self, tensor: Any) -> Any:
        """Return an array over the tensor's memory."""
        shape, dtype = shape_of(tensor), DTYPE_NAMES[tensor.dtype]
        return self.library.over(ffi.buffer(tensor.data, n_bytes(shape, dtype)), shape, dtype)


#: Handles of arrays whose memory the runtime reads, by address.
_GIVEN: dict[int, Any] = {}


def give(value: Any, array: Any, library: Library, what: str) -> None:
    """Fill an `svm_value` with an array's own memory, which stays alive until the runtime releases it.

    Raises the errors of Library.array.
    """
    array, dtype = library.array(array, what)
    tensor, error, handle = ffi.new("svm_tensor *"), ffi.new("svm_error *"), ffi.new_handle(array)
    fill_tensor(tensor[0], library.address(array), dtype, tuple(array.shape), what)
    _GIVEN[int(ffi.cast("uintptr_t", handle))] = handle
    check(lib.svm_value_over(tensor, lib.svm_py_release, handle, ffi.addressof(value), error), error)


def _release_anyhow(kind: type[BaseException], raised: BaseException, traceback: Any) -> None:
    keep_raised(kind, raised, traceback)
    _GIVEN.pop(int(ffi.cast("uintptr_t", traceback.tb_frame.f_locals["context"])), None)


@ffi.def_extern(name="svm_py_release", onerror=_release_anyhow)
def _release(context: Any) -> None:
    _GIVEN.pop(int(ffi.cast("uintptr_t", context)), None)


def to_python(value: Any, allocation: Allocation | Lent, made: dict[int, Any] | None = None) -> Any:
    """Return an `svm_value` as a Python value; tensors become arrays of the allocation's library.

    `made`: the containers of a call so far, by address: a repeated one is the same object.
    """
    tag = TAG_NAMES.get(value.tag, "?")
    if tag == "tensor":
        return allocation.take(value.tensor)
    if tag in ("list", "tuple", "dict"):
        made = {} if made is None else made
        address = int(ffi.cast("uintptr_t", value.owner or value.text))
        if address not in made:
            made[address] = _container(tag, value, allocation, made)
        return made[address]
    if tag == "none":
        return None
    if tag == "bool":
        return bool(value.integer)
    if tag == "int":
        return value.integer
    if tag == "float":
        return value.number
    if tag == "str":
        return ffi.unpack(value.text, value.length).decode() if value.length else ""
    raise KindError(f"a result is a {tag}, which has no Python value")


def _container(tag: str, value: Any, allocation: Allocation | Lent, made: dict[int, Any]) -> Any:
    pairs, scratch = [], ffi.new("svm_value[2]")
    for index in range(value.length):
        key, item = scratch[0], scratch[1]  # references, not copies
        if lib.svm_value_item(ffi.addressof(value), index, ffi.addressof(key), ffi.addressof(item)) != OK:
            raise InternalError(f"element {index} of a {tag} with {value.length} elements is missing")
        name = to_python(key, allocation) if tag == "dict" else None
        try:
            pairs.append((name, to_python(item, allocation, made)))
        except RecursionError:
            raise _too_deep("a result") from None
    if tag == "dict":
        return dict(pairs)
    items = [item for _, item in pairs]
    return items if tag == "list" else tuple(items)
