"""LSTM, GRU and RNN, of the standard and with quantised weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ....ir.errors import UnsupportedOp
from ....ir.graph import Value
from ....ops import build as B
from ....ops.integer_product import int_mm
from ....ops.matmul import linear
from ....ops.recurrent import over_time
from ..known import Known
from ..rows import Call, Operand, row
from .quantised import MICROSOFT, dynamically_quantised

Function = Callable[[Value], Value]

#: The functions of gates, by lower-case name: the operator, and which of alpha and beta it takes.
_ACTIVATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "relu": ("Relu", ()), "tanh": ("Tanh", ()), "sigmoid": ("Sigmoid", ()), "softsign": ("Softsign", ()),
    "softplus": ("Softplus", ()), "leakyrelu": ("LeakyRelu", ("alpha",)), "elu": ("Elu", ("alpha",)),
    "thresholdedrelu": ("ThresholdedRelu", ("alpha",)), "hardsigmoid": ("HardSigmoid", ("alpha", "beta")),
}  # fmt: skip
STATE = 2  # the function of an LSTM's cell, which `clip` does not limit


@dataclass(frozen=True)
class Way:
    """One direction of a layer: the products of the states at one time, [gates of the step] -> sums with
    their bias; the functions of gates; the peepholes' weights, None without them."""

    call: Call
    recur: Sequence[Function]
    functions: Sequence[Function]
    peepholes: Sequence[Value] | None = None


Step = Callable[[Way, Value, "list[Value]"], "list[Value]"]


def _parts(call: Call, x: Value, n: int) -> list[Value]:
    axis = len(B.shape_of(x)) - 1
    size = B.divide(B.shape_of(x)[axis], n)
    return [B.take(call.b, x, axis, i * size, size) for i in range(n)]


def _lstm(way: Way, gates: Value, state: list[Value]) -> list[Value]:
    b, (hidden, cell) = way.call.b, state
    gate, new, out = way.functions
    i, o, f, c = _parts(way.call, B.pointwise(b, "add", gates, way.recur[0](hidden)), 4)

    def seeing(x: Value, cell: Value, at: int) -> Value:
        if way.peepholes is None:
            return x
        return B.pointwise(b, "add", x, B.pointwise(b, "mul", way.peepholes[at], cell))

    opened = gate(seeing(i, cell, 0))
    kept = (
        B.pointwise(b, "sub", 1.0, opened) if way.call.attr("input_forget", 0) else gate(seeing(f, cell, 2))
    )
    fresh = B.pointwise(b, "mul", opened, new(c))
    cell = B.pointwise(b, "add", B.pointwise(b, "mul", kept, cell), fresh)
    return [B.pointwise(b, "mul", gate(seeing(o, cell, 1)), out(cell)), cell]


def _gru(way: Way, gates: Value, state: list[Value]) -> list[Value]:
    b, (hidden,) = way.call.b, state
    gate, new = way.functions
    whole, last = way.recur
    z, r, h = _parts(way.call, gates, 3)
    z_own, r_own = _parts(way.call, whole(hidden), 2)
    update, reset = gate(B.pointwise(b, "add", z, z_own)), gate(B.pointwise(b, "add", r, r_own))
    if way.call.attr("linear_before_reset", 0):
        added = B.pointwise(b, "mul", reset, last(hidden))
    else:
        added = last(B.pointwise(b, "mul", reset, hidden))
    fresh = new(B.pointwise(b, "add", h, added))
    rest = B.pointwise(b, "mul", update, B.pointwise(b, "sub", hidden, fresh))
    return [B.pointwise(b, "add", fresh, rest)]


def _rnn(way: Way, gates: Value, state: list[Value]) -> list[Value]:
    return [way.functions[0](B.pointwise(way.call.b, "add", gates, way.recur[0](state[0])))]


@dataclass(frozen=True)
class Kind:
    """A recurrent operator: its step, the number of gates, the gates of each product of the state, the
    functions by default, the number of states."""

    step: Step
    gates: int
    products: tuple[int, ...]
    functions: tuple[str, ...]
    states: int = 1


KINDS = {
    "LSTM": Kind(_lstm, 4, (4,), ("Sigmoid", "Tanh", "Tanh"), 2),
    "GRU": Kind(_gru, 3, (2, 1), ("Sigmoid", "Tanh")),
    "RNN": Kind(_rnn, 1, (1,), ("Tanh",)),
}

#: (x, the first gate, how many gates) -> the product with a direction's weight.
Times = Callable[[Value, int, int], Value]


@row(*KINDS)
def _recurrent(call: Call) -> tuple[Value, ...]:
    def weight(i: int, way: int) -> Times:
        matrix = call.scope.value(_of_way(call, i, way))
        gates = KINDS[call.op].gates
        size = B.divide(call.shape(i)[1], gates)

        def times(x: Value, first: int, count: int) -> Value:
            is_whole = count == gates
            return linear(
                call.b, x, matrix if is_whole else B.take(call.b, matrix, 0, first * size, count * size)
            )

        return times

    return _layer(call, weight)


@row("DynamicQuantizeLSTM", domain=MICROSOFT)
def _quantised_lstm(call: Call) -> tuple[Value, ...]:
    """Its weights [directions, K, 4 * hidden] are bytes; inputs and states are quantised at run time."""
    scales = {1: 8, 2: 10}

    def weight(i: int, way: int) -> Times:
        matrix, scale = (call.scope.value(_of_way(call, at, way)) for at in (i, scales[i]))
        found = _of_way(call, scales[i] + 1, way)
        zero = found.items if isinstance(found, Known) else found

        def times(x: Value, first: int, count: int) -> Value:
            b = call.b
            q, factor, least = dynamically_quantised(call, x)
            sums = B.cast_to(b, int_mm(b, q, matrix, least, zero), "f32")
            return B.pointwise(b, "mul", sums, B.pointwise(b, "mul", factor, scale))

        return times

    return _layer(replace(call, op="LSTM", domain=""), weight)


