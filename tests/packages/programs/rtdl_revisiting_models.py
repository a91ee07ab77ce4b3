"""Models of tables (`rtdl_revisiting_models`)."""

from __future__ import annotations

import torch
from rtdl_revisiting_models import (
    MLP,
    CategoricalEmbeddings,
    FTTransformer,
    LinearEmbeddings,
    MultiheadAttention,
    ResNet,
)


def _rows(width: int = 4) -> torch.Tensor:
    return torch.randn(5, width)


def _kinds() -> torch.Tensor:
    return torch.tensor([[0, 2], [1, 0], [2, 3], [0, 1], [1, 2]])


def _transformer(n_cont: int, kinds: list[int], **more):
    options = FTTransformer.get_default_kwargs(n_blocks=1)
    options |= {"d_block": 16, "attention_n_heads": 2}
    return FTTransformer(n_cont_features=n_cont, cat_cardinalities=kinds, d_out=2, **options | more)


def _resnet(**more):
    sizes = {"d_in": 4, "d_out": 2, "n_blocks": 2, "d_block": 8, "d_hidden": None, "d_hidden_multiplier": 2.0}
    return ResNet(**sizes, dropout1=0.1, dropout2=0.1, **more)


PROGRAMS = {
    "MLP": lambda: (MLP(d_in=4, d_out=2, n_blocks=2, d_block=8, dropout=0.1), (_rows(),), {}),
    "ResNet": lambda: (_resnet(), (_rows(),), {}),
    "FTTransformer": lambda: (_transformer(4, [3, 4]), (_rows(), _kinds()), {}),
    "FTTransformer of numbers": lambda: (_transformer(4, []), (_rows(), None), {}),
    "FTTransformer of categories": lambda: (_transformer(0, [3, 4]), (None, _kinds()), {}),
    "FTTransformer, linformer": lambda: (
        _transformer(
            4, [3, 4], linformer_kv_compression_ratio=0.5, linformer_kv_compression_sharing="headwise"
        ),
        (_rows(), _kinds()),
        {},
    ),
    "LinearEmbeddings": lambda: (LinearEmbeddings(4, 8), (_rows(),), {}),
    "CategoricalEmbeddings": lambda: (CategoricalEmbeddings([3, 4], 8), (_kinds(),), {}),
    "MultiheadAttention": lambda: (
        MultiheadAttention(d_embedding=8, n_heads=2, dropout=0.0),
        (torch.randn(2, 5, 8), torch.randn(2, 5, 8)),
        {},
    ),
}
