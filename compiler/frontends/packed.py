"""Packed sequences: while a model is exported, packing, recurrent layers over packed sequences, and padding
are custom operators.

torch.export cannot trace torch's operators, which read the number of sequences at each time from a tensor. In
ours, data-dependent sizes are symbols, and the importer has converters for them (`ops.packed`). The first
model that packs something registers the operators: that takes 30 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .packed_functions import PACK, PAD

KINDS: dict[Any, str] = {nn.LSTM: "lstm", nn.GRU: "gru", nn.RNN: "rnn"}
_VF: Any = torch._VF


class _Packing:
    """The packed sequences of a trace: the number of sequences by the tensor of batch sizes."""

    def __init__(self) -> None:
        self._made: list[tuple[Tensor, Any]] = []

    def pack(self, x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
        """torch._VF._pack_padded_sequence."""
        from .packed_operators import pack_padded

        rows, batch_sizes = pack_padded(x, lengths, batch_first)
        self._made.append((batch_sizes, x.shape[0 if batch_first else 1]))
        return rows, batch_sizes

    def pad(
        self, rows: Tensor, batch_sizes: Tensor, batch_first: bool, value: float, total_length: Any
    ) -> tuple[Tensor, Tensor]:
        """torch._VF._pad_packed_sequence."""
        from .packed_operators import pad_packed

        batch = self.batch(batch_sizes)
        return pad_packed(rows, batch_sizes, batch, batch_first, float(value), total_length)

    def batch(self, batch_sizes: Tensor) -> Any:
        """Return the number of sequences."""
        known = [batch for made, batch in self._made if made is batch_sizes]
        return known[0] if known else batch_sizes[0].item()

    def layers(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return the replacement of the `forward` of a class of recurrent layers."""

        def run(layer: Any, x: Any, hx: Any = None) -> Any:
            if not isinstance(x, PackedSequence) or (layer.training and layer.dropout):
                return forward(layer, x, hx)
            from . import packed_operators  # noqa: F401 - registers them

            return run_layer(layer, x, hx, self.batch(x.batch_sizes))

        return run


def run_layer(layer: Any, x: PackedSequence, hx: Any, batch: Any) -> tuple[PackedSequence, Any]:
    """Return the results of a recurrent layer for `batch` packed sequences, by custom operators."""
    rows, batch_sizes, order, back = x  # Dynamo of torch 2.12 finds no fields by name
    given = _states(layer, x, hx, batch)
    kind = f"rnn_{layer.nonlinearity}" if isinstance(layer, nn.RNN) else KINDS[type(layer)]
    settings = (layer.bias, layer.num_layers, layer.bidirectional)
    run = torch.ops.shapevm.packed_layers
    result, *last = run(kind, rows, batch_sizes, given, layer._flat_weights, *settings)
    if back is not None:
        last = [state.index_select(1, back) for state in last]
    packed = PackedSequence(result, batch_sizes, order, back)
    return packed, tuple(last) if kind == "lstm" else last[0]


def _states(layer: Any, x: PackedSequence, hx: Any, batch: Any) -> list[Tensor]:
    """Return the first states of a layer, in the order of the packed sequences."""
    rows, _, order, _ = x
    if hx is not None:
        given = list(hx) if isinstance(hx, tuple | list) else [hx]
        return given if order is None else [state.index_select(1, order) for state in given]
    n = layer.num_layers * (2 if layer.bidirectional else 1)
    widths = [layer.proj_size or layer.hidden_size] + [layer.hidden_size] * isinstance(layer, nn.LSTM)
    return [rows.new_zeros(n, batch, width) for width in widths]


@contextmanager
def packing_is_traced() -> Iterator[None]:
    """Make packed sequences operators that torch.export can trace."""
    packing = _Packing()
    forwards = {kind: kind.forward for kind in KINDS}
    try:
        _VF._pack_padded_sequence, _VF._pad_packed_sequence = packing.pack, packing.pad
        for kind, forward in forwards.items():
            kind.forward = packing.layers(forward)
        yield
    finally:
        _VF._pack_padded_sequence, _VF._pad_packed_sequence = PACK, PAD
        for kind, forward in forwards.items():
            kind.forward = forward
