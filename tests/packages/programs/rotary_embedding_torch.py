"""Rotary positions (`rotary_embedding_torch`)."""

from __future__ import annotations

import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from torch import nn


class _Rotary(nn.Module):
    def __init__(self, call, **options):
        super().__init__()
        self.rotary, self.call = RotaryEmbedding(**options), call

    def forward(self, q, k):
        return self.call(self.rotary, q, k)


def _of(call, **options):
    return lambda: (_Rotary(call, **options).eval(), (torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)), {})


PROGRAMS = {
    "queries and keys": _of(
        lambda r, q, k: (r.rotate_queries_or_keys(q), r.rotate_queries_or_keys(k)), dim=8
    ),
    "offset": _of(lambda r, q, k: r.rotate_queries_or_keys(q, offset=3), dim=8),
    "decay": _of(lambda r, q, k: r.rotate_queries_and_keys(q, k), dim=8, use_xpos=True),
    "longer context": _of(
        lambda r, q, k: r.rotate_queries_or_keys(q), dim=8, interpolate_factor=2.0
    ),
    "axes of an image": _of(
        lambda r, q, k: apply_rotary_emb(r.get_axial_freqs(q.shape[1], q.shape[2]), q), dim=4,
        freqs_for="pixel", max_freq=16,
    ),
    "cached keys": _of(lambda r, q, k: r.rotate_queries_with_cached_keys(q[:, :, -2:], k), dim=8),
}  # fmt: skip
