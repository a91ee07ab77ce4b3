"""The mutants of a C file: comparisons, arithmetic, constants, conditions turned round, calls left out.

Found in the text, which clang-format keeps in one form: binary operators have a space on either side, which
no pointer has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .mutant import ARITHMETIC, COMPARISONS, Mutant

_SILENT = re.compile(
    rb'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''  # comments, strings
    rb"|^[ \t]*#(?:\\\n|[^\n])*|^_Static_assert.*?;",  # the preprocessor
    re.DOTALL | re.MULTILINE,
)
_BINARY = {**COMPARISONS, **ARITHMETIC, "&&": "||", "||": "&&"}
_OPERATOR = re.compile(rb" (<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|<>]) (?=[^=])")
_NUMBER = re.compile(rb"(?<![\w.])(\d+)(?![\w.])")
_CONDITION = re.compile(rb"\bif (\()")
_CALL = re.compile(rb"^[ \t]+([a-z_]\w*\([^;{}]*\);)$", re.MULTILINE)


def mutants_of(path: Path, source: bytes) -> list[Mutant]:
    """Return all mutants of a file."""
    code = _SILENT.sub(lambda match: re.sub(rb"[^\n]", b" ", match.group()), source)
    changes = (*_operators(code), *_numbers(code), *_conditions(code), *_calls(code))
    return [
        Mutant(path, source.count(b"\n", 0, begin) + 1, begin, source[begin:end].decode(), new)
        for begin, end, new in changes
    ]


Change = tuple[int, int, str]


def _operators(code: bytes) -> Iterator[Change]:
    for match in _OPERATOR.finditer(code):
        yield *match.span(1), _BINARY[match[1].decode()]


def _numbers(code: bytes) -> Iterator[Change]:
    for match in _NUMBER.finditer(code):
        yield *match.span(1), str(int(match[1]) + 1)


def _conditions(code: bytes) -> Iterator[Change]:
    for match in _CONDITION.finditer(code):
        end = _closing(code, match.start(1))
        yield match.start(1), end, f"(!{code[match.start(1) : end].decode()})"


def _calls(code: bytes) -> Iterator[Change]:
    for match in _CALL.finditer(code):
        yield *match.span(1), ";"


def _closing(code: bytes, begin: int) -> int:
    """Return the place behind the bracket that closes the one at `begin`."""
    depth = 0
    for at in range(begin, len(code)):
        depth += {ord("("): 1, ord(")"): -1}.get(code[at], 0)
        if depth == 0:
            return at + 1
    raise ValueError("a bracket is never closed")
