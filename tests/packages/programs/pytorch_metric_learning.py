"""Losses and distances between embeddings (`pytorch_metric_learning`)."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning import distances, losses, regularizers


def _pairs(make: Any) -> Any:
    return lambda: (make(), (torch.randn(6, 8), torch.randn(5, 8)), {})


def _loss(make: Any) -> Any:
    return lambda: (make(), (torch.randn(8, 6), torch.arange(8) % 4), {})


PROGRAMS = {
    "CosineSimilarity": _pairs(distances.CosineSimilarity),
    "LpDistance": _pairs(distances.LpDistance),
    "LpDistance, p of 1, power of 2": _pairs(lambda: distances.LpDistance(p=1, power=2)),
    "DotProductSimilarity": _pairs(distances.DotProductSimilarity),
    "SNRDistance": _pairs(distances.SNRDistance),
    "ArcFaceLoss": _loss(lambda: losses.ArcFaceLoss(4, 6)),
    "CosFaceLoss": _loss(lambda: losses.CosFaceLoss(4, 6)),
    "SubCenterArcFaceLoss": _loss(lambda: losses.SubCenterArcFaceLoss(num_classes=4, embedding_size=6)),
    "NormalizedSoftmaxLoss": _loss(lambda: losses.NormalizedSoftmaxLoss(4, 6)),
    "ProxyAnchorLoss": _loss(lambda: losses.ProxyAnchorLoss(4, 6)),
    "ProxyNCALoss": _loss(lambda: losses.ProxyNCALoss(4, 6)),
    "SoftTripleLoss": _loss(lambda: losses.SoftTripleLoss(4, 6, centers_per_class=2)),
    "MultiSimilarityLoss": _loss(losses.MultiSimilarityLoss),
    "CircleLoss": _loss(losses.CircleLoss),
    "NTXentLoss": _loss(losses.NTXentLoss),
    "SupConLoss": _loss(losses.SupConLoss),
    "ContrastiveLoss": _loss(losses.ContrastiveLoss),
    "TripletMarginLoss": _loss(losses.TripletMarginLoss),
    "LpRegularizer": lambda: (regularizers.LpRegularizer(), (torch.randn(8, 6),), {}),
}
