"""Perceivers (`perceiver_pytorch`)."""

from __future__ import annotations

from typing import Any

import torch
from perceiver_pytorch import Perceiver, PerceiverIO
from perceiver_pytorch.gated import Perceiver as GatedPerceiver
from perceiver_pytorch.perceiver_io import PerceiverLM
from perceiver_pytorch.perceiver_pytorch import fourier_encode

_SIZES = {
    "num_latents": 4,
    "latent_dim": 8,
    "cross_heads": 1,
    "latent_heads": 2,
    "cross_dim_head": 4,
    "latent_dim_head": 4,
}
_IMAGE: dict[str, Any] = {
    "num_freq_bands": 2,
    "depth": 2,
    "max_freq": 4.0,
    "input_channels": 3,
    "input_axis": 2,
    "num_classes": 5,
}


def _image() -> torch.Tensor:
    return torch.randn(2, 6, 7, 3)


PROGRAMS = {
    "Perceiver": lambda: (Perceiver(**_SIZES, **_IMAGE), (_image(),), {}),
    "Perceiver with tied weights": lambda: (
        Perceiver(**_SIZES, **_IMAGE, weight_tie_layers=True, self_per_cross_attn=2),
        (_image(),),
        {},
    ),
    "Perceiver of series": lambda: (
        Perceiver(**_SIZES, **{**_IMAGE, "input_axis": 1}),
        (torch.randn(2, 9, 3),),
        {},
    ),
    "Perceiver with a mask": lambda: (
        Perceiver(**_SIZES, **{**_IMAGE, "input_axis": 1}),
        (torch.randn(2, 9, 3),),
        {"mask": torch.arange(9) < torch.tensor([[5], [9]])},
    ),
    "gated Perceiver": lambda: (GatedPerceiver(**_SIZES, **_IMAGE), (_image(),), {}),
    "PerceiverIO": lambda: (
        PerceiverIO(dim=6, queries_dim=5, logits_dim=3, depth=1, **_SIZES),
        (torch.randn(2, 9, 6),),
        {"queries": torch.randn(7, 5)},
    ),
    "PerceiverLM": lambda: (
        PerceiverLM(num_tokens=11, dim=6, max_seq_len=16, depth=1, **_SIZES),
        (torch.randint(0, 11, (2, 9)),),
        {},
    ),
    "fourier_encode": lambda: (
        lambda x: fourier_encode(x, max_freq=8.0, num_bands=3),
        (torch.rand(4, 5),),
        {},
    ),
}
