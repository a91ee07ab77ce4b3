"""Operators on strings: computed at import if all is known, else by instructions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .....vm.errors import Error, LimitExceeded
from .....vm.isa import STRING_FUNCTIONS
from .....vm.string_functions import call_string_function, is_whole, to_bytes
from ....ir.errors import UnsupportedOp
from ....ir.graph import Value
from ....ir.types import ListType, ScalarType
from ..bounds import MAX_CONSTANT, check_length
from ..values.elements import packed
from ..values.scalars import scalar_op, value_of
from ..values.values import (
    Fails,
    List,
    Maybe,
    Partial,
    Tensor,
    is_run_time,
    is_run_time_list,
    is_size,
    kind_of,
)
from ..walk import Walk
from . import library

_KINDS = ("none", "bool", "int", "float", "str")
_NO_BOUND = 2**63 - 1  # of a slice


def text_op(importer: Walk, name: str, args: Sequence[Any]) -> Any:
    """Return the result of TorchScript's `aten::name` for a string, or for values that it formats;
    NotImplemented if it is not an operator of strings. Raises UnsupportedOp for a string with "?" in it."""
    if name == "str":
        return text_of(importer, *args)
    if name in _OF_INTS and kind_of(args[0]) == "int":
        return string_function(importer, name, args)
    if not args or not (kind_of(args[0]) == "str" or isinstance(args[0], str)):
        return NotImplemented
    if name in _WRITERS:
        return _WRITERS[name](importer, *args)
    is_in_library = name in library.strings.METHODS
    if any(isinstance(x, Partial) for x in args) and (is_in_library or name in _METHODS or name == "len"):
        raise UnsupportedOp(f"aten::{name} of a string with a tensor or an optional in it cannot be compiled")
    if name == "len":
        return len(to_bytes(args[0])) if isinstance(args[0], str) else importer.builder.one("len", args[0])
    if name == "zfill":
        return library.run(importer, "rjust.str", [*args, "0"])
    if is_in_library:
        return _from_library(importer, name, args)
    return string_function(importer, *_METHODS[name](*args)) if name in _METHODS else NotImplemented


def _from_library(importer: Walk, name: str, args: Sequence[Any]) -> Any:
    """Return the result of a method of the library, at import if all is known and no width makes it long."""
    if all(isinstance(x, str | bool) for x in args):
        try:
            found = library.strings.function(name)(*args)
        except UnicodeDecodeError:  # a part is cut within a character
            pass
        else:
            return List(found) if isinstance(found, list) else found
    return library.run(importer, f"{name}.str", args)


def string_function(importer: Walk, name: str, args: Sequence[Any]) -> Any:
    """Return the result of a function of strings. Raises Fails if it always fails."""
    if all(map(_is_known, args)):
        try:
            found = call_string_function(name, args, MAX_CONSTANT)
        except LimitExceeded:
            check_length(MAX_CONSTANT + 1)
        except Error as error:
            raise Fails(str(error)) from None
        if is_whole(found):
            return List(found) if isinstance(found, list) else found
    given = [_value(importer, x, tag) for x, tag in zip(args, STRING_FUNCTIONS[name].takes, strict=True)]
    made = importer.builder.one("string", *given, function=name)
    return List(made) if isinstance(made.type, ListType) else made


def place_in_text(importer: Walk, keys: Sequence[str], key: Value) -> Value | None:
    """Return the position of a string among `keys`, their number if it is not among them; None if these leave
    no two characters as separators."""
    used = set("".join(keys))
    unused = [c for c in map(chr, range(1, 32)) if c not in used]
    if len(unused) < 2:
        return None
    mark, other = unused[:2]  # a key containing the mark must not be found: it gets the other mark instead
    table = mark + mark.join(keys) + mark
    wanted = string_function(importer, "replace", [key, mark, other, -1])
    wanted = scalar_op(importer.builder, "add", (mark, wanted))
    wanted = scalar_op(importer.builder, "add", (wanted, mark))
    at = string_function(importer, "find", [table, wanted, 0, -1])
    before = string_function(importer, "count", [table, mark, 0, at])
    return importer.builder.one("int_min", before, importer.builder.size(len(keys)))


def _is_known(x: Any) -> bool:
    """Return True for plain values, and lists and tuples of them, that are known at import."""
    if isinstance(x, list | tuple):
        return all(map(_is_known, x))
    return kind_of(x) != "" and not is_run_time(x) and not is_size(x)


def _value(importer: Walk, x: Any, tag: str) -> Value:
    """Return an argument as a value of the graph."""
    b = importer.builder
    if is_run_time_list(x):
        return x
    if isinstance(x, list):
        return packed(b, x, ListType(ScalarType("str")), importer.tensors.read)
    if isinstance(x, tuple):
        return b.one("tuple", *(value_of(b, item) for item in x))
    if kind_of(x) != tag:
        raise UnsupportedOp(f"a string's method is given {type(x).__name__} where it takes {tag}")
    return value_of(b, x)


def _slice(text: Any, start: Any = None, end: Any = None, step: Any = 1) -> tuple[str, list[Any]]:
    return "slice", [text, *(_NO_BOUND if x is None else x for x in (start, end)), step]


def _split(text: Any, separator: Any = None, most: Any = -1) -> tuple[str, list[Any]]:
    return ("words", [text]) if separator is None else ("split", [text, separator, most])


def _method(name: str) -> Callable[..., tuple[str, Sequence[Any]]]:
    return lambda *args: (name, args)


#: Operators from an int to a string.
_OF_INTS = ("chr", "hex", "oct", "bin")
#: TorchScript's operators whose first argument is a string -> the function and its arguments.
_METHODS: dict[str, Callable[..., tuple[str, Sequence[Any]]]] = {
    **{name: _method(name) for name in STRING_FUNCTIONS},
    "isdecimal": _method("isdigit"),
    "isnumeric": _method("isdigit"),
    "slice": _slice,
    "split": _split,
    "list": _method("characters"),
    "__getitem__": _method("item"),
    "Int": _method("int"),
    "Float": _method("float"),
}


# Writing ------------------------------------------------------------------------------------------------


def _filled(name: str, field: str) -> Callable[..., Any]:
    """Return the handler of a format whose fields the pattern `field` finds."""

    def handler(importer: Walk, text: Any, *args: Any) -> Any:
        given = args[0] if name == "percent" and len(args) == 1 and isinstance(args[0], tuple) else args
        values = tuple(x if kind_of(x) in _KINDS else text_of(importer, x) for x in given)
        if any(isinstance(x, Partial) for x in (text, *values)):
            shown = iter([x if isinstance(x, str) else str(x) if _is_known(x) else "?" for x in values])
            return Partial(_replaced(field, text, shown)) if isinstance(text, str) else Partial("?")
        return string_function(importer, name, [text, values])

    return handler


def _replaced(field: str, text: str, values: Iterator[str]) -> str:
    return re.sub(field, lambda _: next(values, "?"), text)


def _glued(importer: Walk, parts: Sequence[Any]) -> Any:
    """Return the concatenation of the parts of a text."""
    made: Any = ""
    for part in parts:
        if isinstance(made, Partial) or isinstance(part, Partial):
            made = Partial("".join(x if isinstance(x, str) else "?" for x in (made, part)))
        elif "" in (made, part):
            made = part if made == "" else made
        else:
            made = scalar_op(importer.builder, "add", (made, part))
    return made


def text_of(importer: Walk, x: Any) -> Any:
    """Return a value in TorchScript's text format."""
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


def _join(importer: Walk, separator: Any, items: List) -> Any:
    content = items.read()
    if not is_run_time_list(content) and any(isinstance(x, Partial) for x in (separator, *content)):
        return _glued(importer, [part for item in content for part in (separator, item)][1:])
    return string_function(importer, "join", [separator, content])


#: Operators that make a string of values.
_WRITERS: dict[str, Callable[..., Any]] = {
    "format": _filled("format", r"\{\}"),
    "percentFormat": _filled("percent", "%."),
    "join": _join,
}
