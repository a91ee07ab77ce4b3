"""Convolutions over time (`pytorch_tcn`)."""

from __future__ import annotations

import torch
from pytorch_tcn import TCN, TemporalConv1d, TemporalConvTranspose1d


def _of(make, *shape: int):
    return lambda: (make(), (torch.randn(shape or (2, 3, 20)),), {})


PROGRAMS = {
    "TCN": _of(lambda: TCN(3, [4, 4])),
    "TCN, not causal": _of(lambda: TCN(3, [4, 4], causal=False)),
    "TCN with layer norms": _of(lambda: TCN(3, [4, 4], use_norm="layer_norm")),
    "TCN with weight norms": _of(lambda: TCN(3, [4, 4], use_norm="weight_norm")),
    "TCN with skips": _of(lambda: TCN(3, [4, 4], use_skip_connections=True)),
    "TCN with gates": _of(lambda: TCN(3, [4, 4], use_gate=True)),
    "TCN over rows": _of(lambda: TCN(3, [4, 4], input_shape="NLC"), 2, 20, 3),
    "TCN, last step": _of(lambda: TCN(3, [4, 4], lookahead=0, output_projection=2)),
    "TemporalConv1d": _of(lambda: TemporalConv1d(3, 4, 3, dilation=2)),
    "TemporalConvTranspose1d": _of(lambda: TemporalConvTranspose1d(3, 4, 4, stride=2)),
}
