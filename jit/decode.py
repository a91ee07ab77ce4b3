"""Dataclasses from plain JSON data, by their annotations: every type and number is checked, and errors name
the path, such as `body[3].args[0]`."""

from __future__ import annotations

import math
import types
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..vm.errors import ArtifactError

INT64 = range(-(1 << 63), 1 << 63)
MAX_ITEMS = 1 << 16  # of one list
_FIELD_TYPES: dict[type, dict[str, Any]] = {}  # cached results


class Part:
    """A base of dataclasses that group fields of another one. In JSON and in text their fields are written
    among those of the other."""


@dataclass(frozen=True)
class Numbered:
    """The meaning of a type variable in the annotations: the dataclass `kind` of one int, written as {name:
    int}."""

    kind: type
    name: str


class SpecError(ArtifactError):
    """A kernel spec is invalid."""


def refuse(where: str, data: Any, wanted: str) -> SpecError:
    """Return the error for `data` at the path `where`."""
    text = repr(data)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return SpecError(f"kernel spec: {where} is {text}; it must be {wanted}; export the artifact again")


def decode(annotation: Any, data: Any, where: str, symbol: Numbered) -> Any:
    """Return `data` as a value of the annotated type: a dataclass, a tuple, a union of those, int, float,
    str, bool, or Any, which is any of the last four or None.

    `symbol`: the meaning of a type variable. Raises SpecError for anything else.
    """
    if annotation is Any:
        return _scalar(data, where)
    annotation = symbol.kind if isinstance(annotation, TypeVar) else annotation
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return _union(get_args(annotation), data, where, symbol)
    if origin is tuple:
        item = get_args(annotation)[0]
        if not isinstance(data, list) or len(data) > MAX_ITEMS:
            raise refuse(where, data, f"a list of at most {MAX_ITEMS} items")
        return tuple(decode(item, x, f"{where}[{i}]", symbol) for i, x in enumerate(data))
    if is_dataclass(annotation):
        return _dataclass(annotation, data, where, symbol)
    return _plain(annotation, data, where)


def _scalar(data: Any, where: str) -> Any:
    if data is None or isinstance(data, (str, float, bool)) or (isinstance(data, int) and data in INT64):
        return data
    raise refuse(where, data, "a number, a string, true, false or null")


def _plain(kind: type, data: Any, where: str) -> Any:
    if kind is bool and isinstance(data, bool):
        return data
    if kind is str and isinstance(data, str):
        return data
    is_int = isinstance(data, int) and not isinstance(data, bool)
    if kind is int and is_int and data in INT64:
        return data
    if kind is float and ((is_int and data in INT64) or isinstance(data, float)) and math.isfinite(data):
        return data
    names = {bool: "true or false", str: "a string", int: "an integer of 64 bits", float: "a finite number"}
    raise refuse(where, data, names[kind])


def _union(kinds: tuple[Any, ...], data: Any, where: str, symbol: Numbered) -> Any:
    kinds = tuple(symbol.kind if isinstance(kind, TypeVar) else kind for kind in kinds)
    if data is None and types.NoneType in kinds:
        return None
    for kind in kinds:
        if is_dataclass(kind) == isinstance(data, dict) and kind is not types.NoneType:
            return decode(kind, data, where, symbol)
    raise refuse(where, data, "an integer or a size of the kernel")


def field_types(kind: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name, dataclasses without their type arguments."""
    if kind not in _FIELD_TYPES:
        hints = get_type_hints(kind)
        _FIELD_TYPES[kind] = {f.name: _without_arguments(hints[f.name]) for f in fields(kind)}
    return _FIELD_TYPES[kind]


def _without_arguments(annotation: Any) -> Any:
    origin = get_origin(annotation)
    if origin is tuple:
        return types.GenericAlias(tuple, (_without_arguments(get_args(annotation)[0]), ...))
    return origin if is_dataclass(origin) else annotation


def _is_part(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Part)


def flat_fields(kind: type) -> dict[str, tuple[Field[Any], Any]]:
    """Return (field, type) of a dataclass's fields by name, those of its parts in place of the parts."""
    found: dict[str, tuple[Field[Any], Any]] = {}
    for row in fields(kind):
        of = field_types(kind)[row.name]
        found |= flat_fields(of) if _is_part(of) else {row.name: (row, of)}
    return found


def flat_values(value: Any) -> dict[str, Any]:
    """Return the values of a dataclass's fields by name, those of its parts in place of the parts."""
    found: dict[str, Any] = {}
    for name in (row.name for row in fields(value)):
        item = getattr(value, name)
        found |= flat_values(item) if isinstance(item, Part) else {name: item}
    return found


def from_flat(kind: Any, values: dict[str, Any]) -> Any:
    """Return a `kind` from its `flat_values`; fields with a default may be left out."""
    parts = {name: from_flat(of, values) for name, of in field_types(kind).items() if _is_part(of)}
    own = {name: values[name] for name in field_types(kind) if name in values}
    return kind(**own, **parts)


def _dataclass(kind: Any, data: Any, where: str, symbol: Numbered) -> Any:
    if not isinstance(data, dict):
        raise refuse(where, data, "an object")
    rows = flat_fields(kind)
    if kind is symbol.kind:
        if list(data) != [symbol.name]:
            raise refuse(where, data, f'an object {{"{symbol.name}": index}}')
        (name,) = rows
        return kind(decode(int, data[symbol.name], where, symbol))
    for name in data:
        if name not in rows:
            raise refuse(where, name, f"one of {', '.join(rows)}")
    for name, (row, _) in rows.items():
        if name not in data and row.default is MISSING and row.default_factory is MISSING:
            raise SpecError(f"kernel spec: {where}.{name} is missing; export the artifact again")
    return from_flat(kind, {n: decode(rows[n][1], x, f"{where}.{n}", symbol) for n, x in data.items()})
