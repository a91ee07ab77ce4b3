"""Numbers that depend on an exact kernel's sizes, or on a generic product's columns and steps: the code
refers to them, and a table after it holds them.

Kernels for two shapes mostly differ in such numbers alone. Their code is then compiled once and copied for
each shape with that shape's table (stencils with holes, as in Xu and Kjolstad, "Copy-and-Patch Compilation",
OOPSLA 2021, but of whole kernels). Generic code of x86-64 has them in its instructions, where linking writes
them: from a table, products of 4 and 8 rows were 3 % slower.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from .values import Value

_Operator = Callable[[Any, Any], Any]
POOL = "pool"  # the symbol of a kernel's constant pool
NUMBER = "number"  # begins the symbols of its numbers that are written into instructions
LEAST_WRITTEN, WRITTEN_BELOW = 1, 1 << 30  # such numbers: LLVM takes the symbols for addresses, not null
LONGEST_ORIGIN = 120  # characters; a number of a longer one is written out


class FromSize(int):
    """An integer made of the sizes of a kernel. `origin`: the expression, e.g. "n0*384".

    It is an int: code that uses its value depends on it structurally.
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


class Pool(dict[tuple[str, int], Value]):
    """The representation of each number of a function's table. `is_patched`: numbers are written into the
    instructions at link time, if they fit; else they are loaded."""

    def __init__(self, is_patched: bool = False) -> None:
        super().__init__()
        self.is_patched = is_patched

    def declarations(self) -> Iterator[str]:
        """Yield the declarations of the numbers that are written into instructions, symbols whose addresses
        they are, and of the table. The symbols' type is empty, as LLVM takes the addresses of other variables
        for different ones."""
        if self:
            yield f"@{POOL} = external hidden constant [{len(self)} x i64]"
        for i, value in enumerate(self.values()):
            if not value.name.startswith("%"):
                yield f"@{NUMBER}{i} = external hidden global {{}}, !absolute_symbol !2"
                yield f"!2 = !{{i64 {LEAST_WRITTEN}, i64 {WRITTEN_BELOW}}}"

    def loads(self) -> Iterator[str]:
        """Yield the instructions that load the other numbers from the table."""
        for i, value in enumerate(self.values()):
            if value.name.startswith("%"):
                place = f"getelementptr ([{len(self)} x i64], ptr @{POOL}, i64 0, i64 {i})"
                yield f"  {value.name} = load i64, ptr {place}, align 8, !invariant.load !1"
