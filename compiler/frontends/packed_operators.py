"""Operators for packed sequences, which replace PyTorch's in traced models (see `packed`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .packed_functions import PACK, PAD
from .recurrent_operators import last_states

_VF: Any = torch._VF


@torch.library.custom_op("shapevm::pack_padded", mutates_args=())
def pack_padded(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """The rows of padded sequences time by time, and their number at each time."""
    return PACK(x, lengths, batch_first)


@pack_padded.register_fake
def _(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    context = torch.library.get_ctx()
    n_rows, steps = context.new_dynamic_size(), context.new_dynamic_size()
    torch._check(steps <= x.shape[1 if batch_first else 0])
    return x.new_empty(n_rows, *x.shape[2:]), lengths.new_empty(steps, dtype=torch.int64)


@torch.library.custom_op("shapevm::pad_packed", mutates_args=())
def pad_packed(
    rows: Tensor, batch_sizes: Tensor, batch: int, batch_first: bool, value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """Packed sequences as padded ones, `batch` of them, and their lengths."""
    return PAD(rows, batch_sizes, batch_first, value, total_length)


@pad_packed.register_fake
def _(
    rows: Tensor, batch_sizes: Tensor, batch: int, batch_first: bool, value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    axes = (batch, total_length) if batch_first else (total_length, batch)
    return rows.new_empty(*axes, *rows.shape[1:]), batch_sizes.new_empty(batch, dtype=torch.int64)


@torch.library.custom_op("shapevm::packed_layers", mutates_args=())
def packed_layers(
    kind: str,
    rows: Tensor,
    batch_sizes: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    n_layers: int,
    bidirectional: bool,
) -> list[Tensor]:
    """Recurrent layers over packed sequences: their results, row by row, and the last states."""
    given: Any = list(states) if kind == "lstm" else states[0]
    settings = (has_biases, n_layers, 0.0, False, bidirectional)
    return list(getattr(_VF, kind)(rows, batch_sizes, given, list(params), *settings))


@packed_layers.register_fake
def _(
    kind: str,
    rows: Tensor,
    batch_sizes: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    n_layers: int,
    bidirectional: bool,
) -> list[Tensor]:
    width = params[1].shape[1] * (2 if bidirectional else 1)
    made = rows.new_empty(rows.shape[0], width)
    return [made, *last_states(states, params, n_layers, bidirectional)]
