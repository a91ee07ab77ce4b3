"""Attention through landmarks (`nystrom_attention`)."""

from __future__ import annotations

import torch
from nystrom_attention import NystromAttention, Nystromformer

OPTIONS = {"dim": 16, "dim_head": 8, "heads": 2, "num_landmarks": 4, "pinv_iterations": 3}

PROGRAMS = {
    "attention": lambda: (NystromAttention(**OPTIONS).eval(), (torch.randn(2, 14, 16),), {}),
    "mask": lambda: (
        NystromAttention(**OPTIONS).eval(), (torch.randn(2, 14, 16), torch.rand(2, 14) > 0.2), {}
    ),
    "network": lambda: (Nystromformer(depth=1, **OPTIONS).eval(), (torch.randn(2, 14, 16),), {}),
}  # fmt: skip
