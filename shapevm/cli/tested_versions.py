"""The oldest and the newest versions of Python and of packages that `make versions` tests shapevm with.

pyproject.toml requires the oldest; `shapevm doctor` compares the installed versions with this table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Versions:
    """The oldest and the newest tested version of one package."""

    oldest: str
    newest: str

    def is_too_old(self, version: str) -> bool:
        """Whether a version is older than the oldest tested."""
        return _numbers(version) < _numbers(self.oldest)

    def is_too_new(self, version: str) -> bool:
        """Whether a version is newer than the newest tested and its patch releases."""
        return _numbers(version)[:2] > _numbers(self.newest)[:2]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))


#: The packages that running an artifact needs, then those that compiling needs. torch 2.11 and older cannot
#: trace a slice of a dynamic axis at sizes 0 and 1; llvmlite 0.44 has LLVM 15, whose text format differs.
TESTED = {
    "python": Versions("3.11", "3.14"),
    "cffi": Versions("2.1.0", "2.1.1"),
    "click": Versions("8.1.0", "8.5.1"),
    "numpy": Versions("1.26.4", "2.4.6"),
    "platformdirs": Versions("4.0.0", "4.14.5"),
    "rich": Versions("13.0.0", "15.0.0"),
    "llvmlite": Versions("0.45.0", "0.50.0"),
    "sympy": Versions("1.13.3", "1.14.0"),
    "torch": Versions("2.12.0", "2.14.1"),
}
