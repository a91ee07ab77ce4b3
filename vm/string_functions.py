"""The functions of the opcode `text`: TorchScript's string methods, which work on bytes.

`STRING_FUNCTIONS` in vm/isa.py is their table; the C runtime has them in runtime_c/values/string_functions.c.
A string that was cut within a character is represented in Python with surrogates (`surrogateescape`) for the
partial bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from fractions import Fraction
from typing import Any, Final

import numpy as np

from .codes import LIMITS
from .contract import tag_of
from .errors import GuardError, IndexOutOfRange, KindError, LimitExceeded
from .isa import STRING_FUNCTIONS, article
from .literals import written

_MAX_BYTES: Final = LIMITS["STRING_BYTES"][0]
_LIMIT = ContextVar("limit", default=_MAX_BYTES)  # of the current call
_INT64 = range(-(1 << 63), 1 << 63)


def to_bytes(text: str) -> bytes:
    """Return the bytes of a string."""
    return text.encode("utf-8", "surrogateescape")


def to_text(data: bytes) -> str:
    """Return the string of some bytes."""
    return data.decode("utf-8", "surrogateescape")


def is_whole(value: Any) -> bool:
    """Return True if no string in a value was cut within a character."""
    if isinstance(value, list | tuple | dict):
        items = [*value, *value.values()] if isinstance(value, dict) else value
        return all(map(is_whole, items))
    return not isinstance(value, str) or not re.search("[\ud800-\udfff]", value)


def call_string_function(name: str, args: Sequence[Any], max_bytes: int = _MAX_BYTES) -> Any:
    """Return a function's result. Raises KindError for arguments that its row does not allow, LimitExceeded
    for a string of more than `max_bytes`, else the errors of the function."""
    takes = STRING_FUNCTIONS[name].takes
    for index, (x, tag) in enumerate(zip(args, takes, strict=True)):
        if tag_of(x) != tag:
            raise KindError(
                f"string {name}: argument {index} is {article(tag_of(x))}; it takes {article(tag)}"
            )
    token = _LIMIT.set(max_bytes)
    try:
        return _from_bytes(_FUNCTIONS[name](*map(_into_bytes, args)))
    finally:
        _LIMIT.reset(token)


def _into_bytes(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_into_bytes, value))
    return to_bytes(value) if isinstance(value, str) else value


def _from_bytes(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_from_bytes, value))
    return to_text(value) if isinstance(value, bytes) else value


def check_size(n_bytes: int) -> None:
    """Raise LimitExceeded for a string longer than a program may make."""
    n_bytes = min(n_bytes, _INT64[-1])
    if n_bytes > _LIMIT.get():
        raise LimitExceeded(f"a string of {n_bytes} bytes is over the limit of {_LIMIT.get()}")


# Bytes of kinds -----------------------------------------------------------------------------------------

_UPPER = bytes(range(ord("A"), ord("Z") + 1))
_LOWER = bytes(range(ord("a"), ord("z") + 1))
_DIGITS = b"0123456789"
_LETTERS = _UPPER + _LOWER
_SPACES = b" \t\n\v\f\r"
#: Bytes that end a line: also each byte of the UTF-8 form of the line separators U+2028 and U+2029.
_LINE_ENDS = b"\n\r\v\f\x1c\x1d\x1e\x85\xe2\x80\xa8\xa9"
_ANY_WORD_END = b"[" + _LINE_ENDS + b" \t]"


def _all_of(kind: bytes) -> Callable[[bytes], bool]:
    return lambda s: s != b"" and all(c in kind for c in s)


def _is_case(own: bytes, other: bytes) -> Callable[[bytes], bool]:
    return lambda s: any(c in own for c in s) and not any(c in other for c in s)


# Parts --------------------------------------------------------------------------------------------------


def _window(s: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the bounds of a search: those below 0 count from the end; -1 as end is the end itself."""
    n = len(s)
    return max(0, n + start) if start < 0 else start, max(0, n + end + 1) if end < 0 else end


def _cut(s: bytes, start: int, end: int) -> tuple[bytes, int]:
    """Return the part that is searched and its start."""
    start, end = _window(s, start, end)
    if start > len(s):
        raise IndexOutOfRange(f"the search begins at {start}; the string has {len(s)} bytes")
    return s[start:] if end < start else s[start:end], start


def _find(s: bytes, part: bytes, start: int, end: int) -> int:
    return _searched(bytes.find, s, part, start, end)


def _rfind(s: bytes, part: bytes, start: int, end: int) -> int:
    return _searched(bytes.rfind, s, part, start, end)


def _searched(search: Callable[..., int], s: bytes, part: bytes, start: int, end: int) -> int:
    start, end = _window(s, start, end)
    if end <= start:
        return start if part == b"" else -1
    found, start = _cut(s, start, end)
    at = search(found, part)
    return at + start if at >= 0 else -1


