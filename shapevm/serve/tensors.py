"""Tensors of the Open Inference Protocol: from JSON or binary data to numpy arrays and back.

Everything is checked before memory is allocated for it; an array is never larger than the data that the
client sent. The caller puts the name of the input or output before what is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .. import ValueInfo
from .fields import shown
from .refusals import Refused

MAX_RANK = 32
MAX_ELEMENTS = 1 << 48
LENGTH_BYTES = 4  # before each string of binary data


class Datatype(NamedTuple):
    """A datatype of the protocol: the program's dtype, numpy's, and the Python types of its JSON values; none
    where the protocol has binary data alone."""

    name: str
    dtype: str
    numpy: np.dtype[Any]
    json: frozenset[type]


_INT, _REAL = frozenset([int]), frozenset([int, float])
DATATYPES = (
    Datatype("BOOL", "bool", np.dtype("?"), frozenset([bool])),
    Datatype("UINT8", "u8", np.dtype("u1"), _INT),
    Datatype("INT8", "i8", np.dtype("i1"), _INT),
    Datatype("INT16", "i16", np.dtype("<i2"), _INT),
    Datatype("INT32", "i32", np.dtype("<i4"), _INT),
    Datatype("INT64", "i64", np.dtype("<i8"), _INT),
    Datatype("FP16", "f16", np.dtype("<f2"), _REAL),
    Datatype("BF16", "bf16", np.dtype("<u2"), frozenset()),
    Datatype("FP32", "f32", np.dtype("<f4"), _REAL),
    Datatype("FP64", "f64", np.dtype("<f8"), _REAL),
)
BYTES = Datatype("BYTES", "str", np.dtype("O"), frozenset([str]))
_BY_DTYPE = {each.dtype: each for each in (*DATATYPES, BYTES)}
#: Values that are no tensors are tensors of shape [1] in the protocol.
_OF_KIND = {"int": "i64", "float": "f64", "bool": "bool", "str": "str"}
#: Kinds of values that the protocol can transport; "none" only as a result, which is left out.
CARRIED = frozenset(["tensor", *_OF_KIND])


def datatype_of(info: ValueInfo) -> Datatype:
    """Return the datatype of an input or output of a kind that the protocol can transport."""
    return _BY_DTYPE[info.dtype if info.kind == "tensor" and info.dtype else _OF_KIND[info.kind or ""]]


def described(info: ValueInfo) -> dict[str, Any]:
    """Return the metadata of an input or output: a size that varies is -1."""
    shape = [1] if info.shape is None else [size if isinstance(size, int) else -1 for size in info.shape]
    return {"name": info.name, "datatype": datatype_of(info).name, "shape": shape}


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape of a request. Raises Refused unless it is a list of sizes with a possible product."""
    is_list = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    if not is_list or len(shape) > MAX_RANK:
        raise Refused(f"shape {shown(shape)} must be a list of whole numbers, at most {MAX_RANK}")
    if prod(size or 1 for size in shape) > MAX_ELEMENTS:
        raise Refused(f"its shape has more than {MAX_ELEMENTS} elements; send a smaller one")
    return tuple(shape)


def from_binary(data: memoryview, shape: tuple[int, ...], kind: Datatype) -> np.ndarray[Any, Any]:
    """Return an array over binary data. Raises Refused if the sizes differ."""
    if kind is BYTES:
        return np.array(_strings(data, prod(shape)), object).reshape(shape)
    wanted = prod(shape) * kind.numpy.itemsize
    if len(data) != wanted:
        raise Refused(f"{len(data)} bytes of data, but {kind.name}{list(shape)} has {wanted} bytes")
    if kind.dtype == "bool" and any(bytes(data).translate(None, b"\0\1")):
        raise Refused("a byte of BOOL data is neither 0 nor 1")
    return np.frombuffer(data, kind.numpy).reshape(shape)


