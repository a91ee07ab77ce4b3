"""Recurrent layers as one operator, which `shapevm.pytorch.dynamo_layers` has Dynamo call.

It is a separate file because registering an operator takes 20 ms: torch looks for its source among all
modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("shapevm::layers", mutates_args=())
def layers(
    kind: str,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    n_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> list[Tensor]:
    """Recurrent layers, one operator for all: their results at all times, and the last states."""
    given: Any = list(states) if kind == "lstm" else states[0]
    settings = (has_biases, n_layers, 0.0, False, bidirectional, batch_first)
    return list(getattr(torch._VF, kind)(x, given, list(params), *settings))


@layers.register_fake
def _(
    kind: str,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    n_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> list[Tensor]:
    width = params[1].shape[1] * (2 if bidirectional else 1)
    return [x.new_empty(*x.shape[:2], width), *last_states(states, params, n_layers, bidirectional)]


def last_states(
    states: Sequence[Tensor], params: Sequence[Tensor], n_layers: int, bidirectional: bool
) -> list[Tensor]:
    """Return empty states of the weights' sizes."""
    n, recurrent = n_layers * (2 if bidirectional else 1), params[1]
    widths = (recurrent.shape[1], recurrent.shape[0] // 4)  # a second state is an LSTM's
    return [x.new_empty(n, x.shape[1], width) for x, width in zip(states, widths, strict=False)]