def _count(s: bytes, part: bytes, start: int, end: int) -> int:
    if start > len(s):
        return 0
    start, end = _window(s, start, end)
    if part == b"" and start < end:
        raise GuardError("count: the substring is empty; give one of at least one byte")
    n, at = 0, s.find(part, start)
    while 0 <= at < end:
        n, at = n + 1, s.find(part, at + len(part))
    return n


def _starts_with(s: bytes, part: bytes, start: int, end: int) -> bool:
    return _cut(s, start, end)[0].startswith(part)


def _ends_with(s: bytes, part: bytes, start: int, end: int) -> bool:
    return _cut(s, start, end)[0].endswith(part)


def _item(s: bytes, index: int) -> bytes:
    at = index + len(s) if index < 0 else index
    if not 0 <= at < len(s):
        raise IndexOutOfRange(f"string index {index} is out of range; the string has {len(s)} bytes")
    return s[at : at + 1]


def _slice(s: bytes, start: int, end: int, step: int) -> bytes:
    if step in (0, _INT64[0]):
        raise GuardError(f"the step of a slice is {step}; it must be neither 0 nor the least int")
    missing = _INT64[-1]
    return s[None if start == missing else start : None if end == missing else end : step]


def _characters(s: bytes) -> list[bytes]:
    return [s[i : i + 1] for i in range(len(s))]


def _words(s: bytes) -> list[bytes]:
    return [word for word in re.split(_ANY_WORD_END, s) if word]


def _split(s: bytes, separator: bytes, most: int) -> list[bytes]:
    if separator == b"":
        raise GuardError("ValueError: empty separator")
    return s.split(separator, max(most, -1))


def _rsplit(s: bytes, separator: bytes, most: int) -> list[bytes]:
    if separator == b"":
        raise GuardError("ValueError: empty separator")
    return s.rsplit(separator, max(most, -1))


# New strings --------------------------------------------------------------------------------------------


def _replace(s: bytes, old: bytes, new: bytes, most: int) -> bytes:
    if old == b"":
        if most < 0:
            raise GuardError("replace: the string to be replaced is empty; give one of at least one byte")
        check_size(most * len(new) + len(s))
        return new * most + s
    n = s.count(old)
    n = n if most < 0 else min(n, most)
    check_size(len(s) + n * (len(new) - len(old)))
    return s.replace(old, new, max(most, -1))


def _join(separator: bytes, items: list[Any]) -> bytes:
    for i, item in enumerate(items):
        if not isinstance(item, bytes):
            raise KindError(f"string join: element {i} is {article(tag_of(item))}; it must be a str")
    check_size(sum(map(len, items)) + len(separator) * max(len(items) - 1, 0))
    return separator.join(items)


# Numbers ------------------------------------------------------------------------------------------------


def _ord(s: bytes) -> int:
    if len(s) != 1:
        raise GuardError(f"String for ord() must be 1 character, found {len(s)}")
    return s[0]


def _chr(code: int) -> bytes:
    if not 0 <= code < 0x10FFFF:
        raise GuardError(f"chr() arg not in range(0x110000), found {code}")
    return bytes([code & 0xFF])


def _int(s: bytes) -> int:
    found = re.fullmatch(rb"[ \t-\r]*([+-]?)([0-9]+)", s)
    digits = found[2].lstrip(b"0") or b"0" if found else b""  # int() refuses thousands of digits
    number = int(found[1] + digits) if found and len(digits) < 20 else None
    if number is None or number not in _INT64:
        raise GuardError(f"invalid literal for int() with base 10: '{_shown(s)}'")
    return number


_FLOAT = re.compile(
    rb"[ \t-\r]*([+-]?)(?:(inf(?:inity)?|nan(?:\([0-9a-z_]*\))?)|(0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)"
    rb"(?:p[+-]?[0-9]+)?)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?))",
    re.IGNORECASE,
)


def _float(s: bytes) -> float:
    found = _FLOAT.fullmatch(s)
    if found is None:
        raise GuardError(f"could not convert string to float: '{_shown(s)}'")
    sign, special, hexadecimal, decimal = (part.decode() if part else "" for part in found.groups())
    try:
        made = float(special.partition("(")[0]) if special else float.fromhex(hexadecimal or "0")
        made = float(decimal) if decimal else made
    except OverflowError:
        made = math.inf
    if not special and (math.isinf(made) or _is_inexact(made, decimal, hexadecimal)):
        raise GuardError(f"could not convert string to float: '{_shown(s)}'")
    return math.copysign(made, -1.0 if sign == "-" else 1.0)


def _is_inexact(made: float, decimal: str, hexadecimal: str) -> bool:
    """Return True for a subnormal number that differs from the text's value."""
    if made >= 2.0**-1022:
        return False
    digits, _, exponent = (hexadecimal or decimal).lower().partition("p" if hexadecimal else "e")
    if not re.search("[1-9a-f]", digits.removeprefix("0x")):
        return False
    if made == 0.0:
        return True
    return not hexadecimal or Fraction(made) != Fraction(*_hexadecimal(digits, int(exponent or 0)))


