"""Which sizes an operator's arguments must have in common: known before it is imported, they become part
of the contract of a program whose sizes are all open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....ir.dims import DimExpr
from ....ir.graph import Value
from ....ops import build as B

Pairs = Iterator[tuple[DimExpr, DimExpr]]


def pairs(overload: str, args: Sequence[Any]) -> Pairs:
    """Yield (size, size) for all that must be equal."""
    rule = _RULES.get(overload)
    if rule is not None:
        yield from rule(args)


def _linear(args: Sequence[Any]) -> Pairs:
    yield B.shape_of(args[0])[-1], B.shape_of(args[1])[-1]


def _addmm(args: Sequence[Any]) -> Pairs:
    yield from _matmul(args[1:])


def _matmul(args: Sequence[Any]) -> Pairs:
    x, y = B.shape_of(args[0]), B.shape_of(args[1])
    if x and y:
        yield x[-1], y[-2] if len(y) > 1 else y[-1]
    for one, other in zip(x[:-2][::-1], y[:-2][::-1], strict=False):
        if not B.is_one(one) and not B.is_one(other):
            yield one, other


def _conv(groups: int | None) -> Callable[[Sequence[Any]], Pairs]:
    def rule(args: Sequence[Any]) -> Pairs:
        x, weight = B.shape_of(args[0]), B.shape_of(args[1])
        n_groups = 1 if groups is None or len(args) <= groups else args[groups]
        channels = x[1] if len(x) == len(weight) else x[0]
        yield channels, weight[1] * n_groups

    return rule


def _transposed(args: Sequence[Any]) -> Pairs:
    x, weight = B.shape_of(args[0]), B.shape_of(args[1])
    yield (x[1] if len(x) == len(weight) else x[0]), weight[0]


def _channels(args: Sequence[Any]) -> Pairs:
    for other in args[1:5]:
        if isinstance(other, Value):
            yield B.shape_of(args[0])[1], B.shape_of(other)[0]


def _layer_norm(args: Sequence[Any]) -> Pairs:
    yield from zip(B.shape_of(args[0])[-len(args[1]) :], args[1], strict=True)


def _group_norm(args: Sequence[Any]) -> Pairs:
    for other in args[2:4]:
        if isinstance(other, Value):
            yield B.shape_of(args[0])[1], B.shape_of(other)[0]


def _attention(args: Sequence[Any]) -> Pairs:
    query, key, value = map(B.shape_of, args[:3])
    yield query[-1], key[-1]
    yield key[-2], value[-2]
    yield from zip(query[:-2], key[:-2], strict=False)


_RULES: dict[str, Callable[[Sequence[Any]], Pairs]] = {
    "aten.linear.default": _linear,
    "aten.addmm.default": _addmm,
    "aten.baddbmm.default": _addmm,
    "aten.matmul.default": _matmul,
    "aten.mm.default": _matmul,
    "aten.mv.default": _matmul,
    "aten.dot.default": _matmul,
    "aten.addmv.default": _addmm,
    "aten.bmm.default": _matmul,
    "aten.conv1d.default": _conv(6),
    "aten.conv2d.default": _conv(6),
    "aten.conv3d.default": _conv(6),
    "aten.conv1d.padding": _conv(6),
    "aten.conv2d.padding": _conv(6),
    "aten._convolution.default": _conv(8),
    "aten.convolution.default": _conv(8),
    "aten.conv_transpose1d.default": _transposed,
    "aten.conv_transpose2d.input": _transposed,
    "aten.batch_norm.default": _channels,
    "aten.group_norm.default": _group_norm,
    "aten.layer_norm.default": _layer_norm,
    "aten.scaled_dot_product_attention.default": _attention,
}
