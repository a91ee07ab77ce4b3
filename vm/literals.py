"""How texts of programs and graphs write data: strings, and arrays by their elements or by their hash."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np

MAX_INLINE = 16  # elements of an array that are written out
Array = np.ndarray[Any, Any]


def quote(text: str) -> str:
    """Return a string literal, as JSON has it."""
    return json.dumps(text, ensure_ascii=False)


def written(x: bool | int | float) -> str:
    """Return a number as TorchScript writes it: `True`, `2`, `2.`, `0.10000000000000001`."""
    if not isinstance(x, float):
        return str(x)
    if math.isnan(x):
        return "nan" if math.copysign(1.0, x) > 0 else "-nan"
    is_whole = -(2.0**63) <= x < 2.0**63 and int(x) == x
    return f"{int(x)}." if is_whole else f"{x:.17g}"


def array_hash(array: Array) -> str:
    """Return the name of a large array: 16 digits of the SHA-256 of its dtype, shape and bytes."""
    digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def elements(array: Array) -> str:
    """Return the elements of an array in brackets."""
    return "[" + ", ".join(map(repr, array.ravel().tolist())) + "]"


def is_exact(array: Array) -> bool:
    """Return True where the elements as text have the array's bits: not for some NaNs."""
    values = [float(repr(x)) if isinstance(x, float) else x for x in array.ravel().tolist()]
    return np.array(values, array.dtype).tobytes() == array.tobytes()
