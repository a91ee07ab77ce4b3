"""Attention over the columns of tables (`pytorch_tabnet`)."""

from __future__ import annotations

import torch
from pytorch_tabnet import sparsemax
from pytorch_tabnet.tab_network import (
    AttentiveTransformer,
    EmbeddingGenerator,
    FeatTransformer,
    TabNet,
    TabNetPretraining,
)

GROUPS = torch.eye(6)


def _rows() -> torch.Tensor:
    return torch.randn(5, 6)


def _mixed() -> torch.Tensor:
    x = _rows()
    x[:, 1] = torch.randint(0, 4, (5,)).float()
    return x


PROGRAMS = {
    "TabNet": lambda: (TabNet(6, 3, group_attention_matrix=GROUPS), (_rows(),), {}),
    "TabNet with entmax": lambda: (
        TabNet(6, 2, n_d=4, n_a=4, n_steps=2, mask_type="entmax", group_attention_matrix=GROUPS),
        (_rows(),),
        {},
    ),
    "TabNet with categories": lambda: (
        TabNet(6, 2, cat_idxs=[1], cat_dims=[4], cat_emb_dim=[2], group_attention_matrix=torch.eye(7)[:, :7]),
        (_mixed(),),
        {},
    ),
    "TabNet with several tasks": lambda: (TabNet(6, [2, 3], group_attention_matrix=GROUPS), (_rows(),), {}),
    "pretraining": lambda: (TabNetPretraining(6, group_attention_matrix=GROUPS), (_rows(),), {}),
    "EmbeddingGenerator": lambda: (EmbeddingGenerator(6, [4], [1], [2], GROUPS), (_mixed(),), {}),
    "AttentiveTransformer": lambda: (AttentiveTransformer(6, 6, GROUPS), (torch.rand(5, 6), _rows()), {}),
    "FeatTransformer": lambda: (FeatTransformer(6, 8, None, 2), (_rows(),), {}),
    "sparsemax": lambda: (sparsemax.Sparsemax(-1), (_rows(),), {}),
    "entmax": lambda: (sparsemax.Entmax15(-1), (_rows(),), {}),
}
