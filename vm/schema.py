"""Schemas: the required form of untrusted JSON, as data. `decode` parses a text within limits and checks it
completely by its schema before use: kinds, keys, lengths, depth and ranges of numbers.

    ROW = Object({"name": Text(), "shape": ListOf(Integer(0, 1 << 40), most=16)}, {"why": Text()})
    row = decode(text, ROW, "section META")

A class is a kind of JSON value. An `Object` takes its `required` and `optional` keys and no others.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .errors import ArtifactError, Error

MAX_BYTES = 1 << 24  # of a text
MAX_DEPTH = 200  # of nested lists and objects
MAX_ITEMS = 1 << 16  # of one list or object
MAX_TEXT = 1 << 16  # characters of one string
MAX_PLACE = 120  # characters of a place in a message
WHOLE = "the whole"  # the place of a text's value
INT64 = -(1 << 63), (1 << 63) - 1
_HALVES = re.compile("[\ud800-\udfff]")

#: The position of a value: the position of its container, and its key or index there, or None for a key
#: itself; () is the whole. It becomes text only in a refusal.
Place: TypeAlias = "tuple[()] | tuple[Place, str | int | None]"


class Refused(ValueError):
    """Data that violate their schema; the message names the position."""


class Schema:
    """A base of all kinds. They are made once and never compared: each method that `dataclass` would add
    slows down the first load of a program."""

    def wanted(self) -> str:
        """Return the expected form, for a refusal."""
        raise NotImplementedError

    def takes(self, data: Any) -> bool:
        """Return whether data is of this kind; `read` checks the rest."""
        raise NotImplementedError

    def read(self, data: Any, where: Place) -> Any:
        """Return the decoded value of data at the path `where`. Raises Refused."""
        if not self.takes(data):
            raise Refused(f"{_place(where)} is {reprlib.repr(data)}; it must be {self.wanted()}")
        return data


@dataclass(eq=False, repr=False)
class Text(Schema):
    """A string that is valid UTF-8, without zero characters, one of `among`, if given. `plain`:
    it can be printed on a line."""

    most: int = MAX_TEXT
    among: Collection[str] | None = None
    plain: bool = False

    def wanted(self) -> str:
        """Return the expected form, for a refusal."""
        named = "" if self.among is None else f": {', '.join(self.among)}"
        kind = "printable characters" if self.plain else "characters, without zeros and half characters"
        return f"a string of at most {self.most} {kind}{named}"

    def takes(self, data: Any) -> bool:
        """Return whether data is such a string."""
        if not isinstance(data, str) or len(data) > self.most or "\0" in data:
            return False
        if self.plain and not data.isprintable():
            return False
        return not _HALVES.search(data) and (self.among is None or data in self.among)


@dataclass(eq=False, repr=False)
class Integer(Schema):
    """A whole number from `low` to `high`."""

    low: int = INT64[0]
    high: int = INT64[1]

    def wanted(self) -> str:
        """Return the expected form, for a refusal."""
        return f"a whole number from {self.low} to {self.high}"

    def takes(self, data: Any) -> bool:
        """Return whether data is such a number."""
        return type(data) is int and self.low <= data <= self.high


@dataclass(eq=False, repr=False)
class Number(Schema):
    """A number; `finite`: neither infinite nor NaN."""

    finite: bool = True

    def wanted(self) -> str:
        """Return the expected form, for a refusal."""
        return "a finite number" if self.finite else "a number"

    def takes(self, data: Any) -> bool:
        """Return whether data is such a number."""
        if type(data) is int:
            return INT64[0] <= data <= INT64[1]
        return type(data) is float and (not self.finite or math.isfinite(data))


@dataclass(eq=False, repr=False)
class Exactly(Schema):
    """One of a few values: null, true, a format's name or version."""

    values: tuple[Any, ...]

    def wanted(self) -> str:
        """Return the expected form, for a refusal."""
        return " or ".join(map(json.dumps, self.values))

    def takes(self, data: Any) -> bool:
        """Return whether data is one of the values, of its type."""
        return any(type(data) is type(value) and data == value for value in self.values)


NULL, BOOLEAN = Exactly((None,)), Exactly((False, True))


@dataclass(eq=False, repr=False)
class ListOf(Schema):
    """A list of `least` to `most` items of one kind."""

    item: Schema
    least: int = 0
    most: int = MAX_ITEMS

    def wanted(self) -> str:
        """Return the expected form, for a refusal."""
        return f"a list of {self.least} to {self.most} items"

    def takes(self, data: Any) -> bool:
        """Return whether data is a list of such a length."""
        return isinstance(data, list) and self.least <= len(data) <= self.most

    def read(self, data: Any, where: Place) -> Any:
        """Return the decoded items."""
        return [self.item.read(x, (where, i)) for i, x in enumerate(super().read(data, where))]


@dataclass(eq=False, repr=False)
class Fixed(Schema):
    """A list with an item of each of these kinds, in their order."""

    items: tuple[Schema, ...]

    def wanted(self) -> str:
        """Return the expected form, for a refusal."""
        return f"a list of {len(self.items)}"

    def takes(self, data: Any) -> bool:
        """Return whether data is a list of that length."""
        return isinstance(data, list) and len(data) == len(self.items)

    def read(self, data: Any, where: Place) -> Any:
        """Return the decoded items."""
        pairs = zip(self.items, super().read(data, where), strict=True)
        return [item.read(x, (where, i)) for i, (item, x) in enumerate(pairs)]


