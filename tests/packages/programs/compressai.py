"""Learned compression of images (`compressai`)."""

from __future__ import annotations

from typing import Any

import torch
from compressai import entropy_models, layers, models


def _image(side: int = 16, channels: int = 3) -> tuple[torch.Tensor]:
    return (torch.rand(2, channels, side, side),)


def _of(make: Any, args: Any = lambda: _image(8, 4)) -> Any:
    return lambda: (make(), args(), {})


PROGRAMS = {
    "FactorizedPrior": _of(lambda: models.FactorizedPrior(4, 6), lambda: _image(64)),
    "ScaleHyperprior": _of(lambda: models.ScaleHyperprior(4, 6), lambda: _image(64)),
    "MeanScaleHyperprior": _of(lambda: models.MeanScaleHyperprior(4, 6), lambda: _image(64)),
    "JointAutoregressive": _of(
        lambda: models.JointAutoregressiveHierarchicalPriors(6, 6), lambda: _image(64)
    ),
    "Cheng2020Anchor": _of(lambda: models.Cheng2020Anchor(4), lambda: _image(64)),
    "GDN": _of(lambda: layers.GDN(4)),
    "inverse GDN": _of(lambda: layers.GDN(4, inverse=True)),
    "GDN1": _of(lambda: layers.GDN1(4)),
    "MaskedConv2d": _of(lambda: layers.MaskedConv2d(4, 6, 5, padding=2, mask_type="A")),
    "AttentionBlock": _of(lambda: layers.AttentionBlock(4)),
    "ResidualBlockUpsample": _of(lambda: layers.ResidualBlockUpsample(4, 6)),
    "ResidualBlockWithStride": _of(lambda: layers.ResidualBlockWithStride(4, 6)),
    "EntropyBottleneck": _of(lambda: entropy_models.EntropyBottleneck(4)),
    "GaussianConditional": lambda: (
        entropy_models.GaussianConditional(None),
        (torch.randn(2, 4, 8, 8), torch.rand(2, 4, 8, 8), torch.randn(2, 4, 8, 8)),
        {},
    ),
}
