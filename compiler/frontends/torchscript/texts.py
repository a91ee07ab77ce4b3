"""Operators on strings: computed at once where all is known, else by instructions."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.errors import UnsupportedOp
from ...ir.graph import Value
from ...ir.types import ScalarType
from . import library
from .scalars import scalar_op, value_of
from .values import List, Maybe, Partial, Tensor, is_run_time, is_run_time_list, is_size, kind_of

if TYPE_CHECKING:
    from .importer import ScriptImporter


def text_op(importer: ScriptImporter, name: str, args: Sequence[Any]) -> Any:
    """Return what TorchScript's `aten::name` gives for a string, or for values that it writes as one;
    NotImplemented where it is no operator of strings. Raises UnsupportedOp where only a call tells what is
    taken apart."""
    handler = _WRITERS.get(name)
    if handler is not None and (isinstance(args[0], str) or kind_of(args[0]) == "str" or name == "str"):
        return handler(importer, *args)
    if not args or (kind_of(args[0]) != "str" and not isinstance(args[0], str)):
        return NotImplemented
    if name == "startswith" and any(map(is_run_time, args)):
        return _starts_with(importer, *args)
    if name in _READERS:
        if not all(isinstance(x, str | int | None) and type(x) is not Partial for x in args):
            raise UnsupportedOp(f"aten::{name} of a string that only a call tells cannot be compiled")
        return _read(name, args)
    return NotImplemented


def _read(name: str, args: Sequence[Any]) -> Any:
    found = _READERS[name](*args)
    return List(found) if isinstance(found, list) else found


def _starts_with(importer: ScriptImporter, text: Any, part: Any, start: Any = 0, end: Any = -1) -> Any:
    """text.startswith(part): such a text is from `part` to `part` with the greatest character behind
    it as often as the text has characters."""
    if (start, end) != (0, -1):
        raise UnsupportedOp(
            "aten::startswith at a place in a string that only a call tells cannot be compiled"
        )
    n = importer.builder.one("len", value_of(importer.builder, text))
    return library.run(importer, "starts_with", [text, part, chr(sys.maxunicode), n])


#: Operators that take a string apart, in Python.
_READERS: dict[str, Callable[..., Any]] = {
    "split": lambda text, separator=None, most=-1: text.split(separator, most),
    "splitlines": str.splitlines,
    "slice": lambda text, start=None, end=None, step=1: text[start:end:step],
    "list": list,
    "len": len,
    "__getitem__": lambda text, index: text[index],
    "__contains__": lambda text, part: part in text,
}


# Writing ------------------------------------------------------------------------------------------------


def _format(importer: ScriptImporter, text: str, *args: Any) -> Any:
    """text.format(*args), of plain fields."""
    *heads, tail = _known(text, "format").split("{}")
    if len(heads) != len(args):
        raise UnsupportedOp(f"format: {text!r} has {len(heads)} fields {{}} for {len(args)} values")
    parts = [part for head, x in zip(heads, args, strict=True) for part in (head, text_of(importer, x))]
    return _glued(importer, [*parts, tail])


def _percent(importer: ScriptImporter, text: str, *args: Any) -> Any:
    """text % args, of the fields %s, %d and %i; %f and %e of numbers that are known."""
    given = list(args[0] if len(args) == 1 and isinstance(args[0], tuple) else args)
    parts: list[Any] = []
    for literal, field in re.findall(r"([^%]*)(%.|$)", _known(text, "%"), re.DOTALL):
        parts.append(literal)
        if field == "%%":
            parts.append("%")
        elif field:
            if not given:
                raise UnsupportedOp(f"the format {text!r} has more fields than values")
            parts.append(_field(importer, field, given.pop(0)))
    if given:
        raise UnsupportedOp(f"the format {text!r} has fewer fields than values")
    return _glued(importer, parts)


def _field(importer: ScriptImporter, field: str, x: Any) -> Any:
    if field == "%s":
        return text_of(importer, x)
    if field in ("%d", "%i") and kind_of(x) in ("bool", "int", "float"):
        return text_of(importer, scalar_op(importer.builder, "Int", (x,)))
    if field in ("%f", "%e") and type(x) in (bool, int, float):
        return field % float(np.float32(x))  # TorchScript writes it so
    raise UnsupportedOp(f"the format {field} of a value that only a call tells cannot be compiled; use %s")


def _known(text: Any, what: str) -> str:
    if isinstance(text, str):
        return text
    raise UnsupportedOp(f"{what}: the format is a string that only a call tells; it must be a constant")


def _glued(importer: ScriptImporter, parts: Sequence[Any]) -> Any:
    """Return the parts of a text as one."""
    made: Any = ""
    for part in parts:
        if isinstance(made, Partial) or isinstance(part, Partial):
            made = Partial("".join(x if isinstance(x, str) else "?" for x in (made, part)))
        elif "" in (made, part):
            made = part if made == "" else made
        else:
            made = scalar_op(importer.builder, "add", (made, part))
    return made


def text_of(importer: ScriptImporter, x: Any) -> Any:
    """Return a value as TorchScript writes it."""
    if isinstance(x, List) and is_run_time_list(x.content):
        element = x.content.type.element
        return (
            library.run(importer, "text", [x], element) if isinstance(element, ScalarType) else Partial("?")
        )
    if isinstance(x, List | tuple):
        items = x.content if isinstance(x, List) else x
        parts = [part for item in items for part in (", ", text_of(importer, item))][1:]
        ends = "[]" if isinstance(x, List) else "()"
        comma = "," if isinstance(x, tuple) and len(x) == 1 else ""
        return _glued(importer, [ends[0], *parts, comma, ends[1]])
    if isinstance(x, str):
        return x
    if is_run_time(x) or is_size(x) or kind_of(x) in ("bool", "int", "float"):
        return scalar_op(importer.builder, "str", (x,))
    return Partial("?") if isinstance(x, Value | Tensor | Maybe) else str(x)


def _join(importer: ScriptImporter, separator: Any, items: List) -> Any:
    if is_run_time_list(items.content):
        return library.run(importer, "join", [separator, items])
    return _glued(importer, [part for item in items.content for part in (separator, item)][1:])


def _str(importer: ScriptImporter, x: Any) -> Any:
    return text_of(importer, x)


#: Operators that make a string of values.
_WRITERS: dict[str, Callable[..., Any]] = {
    "format": _format,
    "percentFormat": _percent,
    "join": _join,
    "str": _str,
}
