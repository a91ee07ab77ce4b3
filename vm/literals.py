"""Literals in the text of programs and graphs: strings, and arrays by their elements or their hash."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

import numpy as np

MAX_INLINE = 16  # elements of an array that are written out
Array = np.ndarray[Any, Any]


def quote(text: str) -> str:
    """Return a JSON string literal; characters that may control a terminal are escaped."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def printable(data: Any) -> Any:
    """Return data with every non-printable character in its strings escaped, so that it neither controls a
    terminal nor breaks a line. `data`: strings, numbers, dicts, lists and tuples."""
    if isinstance(data, str):
        return re.sub(r"[^ -~]", _escaped, data)
    if isinstance(data, dict):
        return {printable(key): printable(value) for key, value in data.items()}
    return type(data)(map(printable, data)) if type(data) in (list, tuple) else data


def _escaped(character: re.Match[str]) -> str:
    c = character[0]
    return c if c.isprintable() else c.encode("unicode_escape").decode()


def printable_lines(text: str) -> str:
    """Return a text of several lines, which may contain tabs, with other characters as in `printable`."""
    return re.sub(r"[^ -~\n\t]", _escaped, text)


def written(x: bool | int | float) -> str:
    """Return a number in TorchScript's format: `True`, `2`, `2.`, `0.10000000000000001`."""
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
    """Return True if the elements as text reproduce the array's bits, which some NaNs do not."""
    values = [float(repr(x)) if isinstance(x, float) else x for x in array.ravel().tolist()]
    return np.array(values, array.dtype).tobytes() == array.tobytes()
