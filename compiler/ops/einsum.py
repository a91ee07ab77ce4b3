"""Einsum: sums of products over named axes, as matrix products of two operands at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations
from typing import Any

from ..ir.dims import DimExpr, product
from ..ir.errors import ShapeError
from ..ir.graph import Builder, Value
from ..ir.promotion import to_sum
from . import build as B
from . import matmul
from .complex import Complex, Converter, Operand, imaginary_of, real_of
from .declare import Composite, Op


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
        x = B.cast_to(self.b, self.x, to_sum(B.dtype_of(self.x)))
        made = B.in_f32(self.b, lambda v: B.reduce(self.b, "reduce_sum", v, axes, False), x)
        return Term(self.b, made, [axis for axis in self.axes if axis in kept])

    def without_repeats(self) -> Term:
        """Return the diagonals of axes of one name."""
        b, x, axes = self.b, self.x, list(self.axes)
        for name in dict.fromkeys(axes):
            while axes.count(name) > 1:
                first = axes.index(name)
                second = axes.index(name, first + 1)
                size = B.shape_of(x)[first]
                x = B.of_size(b, "einsum", x, second, size)
                last = [*(i for i in range(len(axes)) if i not in (first, second)), first, second]
                x = B.diagonal(b, B.permute(b, x, last), 0, 0, size)
                axes = [*(axes[i] for i in last[:-2]), name]
        return Term(b, x, axes)


def _multiplied(one: Term, other: Term, needed: Sequence[str]) -> Term:
    """Return the product of two terms, summed over the axes that nothing else needs."""
    b = one.b
    one = one.summed([axis for axis in one.axes if axis in other.axes or axis in needed])
    other = other.summed([axis for axis in other.axes if axis in one.axes or axis in needed])
    shared = [axis for axis in one.axes if axis in other.axes]
    batch, inner = ([axis for axis in shared if (axis in needed) is wanted] for wanted in (True, False))
    left, right = ([axis for axis in each.axes if axis not in shared] for each in (one, other))
    sizes, depth = one.sizes(batch), product(one.sizes(inner))
    rows, columns = product(one.sizes(left)), product(other.sizes(right))
    x = B.reshape(b, one.ordered([*batch, *left, *inner]), [*sizes, rows, depth])
    y = B.reshape(b, other.ordered([*batch, *inner, *right]), [*sizes, depth, columns])
    made = matmul.product(b, x, y) if inner else B.pointwise(b, "mul", x, y)
    sizes = [*sizes, *one.sizes(left), *other.sizes(right)]
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
            raise ShapeError(f"einsum: the equation {equation!r} does not fit operands of these ranks")
        return [*before, *(str(most - i) for i in range(width, 0, -1)), *after]

    operands = [names(text, width) for text, width in zip(texts, widths, strict=True)]
    if arrow:
        return operands, names(right, most if "..." in right else 0)
    every = [axis for axes in operands for axis in axes]
    rest = sorted(axis for axis in set(every) if axis.isalpha() and every.count(axis) == 1)
    return operands, [*(str(i) for i in range(most)), *rest]


def einsum(b: Builder, equation: str, operands: Sequence[Value], *, path: Any = None) -> Value:
    """torch.einsum; the operands are multiplied from left to right, whatever `path` says."""
    axes, wanted = _parsed(equation, operands)
    terms = [Term(b, x, names).without_repeats() for x, names in zip(operands, axes, strict=True)]
    sizes: dict[str, DimExpr] = {}
    for term in terms:
        for axis, size in zip(term.axes, term.sizes(term.axes), strict=True):
            if B.is_one(found := sizes.get(axis, 1)) or B.is_known(size) and not B.is_known(found):
                sizes[axis] = found if B.is_one(size) else size
    terms = [_fitted(term, sizes) for term in terms]
    made = terms[0]
    for i, other in enumerate(terms[1:], 2):
        later = [axis for term in terms[i:] for axis in term.axes]
        made = _multiplied(made, other, [*wanted, *later])
    return made.summed(wanted).ordered(wanted)


def permutation(equation: str, operands: Sequence[Operand]) -> list[int] | None:
    """Return the order of the axes of the only operand, of which PyTorch gives a view; None if the result is
    computed."""
    (x, *others) = operands
    if others or not isinstance(x, Value):
        return None
    (axes,), wanted = _parsed(equation, [x])
    return [axes.index(axis) for axis in wanted] if sorted(axes) == sorted(set(wanted)) else None


def _fitted(term: Term, sizes: dict[str, DimExpr]) -> Term:
    """Return a term without axes of size 1 that are longer elsewhere; the others have the common sizes."""
    b, x = term.b, term.x
    kept = [axis for axis in term.axes if not B.is_one(term.size(axis)) or B.is_one(sizes[axis])]
    x = term.ordered([*(axis for axis in term.axes if axis not in kept), *kept])
    x = B.reshape(b, x, term.sizes(kept))
    for i, axis in enumerate(kept):
        x = B.of_size(b, "einsum", x, i, sizes[axis])
    return Term(b, x, kept)


def complex_einsum(b: Builder, equation: str, operands: Sequence[Operand], *, path: Any = None) -> Complex:
    """Return the sum of the products of one part of each operand: with n imaginary parts times i^n."""
    made: list[Value | None] = [None, None]
    parts = [
        [(0, real_of(x)), *([(1, imaginary_of(b, x))] if isinstance(x, Complex) else [])] for x in operands
    ]
    for chosen in combinations(*parts):
        n = sum(power for power, _ in chosen)
        term, sum_ = einsum(b, equation, [x for _, x in chosen]), made[n % 2]
        if sum_ is None:  # in both parts the first term is positive
            made[n % 2] = term
        else:
            made[n % 2] = B.pointwise(b, "sub" if n % 4 > 1 else "add", sum_, term)
    real, imaginary = made
    assert real is not None and imaginary is not None
    return Complex(real, imaginary)


OPS: tuple[Op, ...] = ()
COMPOSITES: tuple[Composite, ...] = (Composite(("aten.einsum.default",), einsum),)
ROWS: dict[str, Converter] = {"aten.einsum.default": complex_einsum}
