"""einsum: sizes of one letter are equal, which its decomposition must know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....ir.graph import Builder, Value
from ....ops import build as B


def tied(b: Builder, equation: str, operands: Sequence[Value]) -> list[Value]:
    """Return the operands with equal sizes along axes of one letter; those that may differ are checked at
    every call. An axis whose size is 1 in every call is broadcast."""
    terms = equation.replace(" ", "").split("->")[0].split(",")
    made, sizes = list(operands), dict[str, Any]()
    pairs = list(zip(terms, operands, strict=False))
    named = [(i, axis, letter) for i, (term, x) in enumerate(pairs) for axis, letter in _letters(term, x)]
    for i, axis, letter in sorted(
        named, key=lambda place: not B.is_known(B.shape_of(made[place[0]])[place[1]])
    ):
        size = B.shape_of(made[i])[axis]
        if not B.is_one(size):
            made[i] = B.of_size(b, "einsum", made[i], axis, sizes.setdefault(letter, size))
    return made


def _letters(term: str, x: Value) -> Iterator[tuple[int, str]]:
    """Yield the axes of an operand that have a letter."""
    before, _, behind = term.partition("...")
    yield from enumerate(before)
    yield from enumerate(behind, len(B.shape_of(x)) - len(behind))
