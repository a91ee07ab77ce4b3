"""A mutant: the project's source with one small change, which a test should notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: What replaces what, in both languages.
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "//": "*",
    "%": "*",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
}


@dataclass(frozen=True)
class Mutant:
    """`old`, at byte `begin` of a file, replaced by `new`. `line` counts from 1."""

    path: Path
    line: int
    begin: int
    old: str
    new: str

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        end = self.begin + len(self.old.encode())
        assert source[self.begin : end] == self.old.encode(), "the source has changed since"
        return source[: self.begin] + self.new.encode() + source[end:]

    @property
    def key(self) -> str:
        """What tells the mutant from all others of the same source."""
        return f"{self.path}@{self.begin} {self.old} -> {self.new}"

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.path}:{self.line}: {old[:60]} -> {new[:60]}"
