"""Packed sequences under torch.compile: functions that Dynamo traces in place of PyTorch's.

Dynamo traces neither `pack_padded_sequence` nor `pad_packed_sequence`, nor recurrent layers between them.
The functions here do the same with operators of our own (`compiler.frontends.packed_operators`). A packed
sequence keeps the number of its sequences in an attribute, so that last states have the batch's size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence

from ..compiler.frontends.packed import run_layer


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """torch.nn.utils.rnn.pack_padded_sequence."""
    axis = 0 if batch_first else 1
    known = isinstance(lengths, Tensor)
    lengths = lengths.to(dtype=torch.int64) if known else torch.as_tensor(lengths, dtype=torch.int64)
    order = back = None
    if not enforce_sorted:
        lengths, order = torch.sort(lengths, descending=True)
        input, back = input.index_select(axis, order), order.argsort()
    rows, batch_sizes = torch.ops.shapevm.pack_padded(input, lengths, batch_first)
    packed: Any = PackedSequence(rows, batch_sizes, order, back)
    packed.n_sequences = input.shape[axis]
    return packed


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """torch.nn.utils.rnn.pad_packed_sequence."""
    rows, batch_sizes, _, back = sequence
    length = batch_sizes.size(0) if total_length is None else total_length
    settings = (_batch_of(sequence), batch_first, float(padding_value), length)
    padded, lengths = torch.ops.shapevm.pad_packed(rows, batch_sizes, *settings)
    if back is None:
        return padded, lengths
    return padded.index_select(0 if batch_first else 1, back), lengths[back]


def forward(layer: nn.RNNBase, input: PackedSequence, hx: Any = None) -> tuple[PackedSequence, Any]:
    """The `forward` of LSTM, GRU and RNN layers."""
    batch = _batch_of(input)
    made: Any
    made, last = run_layer(layer, input, hx, batch)
    made.n_sequences = batch
    return made, last


def _batch_of(packed: PackedSequence) -> Any:
    """Return how many sequences there are."""
    _, batch_sizes, order, _ = packed
    if order is not None:
        return order.shape[0]
    known = getattr(packed, "n_sequences", None)
    return batch_sizes[0].item() if known is None else known


#: The functions traced in place of PyTorch's.
REPLACED: dict[Callable[..., Any], Callable[..., Any]] = {
    rnn.pack_padded_sequence: pack_padded_sequence,
    rnn.pad_packed_sequence: pad_packed_sequence,
}
