"""Sizes that are equal in every call of an operator, or made so by it, which its decomposition must know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ....ir.dims import DimExpr, floordiv, simplify
from ....ir.graph import Builder, Value
from ....ops import build as B
from ....ops.complex import Complex
from ..values.values import is_size


def tied(b: Builder, overload: str, args: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments of an operator with one expression for each size that they share."""
    return _TIED[overload](b, *args) if overload in _TIED else args


def _of_classes(b: Builder, x: Value, target: Value, *rest: Any) -> Sequence[Any]:
    """Return scores with the rows and positions of their targets."""
    scores, wanted = B.shape_of(x), B.shape_of(target)
    axes = range(len(scores)) if len(wanted) == len(scores) else [0, *range(2, len(scores))]
    for axis, size in zip(axes, wanted, strict=False):
        x = B.of_matching_size(b, "cross_entropy_loss", x, axis, size)
    return x, target, *rest


def _transformed(is_half: bool, b: Builder, x: Value | Complex, n: Any, dim: Any, norm: Any) -> Sequence[Any]:
    """Return the arguments of a Fourier transform, of which the tensor is cut or padded to `n` along `dim`;
    `is_half`: to half of the last axis, and its middle."""
    rank = len(B.shape_of(x))
    lengths = list(n) if isinstance(n, list | tuple) else [] if n is None else [n]
    axes = (
        range(rank - len(lengths), rank) if dim is None else dim if isinstance(dim, list | tuple) else [dim]
    )
    for axis, length in zip(axes, lengths, strict=False):
        if is_half and axis == axes[-1]:
            length = simplify(floordiv(length, 2) + 1) if _is_length(length) else length
        if _is_length(length) and -rank <= axis < rank:
            x = _fitted(b, x, axis % rank, length)
    return x, n, dim, norm


def _is_length(n: Any) -> bool:
    return is_size(n) or (isinstance(n, int) and n > 0)


def _fitted(b: Builder, x: Value | Complex, axis: int, size: DimExpr) -> Value | Complex:
    """Return a tensor whose axis, of any size, is cut or padded with zeros."""
    return _of_parts(x, partial(_fitted_part, b, axis=axis, size=size))


def _of_parts(x: Value | Complex, made: Callable[..., Value]) -> Value | Complex:
    """Return what is made of a tensor, or of both parts of a complex one."""
    return Complex(made(x=x.real), made(x=x.imaginary)) if isinstance(x, Complex) else made(x=x)


def _fitted_part(b: Builder, x: Value, axis: int, size: DimExpr) -> Value:
    shape = B.shape_of(x)
    if B.is_known(shape[axis] - size):
        return x
    zeros = B.full(b, 0, B.dtype_of(x), (*shape[:axis], size, *shape[axis + 1 :]))
    return B.take(b, B.concat(b, [x, zeros], axis), axis, 0, size)


_TIED: dict[str, Callable[..., Sequence[Any]]] = {
    "aten.cross_entropy_loss.default": _of_classes,
    **{
        f"aten.fft_{kind}{axes}.default": partial(_transformed, kind in ("irfft", "hfft"))
        for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
        for axes in ("", "2", "n")
    },
}
