"""Losses and heads of self-supervised learning (`lightly`)."""

from __future__ import annotations

from typing import Any

import torch
from lightly import loss
from lightly.loss import regularizer
from lightly.models import modules, utils


def _two(make: Any, *shape: int) -> Any:
    return lambda: (make(), (torch.randn(shape or (6, 8)), torch.randn(shape or (6, 8))), {})


def _one(make: Any, *shape: int) -> Any:
    return lambda: (make(), (torch.randn(shape or (6, 8)),), {})


PROGRAMS = {
    "NTXentLoss": _two(loss.NTXentLoss),
    "BarlowTwinsLoss": _two(loss.BarlowTwinsLoss),
    "NegativeCosineSimilarity": _two(loss.NegativeCosineSimilarity),
    "VICRegLoss": _two(loss.VICRegLoss),
    "DCLLoss": _two(loss.DCLLoss),
    "DCLWLoss": _two(loss.DCLWLoss),
    "TiCoLoss": _two(loss.TiCoLoss),
    "CO2Regularizer": _two(regularizer.CO2Regularizer),
    "KoLeoLoss": _one(loss.KoLeoLoss),
    "SimCLRProjectionHead": _one(lambda: modules.SimCLRProjectionHead(8, 6, 4)),
    "BYOLPredictionHead": _one(lambda: modules.BYOLPredictionHead(8, 6, 4)),
    "BarlowTwinsProjectionHead": _one(lambda: modules.BarlowTwinsProjectionHead(8, 6, 4)),
    "DINOProjectionHead": _one(lambda: modules.DINOProjectionHead(8, 6, 4, 5)),
    "SwaVProjectionHead and prototypes": _one(
        lambda: torch.nn.Sequential(modules.SwaVProjectionHead(8, 6, 4), modules.SwaVPrototypes(4, 5))
    ),
    "patchify": lambda: (lambda x: utils.patchify(x, 4), (torch.randn(2, 3, 16, 16),), {}),
    "mask_at_index": lambda: (
        utils.mask_at_index,
        (torch.randn(2, 9, 4), torch.tensor([[1, 3], [0, 8]]), torch.randn(1, 1, 4)),
        {},
    ),
    "get_at_index": lambda: (utils.get_at_index, (torch.randn(2, 9, 4), torch.tensor([[1, 3], [0, 8]])), {}),
    "repeat_token": lambda: (lambda x: utils.repeat_token(x, (2, 9)), (torch.randn(1, 1, 4),), {}),
}
