"""Attention within windows (`local_attention`)."""

from __future__ import annotations

import torch
from local_attention import LocalAttention
from local_attention.transformer import LocalMHA, LocalTransformer


def _heads(**options):
    module = LocalAttention(dim=8, window_size=4, autopad=True, **options).eval()
    return module, tuple(torch.randn(2, 2, 12, 8) for _ in range(3)), {}


PROGRAMS = {
    "causal": lambda: _heads(causal=True, look_backward=1, look_forward=0),
    "both ways": lambda: _heads(causal=False, look_backward=1, look_forward=1),
    "exact windows": lambda: _heads(causal=True, exact_windowsize=True),
    "shared keys": lambda: _heads(causal=True, shared_qk=True),
    "layer": lambda: (
        LocalMHA(dim=16, window_size=4, dim_head=8, heads=2, causal=False).eval(),
        (torch.randn(2, 12, 16),),
        {},
    ),
    "language model": lambda: (
        LocalTransformer(
            num_tokens=20, dim=16, depth=1, heads=2, dim_head=8, local_attn_window_size=4, max_seq_len=64
        ).eval(),
        (torch.randint(0, 20, (2, 12)),),
        {},
    ),
}
