"""The JSON of requests: parsed within bounds, and its fields checked by tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from .refusals import Refused


class Missing:
    """Stands for the value of a field that must be given."""


class Field(NamedTuple):
    """A field of a JSON object: whether a value is valid, what a valid value is in words, and the value of an
    object without the field."""

    is_valid: Callable[[Any], bool]
    wanted: str
    default: Any = Missing


def is_token_ids(value: Any) -> bool:
    """Whether a value is a list of token ids, perhaps empty."""
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 1 << 31 for one in value)


def optional(field: Field) -> Field:
    """Return a field that may be absent or null, which are the same."""
    return Field(lambda value: value is None or field.is_valid(value), field.wanted, None)


TEXT = Field(lambda value: isinstance(value, str), "a string")
COUNT = Field(lambda value: type(value) is int and value >= 1, "a whole number, 1 or more")
FLAG = Field(lambda value: isinstance(value, bool), "true or false")
OBJECT = Field(lambda value: isinstance(value, dict), "an object")
LIST = Field(lambda value: isinstance(value, list), "a list")
ANY = Field(lambda value: True, "any value")


def choice(*names: str) -> Field:
    """Return a field that holds one of some strings; the first is the default."""
    return Field(lambda value: value in names, " or ".join(map(repr, names)), names[0])


def flag(default: bool) -> Field:
    """Return a field that holds true or false."""
    return FLAG._replace(default=default)


def number(least: float, most: float, default: float) -> Field:
    """Return a field that holds a number in a range, and may be absent or null."""
    return _within(least, most, default, (int, float), f"a number from {least:g} to {most:g}")


def whole(least: int, most: int, default: int | None) -> Field:
    """Return a field that holds a whole number in a range, and may be absent or null."""
    return _within(least, most, default, (int,), f"a whole number from {least} to {most}")


def _within(least: float, most: float, default: Any, kinds: tuple[type, ...], wanted: str) -> Field:
    field = Field(lambda value: type(value) in kinds and least <= value <= most, wanted)
    return optional(field)._replace(default=default)


def parsed(body: bytes | memoryview) -> Any:
    """Return the value of a JSON text. Raises Refused for any other bytes, for NaN and infinities, and for
    values nested more than 1024 deep."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(f"the body is no valid JSON: {error}; send JSON in UTF-8") from None


def checked(given: Any, fields: Mapping[str, Field], what: str = "the body") -> dict[str, Any]:
    """Return the values of all `fields` of an object, with defaults. Raises Refused naming a field that is
    missing, unknown or invalid."""
    if not isinstance(given, dict):
        raise Refused(f"{what} is {kind_of(given)}; it must be an object with {', '.join(fields)}")
    for name in given:
        if name not in fields:
            raise Refused(f"{what}: field {shown(name)} is unknown; known are {', '.join(fields)}")
    values = {}
    for name, field in fields.items():
        value = given.get(name, field.default)
        values[name] = field.default if value is None and field.default is not Missing else value
        if value is Missing:
            raise Refused(f"{what}: field {name!r} is missing; it must be {field.wanted}")
        if name in given and not field.is_valid(value):
            raise Refused(f"{what}: field {name!r} is {shown(value)}; it must be {field.wanted}")
    return values


_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}


def kind_of(value: Any) -> str:
    """Return a value's kind in words."""
    return _KINDS.get(type(value), "a number")


def shown(value: Any, most: int = 60) -> str:
    """Return a short form of a value for a message."""
    if isinstance(value, dict | list):
        return kind_of(value)
    text = repr(value[: most + 1] if isinstance(value, str) else value)
    return text if len(text) <= most else f"{text[:most]}..."
