"""Operators between functions (`neuralop`)."""

from __future__ import annotations

import torch
from neuralop import models
from neuralop.layers.channel_mlp import ChannelMLP, LinearChannelMLP
from neuralop.layers.embeddings import GridEmbedding2D, SinusoidalEmbedding
from neuralop.layers.fno_block import FNOBlocks
from neuralop.layers.normalization_layers import AdaIN, InstanceNorm
from neuralop.layers.padding import DomainPadding
from neuralop.layers.resample import resample
from neuralop.layers.spectral_convolution import SpectralConv


def _of(make, *shape: int):
    return lambda: (make(), (torch.randn(shape),), {})


def _fno(*modes: int, **more):
    return models.FNO(n_modes=modes, in_channels=2, out_channels=1, hidden_channels=8, n_layers=2, **more)


PROGRAMS = {
    "FNO, one axis": _of(lambda: _fno(4), 2, 2, 16),
    "FNO, two axes": _of(lambda: _fno(4, 4), 2, 2, 12, 16),
    "FNO, three axes": _of(lambda: _fno(4, 4, 4), 1, 2, 8, 8, 8),
    "FNO with norms and padding": _of(
        lambda: _fno(4, 4, norm="instance_norm", domain_padding=0.25), 2, 2, 12, 16
    ),
    "FNO with a tensor of low rank": _of(
        lambda: _fno(4, 4, factorization="tucker", rank=0.5, implementation="factorized"), 2, 2, 12, 16
    ),
    "UNO": _of(
        lambda: models.UNO(
            2,
            1,
            8,
            n_layers=3,
            uno_out_channels=[8, 8, 8],
            uno_n_modes=[[4, 4]] * 3,
            channel_mlp_skip="linear",
            uno_scalings=[[1.0, 1.0], [0.5, 0.5], [2, 2]],
        ),
        2,
        2,
        16,
        16,
    ),
    "SpectralConv": _of(lambda: SpectralConv(4, 6, (4, 4)), 2, 4, 10, 12),
    "SpectralConv, one axis": _of(lambda: SpectralConv(4, 6, (6,)), 2, 4, 20),
    "SpectralConv to another size": _of(
        lambda: SpectralConv(4, 6, (4, 4), resolution_scaling_factor=2.0), 2, 4, 10, 12
    ),
    "FNOBlocks": _of(lambda: FNOBlocks(4, 4, (4, 4), n_layers=1), 2, 4, 10, 12),
    "ChannelMLP": _of(lambda: ChannelMLP(4, 6, n_dim=2), 2, 4, 5, 6),
    "LinearChannelMLP": _of(lambda: LinearChannelMLP([4, 8, 2]), 5, 4),
    "GridEmbedding2D": _of(lambda: GridEmbedding2D(2), 2, 2, 5, 6),
    "SinusoidalEmbedding": _of(lambda: SinusoidalEmbedding(2, 3, "transformer"), 2, 5, 2),
    "DomainPadding": _of(lambda: lambda x: DomainPadding(0.25).pad(x), 2, 3, 8, 12),
    "resample": _of(lambda: lambda x: resample(x, 2.0, [2, 3]), 2, 3, 6, 8),
    "InstanceNorm": _of(InstanceNorm, 2, 3, 6, 8),
    "AdaIN": lambda: (_Adapted(), (torch.randn(2, 3, 5, 5), torch.randn(4)), {}),
}


class _Adapted(torch.nn.Module):
    """A norm whose scale comes from an embedding."""

    def __init__(self):
        super().__init__()
        self.norm = AdaIN(4, 3)

    def forward(self, x, embedding):
        self.norm.set_embedding(embedding)
        return self.norm(x)