@dataclass(eq=False, repr=False)
class MapOf(Schema):
    """An object of any keys, with values of one kind."""

    value: Schema
    key: Text = field(default_factory=Text)
    least: int = 0
    most: int = MAX_ITEMS

    def wanted(self) -> str:
        """Return the expected form, for a refusal."""
        return f"an object of {self.least} to {self.most} keys"

    def takes(self, data: Any) -> bool:
        """Return whether data is an object with an allowed number of keys."""
        return isinstance(data, dict) and self.least <= len(data) <= self.most

    def read(self, data: Any, where: Place) -> Any:
        """Return the decoded values by key."""
        found = super().read(data, where)
        return {
            self.key.read(key, (where, None)): self.value.read(x, (where, key)) for key, x in found.items()
        }


@dataclass(eq=False, repr=False)
class Object(Schema):
    """An object of known keys. In a `OneOf` its first required key identifies it."""

    required: Mapping[str, Schema]
    optional: Mapping[str, Schema] = field(default_factory=dict)

    def wanted(self) -> str:
        """Return the expected form, for a refusal."""
        return f"an object with {', '.join(self.required or self.optional)}"

    def takes(self, data: Any) -> bool:
        """Return whether data is an object with the first required key."""
        return isinstance(data, dict) and all(key in data for key in list(self.required)[:1])

    def read(self, data: Any, where: Place) -> Any:
        """Return the decoded fields."""
        rows, found = {**self.required, **self.optional}, super().read(data, where)
        for key in found:
            if key not in rows:
                known = ", ".join(rows)
                raise Refused(f"{_place(where)} has the key {reprlib.repr(key)}; it knows {known}")
        for key in self.required:
            if key not in found:
                raise Refused(f"{_place((where, key))} is missing")
        return {key: rows[key].read(x, (where, key)) for key, x in found.items()}


@dataclass(eq=False, repr=False)
class Made(Schema):
    """The result of `make` on a decoded value; its ValueError becomes a refusal."""

    schema: Schema
    make: Callable[[Any], Any]

    def wanted(self) -> str:
        """Return the expected form, for a refusal."""
        return self.schema.wanted()

    def takes(self, data: Any) -> bool:
        """Return whether the inner schema accepts data."""
        return self.schema.takes(data)

    def read(self, data: Any, where: Place) -> Any:
        """Return the result of `make`."""
        found = self.schema.read(data, where)
        try:
            return self.make(found)
        except ValueError as error:
            raise Refused(f"{_place(where)}: {error}") from None


@dataclass(eq=False, repr=False)
class OneOf(Schema):
    """The first of some kinds that accepts the data. `choices` may be a function, for recursive kinds;
    `name`: their common name in refusals."""

    choices: Sequence[Schema] | Callable[[], Sequence[Schema]]
    name: str = ""

    def _all(self) -> Sequence[Schema]:
        return self.choices() if callable(self.choices) else self.choices

    def wanted(self) -> str:
        """Return the expected form, for a refusal."""
        return self.name or ", or ".join(choice.wanted() for choice in self._all())

    def takes(self, data: Any) -> bool:
        """Return whether a choice accepts data."""
        return any(choice.takes(data) for choice in self._all())

    def read(self, data: Any, where: Place) -> Any:
        """Return the value decoded by the choice."""
        for choice in self._all():
            if choice.takes(data):
                return choice.read(data, where)
        return super().read(data, where)


def _place(where: Place) -> str:
    text = _text(where)
    return text if 0 < len(text) <= MAX_PLACE else f"...{text[-MAX_PLACE:]}" if text else WHOLE


def _text(where: Place) -> str:
    if not where:
        return ""
    outer, key = _text(where[0]), where[1]
    if key is None:
        return f"a key of {outer or WHOLE}"
    if isinstance(key, int):
        return f"{outer}[{key}]"
    name = key if key.isidentifier() and len(key) <= 40 else reprlib.repr(key)
    return f"{outer}.{name}" if outer else name


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return found


def parse(text: str | bytes | memoryview) -> Any:
    """Return the JSON value of a text in UTF-8. Raises Refused for other texts, for a duplicate key in an
    object, and beyond `MAX_BYTES` and `MAX_DEPTH`."""
    if len(text) > MAX_BYTES:
        raise Refused(f"it has {len(text)} bytes; at most {MAX_BYTES} are read")
    try:
        found = json.loads(text if isinstance(text, str) else bytes(text).decode(), object_pairs_hook=_pairs)
    except RecursionError:
        raise Refused(f"it nests deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        raise Refused(f"it is not JSON: {error}") from None
    depth, level = 0, [found]
    while level := [x for x in level if isinstance(x, list | dict)]:
        level = [x for each in level for x in (each.values() if isinstance(each, dict) else each)]
        depth += 1
        if depth > MAX_DEPTH:
            raise Refused(f"it nests deeper than {MAX_DEPTH}")
    return found


def decode(
    text: str | bytes | memoryview, schema: Schema, what: str, error: type[Error] = ArtifactError
) -> Any:
    """Return the decoded value of a JSON text. Raises `error`, with `what` and the position in the text, if
    the text violates the schema."""
    try:
        return schema.read(parse(text), ())
    except Refused as refused:
        raise error(f"{what}: {refused}") from None
