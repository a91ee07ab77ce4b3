"""LSTM, GRU and RNN layers, one whole PyTorch operator each: loops over time. Terms that depend only on the
input are computed for all times at once, before the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..ir.dims import DimExpr
from ..ir.errors import UnsupportedOp
from ..ir.graph import Builder, Value
from . import build as B
from .declare import Composite, Op
from .loops import for_each, row_of, with_row
from .matmul import linear
from .random import dropout as drop

#: (builder, gates of one time's input, state, weights) -> the new state, the layer's result first.
Step = Callable[[Builder, Value, list[Value], "list[Value | None]"], list[Value]]


@dataclass(frozen=True)
class Packing:
    """The map of packed rows to times and sequences.

    `active` [times, sequences]: whether a sequence is active, else it keeps its state; `spread`: from rows to
    times and sequences, arbitrary where inactive; `collect`: back.
    """

    active: Value
    spread: Callable[[Value], Value]
    collect: Callable[[Value], Value]


def _parts(b: Builder, x: Value, n: int) -> list[Value]:
    """Return the n equal parts of the last axis."""
    axis, size = len(B.shape_of(x)) - 1, B.divide(B.shape_of(x)[-1], n)
    return [B.take(b, x, axis, i * size, size) for i in range(n)]


def _lstm(b: Builder, gates: Value, state: list[Value], weights: list[Value | None]) -> list[Value]:
    (hidden, cell), (recurrent, bias, projection) = state, weights
    assert recurrent is not None
    added = B.pointwise(b, "add", gates, linear(b, hidden, recurrent, bias))
    i, f, g, o = _parts(b, added, 4)
    i, f, o = (B.pointwise(b, "sigmoid", x) for x in (i, f, o))
    new = B.pointwise(b, "mul", i, B.pointwise(b, "tanh", g))
    cell = B.pointwise(b, "add", B.pointwise(b, "mul", f, cell), new)
    hidden = B.pointwise(b, "mul", o, B.pointwise(b, "tanh", cell))
    return [hidden if projection is None else linear(b, hidden, projection), cell]


def _gru(b: Builder, gates: Value, state: list[Value], weights: list[Value | None]) -> list[Value]:
    (hidden,), (recurrent, bias, _) = state, weights
    assert recurrent is not None
    ours, theirs = _parts(b, gates, 3), _parts(b, linear(b, hidden, recurrent, bias), 3)
    reset, update = (B.pointwise(b, "sigmoid", B.pointwise(b, "add", ours[i], theirs[i])) for i in (0, 1))
    new = B.pointwise(b, "add", ours[2], B.pointwise(b, "mul", reset, theirs[2]))
    new = B.pointwise(b, "tanh", new)
    rest = B.pointwise(b, "mul", update, B.pointwise(b, "sub", hidden, new))
    return [B.pointwise(b, "add", new, rest)]


def _rnn(op: str) -> Step:
    def step(b: Builder, gates: Value, state: list[Value], weights: list[Value | None]) -> list[Value]:
        assert weights[0] is not None
        added = B.pointwise(b, "add", gates, linear(b, state[0], weights[0], weights[1]))
        return [B.pointwise(b, op, added)]

    return step


def layers(
    name: str,
    b: Builder,
    x: Value,
    hx: Value | Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    n_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    packing: Packing | None = None,
) -> tuple[Value, ...]:
    """Return the last layer's results at all times, and the last states of all layers. With `packing` x and
    the results are rows."""
    ways = 2 if bidirectional else 1
    x = B.permute(b, x, (1, 0, 2)) if batch_first else x
    batch = B.shape_of(x if packing is None else packing.active)[1]
    states = _states(name, b, hx, batch, n_layers * ways, params)
    per_layer = len(params) // (n_layers * ways)
    finals: list[list[Value]] = [[] for _ in states]
    for layer in range(n_layers):
        results = []
        for way in range(ways):
            at = layer * ways + way
            weights = list(params[at * per_layer : (at + 1) * per_layer])
            first = [B.drop_axis(b, B.take(b, state, 0, at, 1), 0) for state in states]
            made, last = _one(name, b, x, first, weights, has_biases, way == 1, packing)
            results.append(made)
            for kept, value in zip(finals, last, strict=True):
                kept.append(B.add_axis(b, value, 0))
        x = B.concat(b, results, len(B.shape_of(x)) - 1)
        if train and dropout and layer + 1 < n_layers:
            x = drop(b, x, dropout, True)
    x = B.permute(b, x, (1, 0, 2)) if batch_first else x
    return (x, *(B.concat(b, kept, 0) for kept in finals))


def _states(
    name: str,
    b: Builder,
    hx: Value | Sequence[Value],
    batch: DimExpr,
    n_layers: int,
    params: Sequence[Value],
) -> list[Value]:
    """Return the initial states, of the weights' sizes."""
    states, recurrent = [hx] if isinstance(hx, Value) else list(hx), B.shape_of(params[1])
    widths = [recurrent[1], B.divide(recurrent[0], 4) if name == "aten.lstm.input" else recurrent[1]]
    for axis, sizes in enumerate(([n_layers] * 2, [batch] * 2, widths)):
        states = [B.of_size(b, name, x, axis, size) for x, size in zip(states, sizes, strict=False)]
    return states