def _of_way(call: Call, i: int, way: int) -> Operand:
    """Return the part of input `i` that belongs to a direction; known ones stay known."""
    found = call.input(i)
    if not isinstance(found, Known) or found.is_symbolic:
        return B.drop_axis(call.b, B.take(call.b, call.value(i), 0, way, 1), 0)
    name = f"{found.name}.{way}" if found.name else ""
    return Known(np.ascontiguousarray(found.items.reshape(found.items.shape or 1)[way]), found.dtype, name)


def _layer(call: Call, weight: Callable[[int, int], Times]) -> tuple[Value, ...]:
    """Return the results at all times and the last states. `weight(i, way)`: the products with input `i`."""
    b, kind, is_batch_first = call.b, KINDS[call.op], call.attr("layout", 0)
    x = B.permute(b, call.value(0), [1, 0, 2]) if is_batch_first else call.value(0)
    length, batch = B.shape_of(x)[:2]
    n_ways = {"forward": 1, "reverse": 1, "bidirectional": 2}[call.attr("direction", "forward")]
    hidden = call.attr("hidden_size") or call.shape(2)[-1]
    active = None
    if call.has(4):
        lengths = B.of_size(b, call.op, B.cast_to(b, call.value(4), "i64"), 0, batch)
        active = B.pointwise(b, "lt", B.iota(b, length, 0, 2), B.reshape(b, lengths, [1, batch]))
    results, finals = [], []
    for at in range(n_ways):
        way = _way(call, weight(2, at), at)
        gates = _with_bias(call, weight(1, at)(x, 0, kind.gates), at, 0, kind.gates)
        state = [_state(call, 5 + i, at, (batch, hidden), B.dtype_of(gates)) for i in range(kind.states)]
        reverse = at == 1 or call.attr("direction", "forward") == "reverse"
        step = partial(kind.step, way)
        made, last = over_time(b, gates, state, step, reverse, active, call.op)
        results.append(B.add_axis(b, made, 1))
        finals.append([B.add_axis(b, each, 0) for each in last])
    whole = B.concat(b, results, 1)
    if active is not None:
        whole = B.where(
            b, B.reshape(b, active, [length, 1, batch, 1]), whole, B.full(b, 0, B.dtype_of(whole))
        )
    states = [B.concat(b, list(each), 0) for each in zip(*finals, strict=True)]
    if not is_batch_first:
        return whole, *states
    return B.permute(b, whole, [2, 0, 1, 3]), *(B.permute(b, each, [1, 0, 2]) for each in states)


def _state(call: Call, i: int, way: int, shape: Sequence[Any], dtype: str) -> Value:
    """Return a direction's initial state: input `i`, else zeros."""
    b = call.b
    if not call.has(i):
        return B.full(b, 0, dtype, tuple(shape))
    whole = B.permute(b, call.value(i), [1, 0, 2]) if call.attr("layout", 0) else call.value(i)
    state = B.drop_axis(b, B.take(b, whole, 0, way, 1), 0)
    return B.of_size(b, call.op, B.of_size(b, call.op, state, 0, shape[0]), 1, shape[1])


def _with_bias(call: Call, sums: Value, way: int, first: int, count: int) -> Value:
    """Return sums of `count` gates plus their bias: that of the input's come first, then the state's."""
    if not call.has(3):
        return sums
    b, bias = call.b, call.scope.value(_of_way(call, 3, way))
    size = B.divide(B.shape_of(bias)[0], 2 * KINDS[call.op].gates)
    return B.pointwise(b, "add", sums, B.take(b, bias, 0, first * size, count * size))


def _way(call: Call, times: Times, at: int) -> Way:
    """Return what a step needs in direction `at`."""
    kind = KINDS[call.op]

    def recur(first: int, count: int) -> Function:
        return lambda x: _with_bias(call, times(x, first, count), at, kind.gates + first, count)

    starts = [sum(kind.products[:i]) for i in range(len(kind.products))]
    products = [recur(first, count) for first, count in zip(starts, kind.products, strict=True)]
    peepholes = _parts(call, call.scope.value(_of_way(call, 7, at)), 3) if call.has(7) else None
    return Way(call, products, _functions(call, at), peepholes)


def _functions(call: Call, way: int) -> list[Function]:
    """Return the functions of a direction's gates."""
    kind = KINDS[call.op]
    n = len(kind.functions)
    names = call.attr("activations") or [*kind.functions] * (way + 1)
    given = {which: list(call.attr(f"activation_{which}") or []) for which in ("alpha", "beta")}
    made: list[Function] = []
    for i, name in enumerate(names):
        name = name.decode() if isinstance(name, bytes) else name
        if name.lower() not in _ACTIVATIONS:
            known = ", ".join(op for op, _ in _ACTIVATIONS.values())
            raise UnsupportedOp(f"{call.op}: the activation {name!r} cannot be compiled; use one of {known}")
        op, takes = _ACTIVATIONS[name.lower()]
        settings = {which: given[which].pop(0) for which in takes if given[which]}
        made.append(_function(call, op, settings, None if i % n == STATE else call.attr("clip")))
    return made[way * n : (way + 1) * n]


def _function(call: Call, op: str, settings: dict[str, float], limit: float | None) -> Function:
    """Return an operator as a function, which first limits its operand to `limit` on both sides."""

    def apply(x: Value) -> Value:
        x = x if limit is None else call.aten("clamp", x, -limit, limit)
        return call.apply(op, [x], attributes=settings)

    return apply
