"""Methods of strings that the opcode `text` does not have, as TorchScript code that is imported in place of a
call. They count bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

#: The bytes at which lines end. TorchScript splits at each byte of U+2028 and U+2029, and at 0x85, the last
#: byte of U+2005.
_LINE_ENDS = r"\012\015\013\014\034\035\036" + "\u2005\u2028\u2029"
_PADDING = """
def pad(n: int, fill: str) -> str:
    if len(fill) != 1:
        raise TypeError("The fill character must be exactly one character long")
    return "".replace("", fill, n)
"""


def _padded(name: str, source: str) -> str:
    return f"""{_PADDING}
def {name}(s: str, width: int, fill: str) -> str:
    n = max(width - len(s), 0)
    return {source}
"""


def _of_each_letter(name: str, letter: str) -> str:
    """Return the source of a method that replaces each byte `c`; `inside`: whether it follows a letter."""
    return f"""
def {name}(s: str) -> str:
    made: List[str] = []
    inside = False
    for i in range(len(s)):
        c = s[i]
        made.append({letter})
        inside = c.isalpha()
    return "".join(made)
"""


_TITLE = _of_each_letter("title", "c.lower() if inside else c.upper()")


def _must_find(name: str) -> str:
    return f"""
def {name}(s: str, part: str, start: int, end: int) -> int:
    at = s.{name.replace("index", "find")}(part, start, end)
    if at < 0:
        raise ValueError("substring not found")
    return at
"""


def _parts(name: str, find: str, otherwise: str) -> str:
    return f"""
def {name}(s: str, separator: str) -> Tuple[str, str, str]:
    at = s.{find}(separator)
    if at < 0:
        return {otherwise}
    return s[:at], separator, s[at + len(separator):]
"""


#: By the name of the method.
METHODS = {
    "istitle": f"""{_TITLE}
def istitle(s: str) -> bool:
    return s == title(s) and s != s.lower()
""",
    "isprintable": """
def isprintable(s: str) -> bool:
    for i in range(len(s)):
        if ord(s[i]) < 0x20 or ord(s[i]) > 0x7E:
            return False
    return True
""",
    "isidentifier": """
def isidentifier(s: str) -> bool:
    return s.isalnum() and not s[:1].isdigit()
""",
    "title": _TITLE,
    "swapcase": _of_each_letter("swapcase", "c.lower() if c.isupper() else c.upper()"),
    "index": _must_find("index"),
    "rindex": _must_find("rindex"),
    "splitlines": f"""
def splitlines(s: str, keeps_ends: bool) -> List[str]:
    made: List[str] = []
    start = 0
    for i in range(len(s)):
        if "{_LINE_ENDS}".find(s[i]) >= 0:
            made.append(s[start:i])
            if keeps_ends:
                made.append(s[i])
            start = i + 1
    if start < len(s):
        made.append(s[start:])
    return made
""",
    "partition": _parts("partition", "find", 's, "", ""'),
    "rpartition": _parts("rpartition", "rfind", '"", "", s'),
    "center": _padded("center", "pad((n + width % 2) // 2, fill) + s + pad(n - (n + width % 2) // 2, fill)"),
    "ljust": _padded("ljust", "s + pad(n, fill)"),
    "rjust": _padded("rjust", "pad(n, fill) + s"),
    "expandtabs": """
def expandtabs(s: str, size: int) -> str:
    parts = s.split("\\t")
    made = [parts[0]]
    n = len(parts[0])
    for i in range(1, len(parts)):
        spaces = 0
        if size > 0:
            spaces = size - n % size
        made.append("".replace("", " ", spaces))
        made.append(parts[i])
        n += spaces + len(parts[i])
    return "".join(made)
""",
}
#: These sources by names that no other function of the library has.
SOURCES = {f"{name}.str": source for name, source in METHODS.items()}


@cache
def function(name: str) -> Callable[..., Any]:
    """Return a method as a function that PyTorch runs."""
    made: Callable[..., Any] = getattr(torch.jit.CompilationUnit(METHODS[name]), name)
    return made
