"""One line of assembly text as tokens. Errors name the line and the column."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection
from typing import Any, Final

from .errors import Error
from .layout import LIMITS
from .schema import Refused, Schema, parse

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<comment>;.*)|(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<json>\{.*)|(?P<hash>@[0-9a-f]{16}\b)"""
    r"""|(?P<number>[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)\b)"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<punct>\.\.|[()\[\],:=*]))"""
)
#: Kind of token -> the expectation in an error message.
_WANTED: Final = {
    "string": 'a string in quotes, such as "x"', "json": "a JSON object, such as {}", "number": "a number",
    "name": "a name",
}  # fmt: skip
MAX_SHOWN = 40  # characters of a token that an error shows
INT64: Final = (-(1 << 63), (1 << 63) - 1)
U32: Final = (0, (1 << 32) - 1)


class AssemblyError(Error, ValueError):
    """Text that is not a program. The message names the line and the column."""


def known(names: Collection[str], name: str) -> str:
    """Return the end of an error for an unknown name: the nearest one, or all."""
    from difflib import get_close_matches

    near = get_close_matches(cut(name), names, 1)
    return f"the nearest is {near[0]!r}" if near else f"known are {', '.join(names)}"


class Line:
    """One line's tokens: (kind, text, column). Methods take the next one; an unexpected token raises
    AssemblyError."""

    def __init__(self, number: int, text: str) -> None:
        self.number, self.at = number, 0
        self.tokens: list[tuple[str, str, int]] = []
        end = text.rstrip()
        self.width = len(end)
        at = 0
        while at < len(end):
            match = _TOKEN.match(end, at)
            kind = match.lastgroup if match is not None else None
            if match is None or kind is None:
                rest = end[at:].lstrip()
                raise self._error(self.width - len(rest) + 1, _not_understood(rest))
            if kind != "comment":
                self.tokens.append((kind, match[kind], match.start(kind) + 1))
            at = match.end()

    def _error(self, column: int, sentence: str) -> AssemblyError:
        return AssemblyError(f"line {self.number}, column {column}: {sentence}")

    def fail(self, sentence: str, at: int | None = None) -> AssemblyError:
        """Return the error about the token `at`, the last one taken by default."""
        index = max(self.at - 1, 0) if at is None else at
        return self._error(self.tokens[index][2] if index < len(self.tokens) else self.width + 1, sentence)

    def _missing(self, wanted: str) -> AssemblyError:
        found = repr(cut(self.peek())) if self.at < len(self.tokens) else "the line's end"
        return self.fail(f"{wanted} must stand where {found} does", self.at)

    def peek(self, offset: int = 0) -> str:
        """Return the text of the next token (or a later one), "" beyond the end."""
        at = self.at + offset
        return self.tokens[at][1] if at < len(self.tokens) else ""

    def kind(self, offset: int = 0) -> str:
        """Return the kind of the next token (or a later one), "" beyond the end."""
        at = self.at + offset
        return self.tokens[at][0] if at < len(self.tokens) else ""

    def take(self, kind: str) -> str:
        """Take a token of this kind."""
        if self.kind() != kind:
            raise self._missing(_WANTED[kind])
        self.at += 1
        return self.tokens[self.at - 1][1]

    def skip(self, text: str) -> bool:
        """Take `text` if it is next; return whether it was."""
        if self.kind() == "string" or self.peek() != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        """Take `text`."""
        if not self.skip(text):
            raise self._missing(repr(text))

    def string(self) -> str:
        """Take a string that the format allows."""
        try:
            text = str(json.loads(self.take("string")))
            text.encode()
        except json.JSONDecodeError as error:
            raise self.fail(f"the string is not as JSON has it: {error.msg}") from None
        except UnicodeEncodeError:
            raise self.fail("the string holds half of a surrogate pair, which is no character") from None
        if "\0" in text:
            raise self.fail("the string holds a zero character, which the format does not") from None
        return text

    def object(self, schema: Schema) -> dict[str, Any]:
        """Take a JSON object, which is the rest of the line."""
        try:
            return dict(schema.read(parse(self.take("json")), ()))
        except Refused as refused:
            raise self.fail(f"JSON: {refused}") from None

    def integer(self, bounds: tuple[int, int] = INT64) -> int:
        """Take an integer within `bounds`, inclusive."""
        text = self.take("number")
        if not re.fullmatch(r"[-+]?\d+", text):
            raise self.fail(f"{cut(text)} is not an integer")
        return self._within(text, bounds)

    def _within(self, digits: str, bounds: tuple[int, int]) -> int:
        value = int(digits) if len(digits) <= 20 else None  # 2^64 has 20 digits
        if value is None or not bounds[0] <= value <= bounds[1]:
            raise self.fail(f"{cut(digits)} must be from {bounds[0]} to {bounds[1]}")
        return value

    def indexed(self, letter: str) -> int:
        """Take a name such as r12; return the number."""
        if not re.fullmatch(letter + r"\d+", self.peek()) or self.kind() != "name":
            raise self._missing(f"a name such as {letter}0")
        return self._within(self.take("name")[1:], U32)

    def one_of(self, names: Collection[str], what: str) -> str:
        """Take a name that is one of `names`."""
        name = self.take("name")
        if name not in names:
            raise self.fail(f"{what} {cut(name)!r} is unknown; {known(names, name)}")
        return name

    def items(self, close: str, read: Callable[[], Any], limit: str = "") -> list[Any]:
        """Read comma-separated items up to `close`, at most the limit of that name."""
        items: list[Any] = []
        bound, what = LIMITS[limit] if limit else (None, "")
        while not self.skip(close):
            if items:
                self.expect(",")
            if len(items) == bound:
                raise self.fail(f"more than {bound} {what} are not allowed", self.at)
            items.append(read())
        return items

    def base64(self) -> bytes:
        """Take a string of base64."""
        try:
            return base64.b64decode(self.string(), validate=True)
        except (binascii.Error, ValueError) as error:
            if isinstance(error, AssemblyError):
                raise
            raise self.fail("the text is not base64") from None

    def end(self) -> None:
        """Require that no token is left."""
        if self.at != len(self.tokens):
            raise self.fail(f"{cut(self.peek())!r} must not follow; delete it", self.at)


def cut(text: str) -> str:
    """Return text for an error message, shortened if it is long."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def _not_understood(rest: str) -> str:
    if rest.startswith('"'):
        return "a string is not closed: its last quote is missing"
    return f'{rest[:20]!r} is not understood; write a name, a number, a "string", {{JSON}} or one of ()[],:=*'