def _hexadecimal(digits: str, exponent: int) -> tuple[int, int]:
    whole, _, fraction = digits.removeprefix("0x").partition(".")
    shift = exponent - 4 * len(fraction)
    number = int(whole + fraction, 16)
    return (number << shift, 1) if shift >= 0 else (number, 1 << -shift)


def _shown(s: bytes) -> str:
    return to_text(s.partition(b"\0")[0][:200])


# Formats ------------------------------------------------------------------------------------------------


def _text_of(x: Any) -> bytes:
    if isinstance(x, bytes):
        return x
    if x is None:
        return b"None"
    if not isinstance(x, bool | int | float):
        raise KindError(f"string format: a value is {article(tag_of(x))}; it must be a str or number")
    return written(x).encode()


def _format(text: bytes, values: tuple[Any, ...]) -> bytes:
    first, *others = text.split(b"{}")
    if len(others) > len(values):
        raise GuardError(f"Too few arguments for format string: {_shown(text)}")
    parts = [first]
    for value, other in zip(values, others, strict=False):
        parts += [_text_of(value), other]
    return _glued(parts)


def _glued(parts: Sequence[bytes]) -> bytes:
    check_size(sum(map(len, parts)))
    return b"".join(parts)


def _percent(text: bytes, values: tuple[Any, ...]) -> bytes:
    parts, at, used = [], 0, 0
    while (mark := text.find(b"%", at)) >= 0:
        if mark == len(text) - 1:
            raise GuardError("Incomplete format specifier")
        parts.append(text[at:mark])
        at, key = mark + 2, text[mark + 1 : mark + 2]
        if key == b"%":
            parts.append(key)
            continue
        if used >= len(values):
            raise GuardError("Too few arguments for format string")
        parts.append(_field(key, values[used]))
        used += 1
    if used != len(values):
        raise GuardError("Too many arguments for format string")
    return _glued([*parts, text[at:]])


def _field(key: bytes, x: Any) -> bytes:
    """Return a value formatted by % with that letter."""
    is_number = isinstance(x, int | float) and not isinstance(x, bool)
    if key == b"s":
        return _text_of(x)
    if key not in (b"d", b"i", b"f", b"F", b"e", b"E", b"c"):
        raise GuardError(f"The specifier %{_shown(key)} is not supported in TorchScript format strings")
    if key == b"c":
        if not (isinstance(x, int) and is_number) and not (isinstance(x, bytes) and len(x) == 1):
            raise GuardError(f"%c requires an int or char for formatting, but got {article(_kind(x))}")
        return x if isinstance(x, bytes) else bytes([x & 0xFF])
    if not is_number:
        raise GuardError(f"%{key.decode()} requires a number for formatting, but got {article(_kind(x))}")
    if key in b"di":
        return str(x if isinstance(x, int) else _int32(x)).encode()
    return _decimal(key, x)


def _kind(x: Any) -> str:
    return "str" if isinstance(x, bytes) else tag_of(x)


def _int32(x: float) -> int:
    """Return a float converted to C's int, as x86 does."""
    return int(x) if math.isfinite(x) and -(1 << 31) <= int(x) < 1 << 31 else -(1 << 31)


def _decimal(key: bytes, x: int | float) -> bytes:
    """Return the nearest 32-bit float with six decimals."""
    with np.errstate(all="ignore"):
        number = float((np.int64(x) if isinstance(x, int) else np.float64(x)).astype(np.float32))
    letter = "f" if key in b"fF" else "e"
    made = f"{abs(number):.6{letter}}"
    made = f"-{made}" if math.copysign(1.0, number) < 0 else made
    return (made.upper() if key == b"E" else made).encode()


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isalnum": _all_of(_LETTERS + _DIGITS), "isalpha": _all_of(_LETTERS), "isdigit": _all_of(_DIGITS),
    "isspace": _all_of(_SPACES), "isupper": _is_case(_UPPER, _LOWER), "islower": _is_case(_LOWER, _UPPER),
    "upper": bytes.upper, "lower": bytes.lower, "capitalize": bytes.capitalize, "strip": bytes.strip,
    "lstrip": bytes.lstrip, "rstrip": bytes.rstrip, "find": _find, "rfind": _rfind, "count": _count,
    "startswith": _starts_with, "endswith": _ends_with, "item": _item, "slice": _slice,
    "characters": _characters, "split": _split, "words": _words, "rsplit": _rsplit, "replace": _replace,
    "join": _join, "ord": _ord, "chr": _chr,
    "hex": lambda x: hex(x).encode(), "oct": lambda x: oct(x).encode(), "bin": lambda x: bin(x).encode(),
    "int": _int, "float": _float, "format": _format, "percent": _percent,
}  # fmt: skip
