"""The nesting depth of source text, found without parsing it.

Python's parser must not see text that is too deep.
"""

from __future__ import annotations

import re

from ...ir.errors import ArchiveError

MAX_NESTING = 200
_TOKEN = re.compile(
    r"""(?P<space>[ ]+|\#[^\n]*)|(?P<line>\n)
    |(?P<string>"(?:[^"\\\n]|\\(?:[abfnrtv\\'"]|[0-3][0-7]{2}|x[0-9a-fA-F]{2}))*"(?!"))
    |(?P<number>(?:\d{1,400}(?:\.\d{0,400})?)(?:[eE][+-]?\d{1,4})?j?(?![\w.]))
    |(?P<name>[^\W\d]\w*(?!["']))
    |(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comma>,)
    |(?P<operator>->|[-+*/%<>=!&|^~@]=?|//|[.:;])""",
    re.VERBOSE,
)
_REFUSED = frozenset(
    ["elif", "lambda", "async", "await", "yield", "try", "except", "finally", "raise"]
    + ["import", "del", "global", "nonlocal", "assert"]
)
_NESTS = frozenset(["not", "and", "or", "if", "else", "in", "is", "for"])


def check_nesting(text: str, path: str) -> None:
    """Raise ArchiveError for text with a token that serialised TorchScript does not have, or nested too deep.

    The nesting within a line is counted: open brackets, and the operators before them since a comma.
    """
    counts, total, at, line = [0], 0, 0, 1
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or token[0] in _REFUSED:
            what = token[0] if token else text[at]
            raise ArchiveError(f"{what!r} is not part of serialised TorchScript ({path}:{line})")
        at, kind = token.end(), token.lastgroup
        if kind == "line":
            line += 1
        if kind == "close":
            total -= counts.pop()
            if not counts:
                raise ArchiveError(f"a bracket is closed that was not opened ({path}:{line})")
        elif kind == "comma" or (kind == "line" and len(counts) == 1):
            total -= counts[-1]
            counts[-1] = 0
        elif kind in ("open", "operator") or token[0] in _NESTS:
            counts[-1] += 1
            total += 1
        if kind == "open":
            counts.append(0)
        if total > MAX_NESTING:
            raise ArchiveError(f"the code nests more than {MAX_NESTING} operators ({path}:{line})")
