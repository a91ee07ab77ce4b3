"""Values of LLVM IR, and facts about sizes that are known at code generation.

A size is an `int` (exact) or an i64 `Value` (generic); of a `Bounded` one some facts are known.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """An SSA value (or constant) with its LLVM type, e.g. Value("<16 x float>", "%12")."""

    type: str
    name: str


@dataclass(frozen=True)
class Bounded(Value):
    """A run-time i64 of which it is known that 0 <= least <= value <= most (None: no bound), and that it is a
    multiple of `multiple`."""

    least: int = 0
    most: int | None = None
    multiple: int = 1


Int = int | Value  # a folded i64 or a run-time one


def least(x: Int) -> int:
    """Return the least value >= 0 that a size is known to have."""
    return x if isinstance(x, int) else x.least if isinstance(x, Bounded) else 0


def most(x: Int) -> int | None:
    """Return the greatest value that a size may have, None if unknown."""
    return x if isinstance(x, int) else x.most if isinstance(x, Bounded) else None


def multiple_of(x: Int) -> int:
    """Return a number that `x` is known to be a multiple of (0: of all)."""
    return x if isinstance(x, int) else x.multiple if isinstance(x, Bounded) else 1


def with_facts(value: Int, low: int, high: int | None, multiple: int) -> Int:
    """Return a run-time i64 with known facts: an int if bounds leave one value."""
    if isinstance(value, int) or low == high:
        return low if low == high else value
    return Bounded(value.type, value.name, low, high, multiple)


def have_facts(a: Int, b: Int) -> bool:
    """Whether something is known of both, and one is a run-time value."""
    facts = [isinstance(x, Bounded) or isinstance(x, int) and x >= 0 for x in (a, b)]
    return all(facts) and not (isinstance(a, int) and isinstance(b, int))


def fold_most(fold: Callable[[int, int], int], a: Int, b: Int) -> int | None:
    """Return `fold` of the greatest values of both, None where one is unknown."""
    x, y = most(a), most(b)
    return None if x is None or y is None else fold(x, y)


def f32_bits(x: float) -> str:
    """Return LLVM's hexadecimal literal for the f32 value nearest to `x`."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', struct.unpack('<f', struct.pack('<f', x))[0]))[0]:016X}"


def f64_bits(x: float) -> str:
    """Return LLVM's hexadecimal literal for the f64 value `x`."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"
