"""Quantisers of vectors (`vector_quantize_pytorch`), in evaluation."""

from __future__ import annotations

import torch
from vector_quantize_pytorch import FSQ, LFQ, RandomProjectionQuantizer, ResidualVQ, SimVQ, VectorQuantize


def _of(module, width):
    return lambda: (module().eval(), (torch.randn(2, 5, width),), {})


PROGRAMS = {
    "nearest code": _of(lambda: VectorQuantize(dim=16, codebook_size=8), 16),
    "cosine": _of(lambda: VectorQuantize(dim=16, codebook_size=8, use_cosine_sim=True), 16),
    "heads": _of(
        lambda: VectorQuantize(dim=16, codebook_size=8, heads=2, separate_codebook_per_head=True), 16
    ),
    "residual": _of(lambda: ResidualVQ(dim=16, num_quantizers=2, codebook_size=8), 16),
    "finite scalars": _of(lambda: FSQ([8, 5, 5]), 3),
    "binary": _of(lambda: LFQ(dim=4, codebook_size=16), 4),
    "one linear layer": _of(lambda: SimVQ(dim=16, codebook_size=16), 16),
    "random projection": _of(
        lambda: RandomProjectionQuantizer(dim=16, num_codebooks=2, codebook_dim=8, codebook_size=16), 16
    ),
}