def _strings(data: memoryview, n: int) -> list[str]:
    """Return n strings, each with its length of 4 bytes before it."""
    found: list[str] = []
    position = 0
    while position < len(data):
        start = position + LENGTH_BYTES
        position = start + int.from_bytes(data[position:start], "little")
        if start > len(data) or position > len(data) or len(found) == n:
            raise Refused(f"the lengths of its strings do not add up to {len(data)} bytes")
        try:
            found.append(str(data[start:position], "utf-8"))
        except UnicodeDecodeError:
            raise Refused(f"string {len(found)} is no UTF-8") from None
    if len(found) != n:
        raise Refused(f"{len(found)} strings of data, but its shape has {n}")
    return found


def from_json(data: Any, shape: tuple[int, ...], kind: Datatype) -> np.ndarray[Any, Any]:
    """Return nested or flat JSON values as an array. Raises Refused for values that the datatype does not
    hold."""
    if not kind.json:
        raise Refused(f"{kind.name} has no form in JSON; send binary data")
    flat, sizes = _flat(data)
    if len(flat) != prod(shape) or (len(sizes) > 1 and sizes != list(shape)):
        raise Refused(f"its data has shape {sizes}, but the request says {list(shape)}")
    if not set(map(type, flat)) <= kind.json:
        wrong = next(value for value in flat if type(value) not in kind.json)
        raise Refused(f"{shown(wrong)} is no value of {kind.name}")
    if kind is BYTES:
        return np.array(flat, object).reshape(shape)
    return _held(flat, kind).reshape(shape)


def _flat(data: Any) -> tuple[list[Any], list[int]]:
    """Return the values in nested lists, and the lists' lengths."""
    if not isinstance(data, list):
        raise Refused(f"its data is {shown(data)}; it must be a list")
    sizes = [len(data)]
    while data and isinstance(data[0], list):
        lengths = {len(each) if isinstance(each, list) else -1 for each in data}
        if len(lengths) > 1 or len(sizes) == MAX_RANK:
            raise Refused(f"its data has lists of different lengths or more than {MAX_RANK} levels")
        sizes += lengths
        data = list(chain.from_iterable(data))
    return data, sizes


def _held(flat: list[Any], kind: Datatype) -> np.ndarray[Any, Any]:
    """Return numbers as an array of a datatype that holds each of them."""
    is_real = kind.json is _REAL
    try:
        wide = np.array(flat, np.float64 if is_real else np.int64 if kind.json is _INT else kind.numpy)
    except OverflowError:
        raise Refused(f"a number is outside of the range of {kind.name}") from None
    with np.errstate(over="ignore"):
        made = wide.astype(kind.numpy)
    if not (np.isfinite(made).all() if is_real else np.array_equal(made, wide)):
        raise Refused(f"a number is outside of the range of {kind.name}")
    return made


def argument(array: np.ndarray[Any, Any], info: ValueInfo) -> Any:
    """Return what the program takes for an array: itself, or the value of a tensor with one element."""
    if info.kind == "tensor":
        return array
    if array.shape not in ((), (1,)):
        raise Refused(f"shape {list(array.shape)} must be [1], for {info.type}")
    return array.item()


def result(value: Any, info: ValueInfo) -> np.ndarray[Any, Any]:
    """Return a result of the program as an array of its datatype."""
    array = np.asarray(value, datatype_of(info).numpy)
    return array if info.kind == "tensor" else array.reshape(1)


def to_binary(array: np.ndarray[Any, Any]) -> bytes:
    """Return the binary data of an array."""
    if array.dtype != BYTES.numpy:
        return array.tobytes()
    texts: Sequence[bytes] = [text.encode() for text in array.ravel()]
    return b"".join(len(text).to_bytes(LENGTH_BYTES, "little") + text for text in texts)


def to_json(array: np.ndarray[Any, Any], kind: Datatype) -> Any:
    """Return an array's data for orjson. Raises Refused for what JSON does not hold."""
    if not kind.json:
        raise Refused(f"{kind.name} has no form in JSON; ask for binary data")
    if kind is BYTES:
        return array.ravel().tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise Refused("its values are not all finite, and JSON holds no others; ask for binary data")
    return np.ascontiguousarray(array).reshape(-1)
