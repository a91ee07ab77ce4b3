"""From TorchScript's arguments to those of converters: dtypes are ints there, and so are layouts."""

from __future__ import annotations

from typing import Any

import torch

from ...ir.errors import UnsupportedOp
from ..dtypes import DTYPE_OF, DTYPES, dtype_name

#: Arguments that say nothing of values.
_LAYOUTS = ("layout", "device", "pin_memory", "memory_format", "generator")


def dtype_argument(found: Any) -> str | None:
    """Return our name of a dtype that TorchScript gives as a number. Raises UnsupportedOp for another one."""
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, torch.dtype):
        return dtype_name(found)
    if found not in DTYPE_OF:
        raise UnsupportedOp(
            f"the dtype number {found} cannot be compiled; use one of {', '.join(map(str, DTYPES))}"
        )
    return DTYPE_OF[found]


def is_layout(name: str) -> bool:
    """Return True for an argument that says nothing of values."""
    return name in _LAYOUTS


def wants_size(type: str) -> bool:
    """Return True for an argument that is an int or a list of them: a size, a position, an axis."""
    return type in ("int", "SymInt", "Optional[int]", "Optional[SymInt]", "List[int]", "Optional[List[int]]")
