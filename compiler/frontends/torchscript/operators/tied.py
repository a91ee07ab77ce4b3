"""Sizes that are equal in every call of an operator, which its decomposition must know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....ir.graph import Builder, Value
from ....ops import build as B


def tied(b: Builder, overload: str, args: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments of an operator with one expression for each size that they share."""
    return _TIED[overload](b, *args) if overload in _TIED else args


def _einsum(b: Builder, equation: str, operands: Sequence[Value], *rest: Any) -> Sequence[Any]:
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
    return equation, made, *rest


def _letters(term: str, x: Value) -> Iterator[tuple[int, str]]:
    """Yield the axes of an operand that have a letter."""
    before, _, behind = term.partition("...")
    yield from enumerate(before)
    yield from enumerate(behind, len(B.shape_of(x)) - len(behind))


def _of_classes(b: Builder, x: Value, target: Value, *rest: Any) -> Sequence[Any]:
    """Return scores with the rows and positions of their targets."""
    scores, wanted = B.shape_of(x), B.shape_of(target)
    axes = range(len(scores)) if len(wanted) == len(scores) else [0, *range(2, len(scores))]
    for axis, size in zip(axes, wanted, strict=False):
        x = B.of_matching_size(b, "cross_entropy_loss", x, axis, size)
    return x, target, *rest


_TIED: dict[str, Callable[..., Sequence[Any]]] = {
    "aten.einsum.default": _einsum,
    "aten.cross_entropy_loss.default": _of_classes,
}
