"""From TorchScript's arguments to those of converters: dtypes are ints there, and so are layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ....ir.errors import UnsupportedOp
from ...dtypes import DTYPE_OF, DTYPES, element_name
from ..values.values import List, Maybe, Tensor, is_run_time, is_run_time_list, is_size
from ..walk import Walk
from . import attributes

#: Arguments that do not affect values.
_LAYOUTS = ("layout", "device", "pin_memory", "memory_format", "generator")


def dtype_argument(found: Any) -> str | None:
    """Return our name of a dtype that TorchScript represents as a number. Raises UnsupportedOp for
    unsupported ones."""
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, torch.dtype):
        return element_name(found)
    if found not in DTYPE_OF:
        raise UnsupportedOp(
            f"the dtype number {found} cannot be compiled; use one of {', '.join(map(str, DTYPES))}"
        )
    return DTYPE_OF[found]


def is_layout(name: str) -> bool:
    """Return True for an argument that does not affect values."""
    return name in _LAYOUTS


def wants_size(type: str) -> bool:
    """Return True for an argument that is an int or a list of them: a size, a position, an axis."""
    return type in ("int", "SymInt", "Optional[int]", "Optional[SymInt]", "List[int]", "Optional[List[int]]")


#: Operators that accept lists of run-time length.
_TAKES_LISTS = ("aten::stack", "aten::cat")


def converted(importer: Walk, schema: Any, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments in the form of converters: graph values for tensors, dtypes by name."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for argument, x in zip(schema.arguments, args, strict=True):
        if isinstance(x, List) and is_run_time_list(x.content) and schema.name not in _TAKES_LISTS:
            raise UnsupportedOp(
                f"{schema.name} is given a list of run-time length; it takes one of known length"
            )
        found = _argument(importer, argument, x)
        if argument.kwarg_only:
            keywords[argument.name] = found
        else:
            positional.append(found)
    return positional, keywords


def items_of(x: Any) -> list[Any]:
    """Return the items of a list; return any other value, and a run-time list, unchanged."""
    found = x.content if isinstance(x, List) else x
    return found if isinstance(found, list) else [found]


def _argument(importer: Walk, argument: Any, x: Any) -> Any:
    if argument.name == "dtype":
        return dtype_argument(x)
    if is_layout(argument.name):
        return None
    if argument.name in attributes.AXES and any(is_run_time(i) or is_size(i) for i in items_of(x)):
        raise UnsupportedOp(f"{argument.name} is a run-time int; it must be a constant")
    return _plain(importer, x, wants_size(str(argument.type)))


def _plain(importer: Walk, x: Any, is_size_wanted: bool) -> Any:
    if isinstance(x, Tensor):
        return importer.tensors.read(x)
    if isinstance(x, List):
        if is_run_time_list(x.content):
            return x.read()
        return [_plain(importer, importer.resolved(item), is_size_wanted) for item in x.content]
    if isinstance(x, Maybe):
        raise UnsupportedOp("a run-time optional value is given to an operator")
    if isinstance(x, tuple):
        return [_plain(importer, item, is_size_wanted) for item in x]
    return importer.size_of(x) if is_size_wanted and is_run_time(x) else x
