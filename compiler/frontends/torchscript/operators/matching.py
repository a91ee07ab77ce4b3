"""The sizes that an operator's arguments must share: known before it is imported, they become part of the
contract of a program whose sizes are all open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....ir.dims import DimExpr
from ....ir.graph import Value
from ....ops import build as B

Pairs = Iterator[tuple[DimExpr, DimExpr]]


def pairs(overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Pairs:
    """Yield (size, size) for all that must be equal."""
    rule = _RULES.get(overload)
    if rule is _attention:
        yield from _attention(args, kwargs.get("enable_gqa") is True)
    elif rule is not None:
        yield from rule(args)


def _linear(args: Sequence[Any]) -> Pairs:
    yield B.shape_of(args[0])[-1], B.shape_of(args[1])[-1]


def _addmm(args: Sequence[Any]) -> Pairs:
    yield from _matmul(args[1:])


def _matmul(args: Sequence[Any]) -> Pairs:
    x, y = B.shape_of(args[0]), B.shape_of(args[1])
    if x and y:
        yield x[-1], y[-2] if len(y) > 1 else y[-1]
    yield from broadcast(x[:-2], y[:-2])


def _conv(groups: int | None) -> Callable[[Sequence[Any]], Pairs]:
    def rule(args: Sequence[Any]) -> Pairs:
        x, weight = B.shape_of(args[0]), B.shape_of(args[1])
        n_groups = 1 if groups is None or len(args) <= groups else args[groups]
        channels = x[1] if len(x) == len(weight) else x[0]
        yield channels, weight[1] * n_groups
        if len(args) > 2 and isinstance(args[2], Value):
            yield weight[0], B.shape_of(args[2])[0]

    return rule


def _convolution(args: Sequence[Any]) -> Pairs:
    """For traced programs: an argument selects transposition."""
    yield from (_transposed if args[6] is True else _conv(8))(args)


def _transposed(args: Sequence[Any]) -> Pairs:
    x, weight = B.shape_of(args[0]), B.shape_of(args[1])
    yield (x[1] if len(x) == len(weight) else x[0]), weight[0]


def _channels(args: Sequence[Any]) -> Pairs:
    for other in args[1:5]:
        if isinstance(other, Value):
            yield from zip(B.shape_of(args[0])[1:2], B.shape_of(other), strict=False)


def _layer_norm(args: Sequence[Any]) -> Pairs:
    yield from zip(B.shape_of(args[0])[-len(args[1]) :], args[1], strict=True)


def _group_norm(args: Sequence[Any]) -> Pairs:
    for other in args[2:4]:
        if isinstance(other, Value):
            yield from zip(B.shape_of(args[0])[1:2], B.shape_of(other), strict=False)


def _instance_norm(args: Sequence[Any]) -> Pairs:
    if len(B.shape_of(args[0])) > 1:
        yield from _channels(args)


def _cell(args: Sequence[Any]) -> Pairs:
    x, state, *weights = args
    states = state if isinstance(state, list) else [state]
    yield from _linear((x, weights[0]))
    yield from _linear((states[0], weights[1]))
    yield from zip(B.shape_of(x)[:-1], B.shape_of(states[0])[:-1], strict=False)
    yield from zip(B.shape_of(states[0]), B.shape_of(states[-1]), strict=False)


def _take_along(args: Sequence[Any]) -> Pairs:
    if len(args) > 2 and args[2] is not None:
        x, indices = map(B.shape_of, args[:2])
        axis = B.axis_of("take_along_dim", args[2], len(x))
        for i, (one, other) in enumerate(zip(x, indices, strict=False)):
            yield from broadcast([one], [other]) if i != axis else ()


def _attention(args: Sequence[Any], enable_gqa: bool = False) -> Pairs:
    query, key, value = map(B.shape_of, args[:3])
    yield query[-1], key[-1]
    yield key[-2], value[-2]
    own = 3 if enable_gqa else 2  # axes of q at the end that k and v need not have
    yield from broadcast(key[:-2], value[:-2])
    yield from broadcast(query[:-own], key[:-own])
    yield from broadcast(query[:-own], value[:-own])
    if len(args) > 3 and isinstance(args[3], Value):
        yield from broadcast((*query[:-1], key[-2]), B.shape_of(args[3]))


def broadcast(one: Sequence[DimExpr], other: Sequence[DimExpr]) -> Pairs:
    """Yield the sizes that must be equal if neither is 1; for others, those that are 1."""
    for a, b in zip(one[::-1], other[::-1], strict=False):
        if a != b and not B.is_one(a) and not B.is_one(b):
            yield from ((a, b), (a, 1), (b, 1))


def _of_shapes(args: Sequence[Any]) -> Pairs:
    yield from broadcast(*(B.shape_of(x) for x in args[:2]))


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
    "aten.conv3d.padding": _conv(6),
    "aten._convolution_mode.default": _conv(6),
    "aten._convolution.default": _convolution,
    "aten.convolution.default": _convolution,
    "aten.conv_transpose1d.default": _transposed,
    "aten.conv_transpose2d.input": _transposed,
    "aten.conv_transpose3d.input": _transposed,
    **dict.fromkeys(
        (
            "aten.batch_norm.default",
            "aten._native_batch_norm_legit.no_stats",
            "aten._native_batch_norm_legit_no_training.default",
            "aten._native_batch_norm_legit_functional.default",
            "aten._batch_norm_with_update_functional.default",
        ),
        _channels,
    ),
    "aten.instance_norm.default": _instance_norm,
    "aten.lstm_cell.default": _cell,
    "aten.gru_cell.default": _cell,
    "aten.rnn_tanh_cell.default": _cell,
    "aten.rnn_relu_cell.default": _cell,
    "aten.take_along_dim.default": _take_along,
    "aten.cosine_similarity.default": _of_shapes,
    "aten.group_norm.default": _group_norm,
    "aten.layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _layer_norm,
    "aten.scaled_dot_product_attention.default": _attention,
}
