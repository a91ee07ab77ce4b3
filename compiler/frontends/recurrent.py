"""Recurrent layers of any length: while a model is exported, LSTM, GRU and RNN layers are scans over time.

torch.export would unroll them, at the one length of the example. Terms that depend only on the input are
computed for all times at once, before the scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan_op
from torch.nn.functional import linear

#: (gates of one time's input, state, weights) -> the new state, the layer's result first.
Step = Callable[[Tensor, list[Tensor], list[Tensor | None]], list[Tensor]]


def _lstm_step(gates: Tensor, state: list[Tensor], weights: list[Tensor | None]) -> list[Tensor]:
    (hidden, cell), (recurrent, bias, projection) = state, weights
    added = gates + linear(hidden, recurrent, bias)  # type: ignore[arg-type]
    i, f, g, o = added.chunk(4, -1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    hidden = o.sigmoid() * cell.tanh()
    return [hidden if projection is None else linear(hidden, projection), cell]


def _gru_step(gates: Tensor, state: list[Tensor], weights: list[Tensor | None]) -> list[Tensor]:
    (hidden,), (recurrent, bias, _) = state, weights
    ours = gates.chunk(3, -1)
    theirs = linear(hidden, recurrent, bias).chunk(3, -1)  # type: ignore[arg-type]
    reset, update = ((ours[i] + theirs[i]).sigmoid() for i in (0, 1))
    new = (ours[2] + reset * theirs[2]).tanh()
    return [new + update * (hidden - new)]


def _rnn_step(function: Callable[[Tensor], Tensor]) -> Step:
    def step(gates: Tensor, state: list[Tensor], weights: list[Tensor | None]) -> list[Tensor]:
        return [function(gates + linear(state[0], weights[0], weights[1]))]  # type: ignore[arg-type]

    return step


_STEPS: dict[str, Step] = {
    "lstm": _lstm_step,
    "gru": _gru_step,
    "rnn_tanh": _rnn_step(torch.tanh),
    "rnn_relu": _rnn_step(torch.relu),
}


KINDS = tuple(_STEPS)


@contextmanager
def layers_are_scans() -> Iterator[None]:
    """Make recurrent layers scans, packed sequences and dropout apart."""
    vf = torch._VF
    originals = {name: getattr(vf, name) for name in _STEPS}
    try:
        for name, original in originals.items():
            setattr(vf, name, _layers(name, original))
        yield
    finally:
        for name, original in originals.items():
            setattr(vf, name, original)


def _layers(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the replacement of torch's function of that name, with the same arguments."""

    def run(*args: Any) -> Any:
        x, hx, params, has_biases, n_layers, dropout, train, both_ways, *rest = args
        is_packed = not isinstance(has_biases, bool)  # its arguments are others
        if is_packed or (train and dropout):
            return original(*args)
        (batch_first,) = rest
        states = list(hx) if name == "lstm" else [hx]
        result, finals = _stack(
            _STEPS[name],
            x.transpose(0, 1) if batch_first else x,
            states,
            params,
            has_biases,
            n_layers,
            both_ways,
        )
        result = result.transpose(0, 1) if batch_first else result
        return (result, *finals)

    return run


def _stack(
    step: Step,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    n_layers: int,
    both_ways: bool,
) -> tuple[Tensor, list[Tensor]]:
    """Return the last layer's results at all times, and the last states of all layers."""
    n_ways = 2 if both_ways else 1
    per_layer = len(params) // (n_layers * n_ways)
    finals: list[list[Tensor]] = [[] for _ in states]
    for layer in range(n_layers):
        results = []
        for way in range(n_ways):
            at = layer * n_ways + way
            weights = list(params[at * per_layer : (at + 1) * per_layer])
            made, last = _one(step, x, [state[at] for state in states], weights, has_biases, way == 1)
            results.append(made)
            for kept, value in zip(finals, last, strict=True):
                kept.append(value)
        x = torch.cat(results, -1) if both_ways else results[0]
    return x, [torch.stack(kept) for kept in finals]


def _one(
    step: Step, x: Tensor, state: list[Tensor], weights: list[Tensor], has_biases: bool, reverse: bool
) -> tuple[Tensor, list[Tensor]]:
    """Return one layer's results at all times in one direction, and its last state."""
    biases: list[Tensor | None] = list(weights[2:4]) if has_biases else [None, None]
    projection = weights[4 if has_biases else 2] if len(weights) in (3, 5) else None
    gates = linear(x, weights[0], biases[0])

    # The operator itself, not torch's `scan`: that one compiles its function with dynamo, which first
    # evaluates guards of earlier models and so fixes the sizes of this one.
    times = gates.flip([0]) if reverse else gates
    given = [weight for weight in (weights[1], biases[1], projection) if weight is not None]

    def combine(*values: Tensor) -> list[Tensor]:
        held, row, rest = list(values[: len(state)]), values[len(state)], iter(values[len(state) + 1 :])
        recurrent = next(rest)
        bias = next(rest) if biases[1] is not None else None
        made = step(row, held, [recurrent, bias, None if projection is None else next(rest)])
        return [*made, made[0].clone()]

    *last, results = scan_op(combine, [value.clone() for value in state], [times], tuple(given))
    return results.flip([0]) if reverse else results, list(last)
