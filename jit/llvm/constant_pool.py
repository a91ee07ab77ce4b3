"""Numbers that an exact kernel's sizes give, or a generic product's columns and steps: the code refers to
them, a table behind it holds them.

Kernels for two shapes mostly differ in such numbers alone. Their code is then compiled once and copied for
each shape with that shape's table (stencils with holes, as in Xu and Kjolstad, "Copy-and-Patch Compilation",
OOPSLA 2021, but of whole kernels). Generic code of x86-64 has them in its instructions, where linking writes
them: from a table, products of 4 and 8 rows took 3 % longer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

_Operator = Callable[[Any, Any], Any]
LONGEST_ORIGIN = 120  # characters; a number of a longer one is written out


class FromSize(int):
    """An integer made of the sizes of a kernel. `origin`: the expression, e.g. "n0*384".

    It is an int: what asks for its value decides on the code's structure.
    """

    origin: str

    def __new__(cls, value: int, origin: str) -> FromSize:
        """Return the number `value`, made as `origin` says."""
        made = super().__new__(cls, value)
        made.origin = origin
        return made

    def __neg__(self) -> FromSize:
        """-self, so that a ceiling written -(-n // 6) is a number of the table as well."""
        return FromSize(-int(self), f"-{self.origin}")


def _arithmetic(symbol: str, fold: Callable[[int, int], int]) -> tuple[_Operator, _Operator]:
    """Return the operator of FromSize and its reflection."""

    def combine(a: int, b: int) -> int:
        if type(b) is FromSize:
            right = b.origin
        elif type(b) is int:
            right = str(b)
        else:
            return NotImplemented
        left = a.origin if type(a) is FromSize else str(a)
        origin = f"({left}{symbol}{right})"
        value = fold(int(a), int(b))
        return FromSize(value, origin) if len(origin) <= LONGEST_ORIGIN else value

    def reflected(b: int, a: Any) -> int:
        return combine(a, b) if type(a) is int else NotImplemented

    return combine, reflected


for _name, _symbol in {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}.items():
    _forward, _backward = _arithmetic(_symbol, getattr(operator, _name))
    setattr(FromSize, f"__{_name}__", _forward)
    setattr(FromSize, f"__r{_name}__", _backward)