def _one(
    name: str,
    b: Builder,
    x: Value,
    state: list[Value],
    weights: list[Value],
    has_biases: bool,
    reverse: bool,
    packing: Packing | None = None,
) -> tuple[Value, list[Value]]:
    """Return one layer's results at all times in one direction, and its last state."""
    biases: list[Value | None] = list(weights[2:4]) if has_biases else [None, None]
    projection = weights[4 if has_biases else 2] if len(weights) in (3, 5) else None
    gates = linear(b, x, weights[0], biases[0])
    gates = gates if packing is None else packing.spread(gates)
    active = None if packing is None else packing.active

    def step(gates: Value, state: list[Value]) -> list[Value]:
        return STEPS[name](b, gates, state, [weights[1], biases[1], projection])

    made, last = over_time(b, gates, state, step, reverse, active, name)
    return made if packing is None else packing.collect(made), last


def over_time(
    b: Builder,
    gates: Value,
    state: list[Value],
    step: Callable[[Value, list[Value]], list[Value]],
    reverse: bool,
    active: Value | None,
    name: str,
) -> tuple[Value, list[Value]]:
    """Return the results, the first of the states, at all times, and the last states. `gates` [times, ..]:
    what `step` reads of the input at one time. `active` [times, sequences]: see Packing."""
    gates = B.flip(b, gates, [0]) if reverse else gates
    if active is not None:
        active = B.add_axis(b, B.flip(b, active, [0]) if reverse else active, 2)

    def run(row: Value, carried: list[Value]) -> list[Value]:
        *now, whole = carried
        new = step(row_of(b, gates, row), now)
        if active is not None:
            is_there = row_of(b, active, row)
            new = [B.where(b, is_there, made, old) for made, old in zip(new, now, strict=True)]
        return [*new, with_row(b, whole, new[0], row)]

    length = B.shape_of(gates)[0]
    results = B.full(b, 0, B.dtype_of(state[0]), (length, *B.shape_of(state[0])))
    *last, made = for_each(b, length, [*state, results], run, name)
    return B.flip(b, made, [0]) if reverse else made, last


STEPS: dict[str, Step] = {
    "aten.lstm.input": _lstm,
    "aten.gru.input": _gru,
    "aten.rnn_tanh.input": _rnn("tanh"),
    "aten.rnn_relu.input": _rnn("relu"),
}
LSTM = 2  # torch's number of that mode


def mkldnn_rnn_layer(b: Builder, x: Value, *rest: Any) -> tuple[Value | None, ...]:
    """One layer of an LSTM in one direction, as in torch.compile without gradients."""
    (hidden, cell), (reverse, _, mode, _, _, has_biases, _, batch_first, _) = rest[4:6], rest[6:]
    if mode != LSTM or batch_first:
        raise UnsupportedOp("mkldnn_rnn_layer: only an LSTM whose times come first has a lowering")
    state = [B.reshape(b, each, B.shape_of(each)[-2:]) for each in (hidden, cell)]
    weights = list(rest[: 4 if has_biases else 2])  # without biases there are unused tensors
    made, last = _one("aten.lstm.input", b, x, state, weights, has_biases, reverse)
    last = [B.reshape(b, new, B.shape_of(old)) for new, old in zip(last, (hidden, cell), strict=True)]
    return made, *last, None


def _layers_of_kind(
    b: Builder,
    kind: str,
    x: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    n_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, ...]:
    """shapevm::layers."""
    name = f"aten.{kind}.input"
    settings = (has_biases, n_layers, 0.0, False, bidirectional, batch_first)
    return layers(name, b, x, states, params, *settings)


OPS: tuple[Op, ...] = ()
COMPOSITES: tuple[Composite, ...] = (
    *(Composite((name,), partial(layers, name)) for name in STEPS),
    Composite(("aten.mkldnn_rnn_layer.default",), mkldnn_rnn_layer),
    Composite(("shapevm.layers.default",), _layers_of_kind),
)
