"""Networks of diffusion models (`denoising_diffusion_pytorch`)."""

from __future__ import annotations

import torch
from denoising_diffusion_pytorch import Unet, Unet1D
from denoising_diffusion_pytorch.karras_unet import KarrasUnet


def _of(module, *shape):
    return lambda: (module().eval(), (torch.randn(2, *shape), torch.rand(2)), {})


def _karras():
    return KarrasUnet(
        image_size=16, dim=8, dim_max=16, num_downsamples=1, num_blocks_per_stage=1, attn_res=(8,),
        attn_dim_head=4, fourier_dim=8,
    )  # fmt: skip


PROGRAMS = {
    "images": _of(lambda: Unet(dim=8, dim_mults=(1, 2)), 3, 16, 16),
    "images, fused attention": _of(lambda: Unet(dim=8, dim_mults=(1, 2), flash_attn=True), 3, 16, 16),
    "sinusoids": _of(lambda: Unet(dim=8, dim_mults=(1, 2), random_fourier_features=True), 3, 16, 16),
    "sequences": _of(lambda: Unet1D(dim=8, dim_mults=(1, 2), channels=3), 3, 16),
    "magnitudes kept": _of(_karras, 4, 16, 16),
}
