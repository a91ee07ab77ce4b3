"""How texts of programs and graphs write data: strings, and arrays by their elements or by their hash."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

MAX_INLINE = 16  # elements of an array that are written out
Array = np.ndarray[Any, Any]


def quote(text: str) -> str:
    """Return a string literal, as JSON has it."""
    return json.dumps(text, ensure_ascii=False)


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
