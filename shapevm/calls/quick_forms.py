"""Functions that are generated for one call form. Their source holds only generated names and integers: keys,
strings and functions of a form are passed through its globals."""

from __future__ import annotations

import sys
from functools import lru_cache
from types import CodeType
from typing import Any

_KINDS = {bool: "bool", int: "int", float: "float", str: "str"}
MAX_LEAVES = 1000  # of a form for which a function is generated


class Writer:
    """The lines of a function, and its globals."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leaves: list[str] = []  # the names of the leaves so far
        self._given: dict[str, Any] = {}
        self._n = 0

    def name(self) -> str:
        """Return a new name."""
        self._n += 1
        return f"v{self._n}"

    def names(self, n: int) -> list[str]:
        """Return n new names."""
        return [self.name() for _ in range(n)]

    def given(self, value: Any) -> str:
        """Return the name by which the function reads `value`."""
        self._n += 1
        name = f"g{self._n}"
        self._given[name] = (
            sys.intern(value) if type(value) is str else value
        )  # as keys in the caller's source
        return name

    def constant(self, value: int | str) -> str:
        """Return the source of an int or bool, the name of a string."""
        return self.given(value) if isinstance(value, str) else f"{value:d}"

    def kind(self, value: Any) -> str:
        """Return the name of a value's class, one of Python's own."""
        return _KINDS[type(value)]

    def leaf(self) -> str:
        """Return the name of a new leaf."""
        self.leaves.append(self.name())
        return self.leaves[-1]

    def refuse(self, condition: str) -> None:
        """Let the function return None if this holds, which falls back to the general method."""
        self.lines.append(f"if {condition}: return None")

    def unpack(self, names: list[str], place: str) -> None:
        """Unpack the items at `place` into these names."""
        if names:
            self.lines.append(f"{', '.join(names)}, = {place}")

    def function(self, argument: str, result: str) -> Any:
        """Return the function of one argument, None if it has too many leaves or nests too deep. It returns
        None for a missing dict key."""
        if len(self.leaves) > MAX_LEAVES:
            return None
        body = "\n  ".join([*self.lines, f"return {result}"])
        text = f"def run({argument}):\n try:\n  {body}\n except KeyError: return None\n"
        made = dict(self._given)
        try:
            exec(_compiled(text), made)
        except (SyntaxError, RecursionError, MemoryError):
            return None
        return made["run"]


@lru_cache(256)
def _compiled(text: str) -> CodeType:
    """Return the code of a form's source, which many programs share."""
    return compile(text, "<a call form>", "exec")
