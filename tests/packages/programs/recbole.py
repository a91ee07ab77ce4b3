"""Layers of recommenders (`recbole`)."""

from __future__ import annotations

import torch
from recbole.model import layers, loss


def _of(make, *shapes):
    return lambda: (make(), tuple(torch.randn(shape) for shape in shapes), {})


def _lengths() -> tuple[torch.Tensor, ...]:
    return torch.randn(3, 4), torch.randn(3, 6, 4), torch.tensor([6, 2, 4])


PROGRAMS = {
    "MLPLayers": _of(lambda: layers.MLPLayers([6, 8, 2], 0.1, "tanh", bn=True), (5, 6)),
    "FMEmbedding": lambda: (
        layers.FMEmbedding([4, 5], torch.tensor([0, 4]).numpy(), 3),
        (torch.randint(0, 4, (5, 2)),),
        {},
    ),
    "BaseFactorizationMachine": _of(layers.BaseFactorizationMachine, (5, 3, 4)),
    "AttLayer": _of(lambda: layers.AttLayer(4, 6), (5, 3, 4)),
    "Dice": _of(lambda: layers.Dice(4), (5, 4)),
    "SequenceAttLayer": lambda: (
        layers.SequenceAttLayer(torch.arange(6).view(1, -1), [16, 8], "Sigmoid", False, False),
        _lengths(),
        {},
    ),
    "SequenceAttLayer, weights": lambda: (
        layers.SequenceAttLayer(torch.arange(6).view(1, -1), [16, 8], "Dice", True, True),
        _lengths(),
        {},
    ),
    "VanillaAttention": _of(lambda: layers.VanillaAttention(4, 6), (5, 3, 4)),
    "MultiHeadAttention": _of(
        lambda: layers.MultiHeadAttention(2, 8, 0.1, 0.1, 1e-6), (3, 5, 8), (3, 1, 1, 5)
    ),
    "FeedForward": _of(lambda: layers.FeedForward(8, 16, 0.1, "gelu", 1e-6), (3, 5, 8)),
    "TransformerEncoder": _of(
        lambda: layers.TransformerEncoder(2, 2, 8, 16, 0.1, 0.1, "swish", 1e-6), (3, 5, 8), (3, 1, 1, 5)
    ),
    "ItemToInterestAggregation": _of(lambda: layers.ItemToInterestAggregation(5, 8, 3), (3, 5, 8)),
    "LightTransformerEncoder": _of(
        lambda: layers.LightTransformerEncoder(1, 2, 3, 8, 5, 16, 0.1, 0.1, "gelu", 1e-6), (3, 5, 8), (5, 8)
    ),
    "CNNLayers": _of(lambda: layers.CNNLayers([1, 4, 2], [3, 3], [1, 1]), (2, 1, 8, 8)),
    "BPRLoss": _of(loss.BPRLoss, (5,), (5,)),
    "EmbLoss": _of(loss.EmbLoss, (5, 3), (4, 3)),
}
