"""Einsum: sums of products over named axes, as matrix products of two operands at a time."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.dims import DimExpr, product
from ....ir.errors import ShapeError
from ....ir.graph import Builder, Value
from ....ops import build as B
from ..rows import Call, row


class Term:
    """A tensor whose axes have names: letters, and numbers for those of an ellipsis, counted from the end."""

    def __init__(self, b: Builder, x: Value, axes: Sequence[str]) -> None:
        self.b, self.x, self.axes = b, x, list(axes)

    def size(self, axis: str) -> DimExpr:
        """Return the size of an axis; 1 if it has none of the name."""
        return B.shape_of(self.x)[self.axes.index(axis)] if axis in self.axes else 1

    def sizes(self, axes: Sequence[str]) -> list[DimExpr]:
        """Return the sizes of axes."""
        return [self.size(axis) for axis in axes]

    def ordered(self, axes: Sequence[str]) -> Value:
        """Return the tensor with its axes in an order, those that it lacks with size 1."""
        kept = [axis for axis in axes if axis in self.axes]
        x = B.permute(self.b, self.x, [self.axes.index(axis) for axis in kept])
        return B.reshape(self.b, x, self.sizes(axes))

    def summed(self, kept: Sequence[str]) -> Term:
        """Return the sum over all axes but `kept`."""
        axes = [i for i, axis in enumerate(self.axes) if axis not in kept]
        if not axes:
            return self
        made = B.cast_to(self.b, B.reduce(self.b, "reduce_sum", self.x, axes, False), B.dtype_of(self.x))
        return Term(self.b, made, [axis for axis in self.axes if axis in kept])

    def without_repeats(self) -> Term:
        """Return the diagonals of axes of one name."""
        b, x, axes = self.b, self.x, list(self.axes)
        for name in dict.fromkeys(axes):
            while axes.count(name) > 1:
                first = axes.index(name)
                second = axes.index(name, first + 1)
                size = B.shape_of(x)[first]
                x = B.of_size(b, "Einsum", x, second, size)
                last = [*(i for i in range(len(axes)) if i not in (first, second)), first, second]
                x = B.diagonal(b, B.permute(b, x, last), 0, 0, size)
                axes = [*(axes[i] for i in last[:-2]), name]
        return Term(b, x, axes)


def _multiplied(call: Call, one: Term, other: Term, needed: Sequence[str]) -> Term:
    """Return the product of two terms, summed over the axes that nothing else needs."""
    b = one.b
    one = one.summed([axis for axis in one.axes if axis in other.axes or axis in needed])
    other = other.summed([axis for axis in other.axes if axis in one.axes or axis in needed])
    shared = [axis for axis in one.axes if axis in other.axes]
    batch, inner = ([axis for axis in shared if (axis in needed) is wanted] for wanted in (True, False))
    left, right = ([axis for axis in each.axes if axis not in shared] for each in (one, other))
    outer, depth = product(one.sizes(batch)), product(one.sizes(inner))
    rows, columns = product(one.sizes(left)), product(other.sizes(right))
    x = B.reshape(b, one.ordered([*batch, *left, *inner]), [outer, rows, depth])
    y = B.reshape(b, other.ordered([*batch, *inner, *right]), [outer, depth, columns])
    made = call.aten("bmm", x, y) if inner else B.pointwise(b, "mul", x, y)
    sizes = [*one.sizes(batch), *one.sizes(left), *other.sizes(right)]
    return Term(b, B.reshape(b, made, sizes), [*batch, *left, *right])


def _parsed(equation: str, values: Sequence[Value]) -> tuple[list[list[str]], list[str]]:
    """Return the names of the operands' axes, and those of the result. An ellipsis is written as numbers."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    widths = [
        len(B.shape_of(x)) - len(text.replace("...", "")) for text, x in zip(texts, values, strict=True)
    ]
    most = max((n for n, text in zip(widths, texts, strict=True) if "..." in text), default=0)

    def names(text: str, width: int) -> list[str]:
        before, dots, after = text.partition("...")
        if not all(c.isalpha() for c in before + after) or width < 0 or (width and not dots):
            raise ShapeError(f"Einsum: the equation {equation!r} does not fit operands of these ranks")
        return [*before, *(str(most - i) for i in range(width, 0, -1)), *after]

    operands = [names(text, width) for text, width in zip(texts, widths, strict=True)]
    if arrow:
        return operands, names(right, most if "..." in right else 0)
    every = [axis for axes in operands for axis in axes]
    rest = sorted(axis for axis in set(every) if axis.isalpha() and every.count(axis) == 1)
    return operands, [*(str(i) for i in range(most)), *rest]


@row("Einsum")
def _einsum(call: Call) -> Value:
    b, values = call.b, call.values()
    operands, wanted = _parsed(call.attr("equation"), values)
    terms = [Term(b, x, axes).without_repeats() for x, axes in zip(values, operands, strict=True)]
    sizes: dict[str, DimExpr] = {}
    for term in terms:
        sizes.update({axis: term.size(axis) for axis in term.axes if B.is_one(sizes.get(axis, 1))})
    terms = [_fitted(term, sizes) for term in terms]
    made = terms[0]
    for i, other in enumerate(terms[1:], 2):
        later = [axis for term in terms[i:] for axis in term.axes]
        made = _multiplied(call, made, other, [*wanted, *later])
    return made.summed(wanted).ordered(wanted)


def _fitted(term: Term, sizes: dict[str, DimExpr]) -> Term:
    """Return a term without axes of size 1 that are longer elsewhere; the others have the common sizes."""
    b, x = term.b, term.x
    kept = [axis for axis in term.axes if not B.is_one(term.size(axis)) or B.is_one(sizes[axis])]
    x = term.ordered([*(axis for axis in term.axes if axis not in kept), *kept])
    x = B.reshape(b, x, term.sizes(kept))
    for i, axis in enumerate(kept):
        x = B.of_size(b, "Einsum", x, i, sizes[axis])
    return Term(b, x, kept)
