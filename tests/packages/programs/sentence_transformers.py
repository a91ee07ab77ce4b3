"""Embeddings of sentences (`sentence_transformers`) over a small random encoder."""

from __future__ import annotations

import torch
import transformers
from sentence_transformers import models, util

WIDTH = 16


def _tokens() -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    return torch.randint(0, 50, mask.shape), mask


class _Embedder(torch.nn.Module):
    """An encoder and the modules of sentence_transformers behind it."""

    def __init__(self, *parts):
        super().__init__()
        config = transformers.BertConfig(
            vocab_size=50, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
        )
        self.encoder = transformers.BertModel(config)
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, ids, mask):
        features = {
            "token_embeddings": self.encoder(ids, attention_mask=mask).last_hidden_state,
            "attention_mask": mask,
        }
        for part in self.parts:
            features = part(features)
        return features["sentence_embedding"]


def _pooled(mode: str, *parts):
    return lambda: (_Embedder(models.Pooling(WIDTH, mode), *[make() for make in parts]), _tokens(), {})


def _pairs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, WIDTH), torch.randn(3, WIDTH)


def _alike() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, WIDTH), torch.randn(4, WIDTH)


PROGRAMS = {
    **{
        mode: _pooled(mode)
        for mode in ("mean", "max", "cls", "lasttoken", "weightedmean", "mean_sqrt_len_tokens")
    },
    "normalised": _pooled("mean", models.Normalize),
    "dense": _pooled("mean", lambda: models.Dense(WIDTH, 8), models.Normalize),
    "layer norm": _pooled("cls", lambda: models.LayerNorm(WIDTH)),
    "cos_sim": lambda: (util.cos_sim, _pairs(), {}),
    "dot_score": lambda: (util.dot_score, _pairs(), {}),
    "euclidean_sim": lambda: (util.euclidean_sim, _pairs(), {}),
    "manhattan_sim": lambda: (util.manhattan_sim, _pairs(), {}),
    "pairwise_cos_sim": lambda: (util.pairwise_cos_sim, _alike(), {}),
    "pairwise_angle_sim": lambda: (util.pairwise_angle_sim, _alike(), {}),
}
