"""Structural similarity (`pytorch_msssim`)."""

from __future__ import annotations

import pytorch_msssim
import torch


def _pair(*shape: int):
    return lambda: (torch.rand(shape), torch.rand(shape))


IMAGES = _pair(2, 3, 24, 24)


def _of(function, args=IMAGES, **more):
    return lambda: (lambda *x: function(*x, **more), args(), {})


PROGRAMS = {
    "ssim": _of(pytorch_msssim.ssim, data_range=1.0),
    "ssim, each image": _of(pytorch_msssim.ssim, data_range=1.0, size_average=False),
    "ssim, not negative": _of(pytorch_msssim.ssim, data_range=1.0, nonnegative_ssim=True),
    "ssim, small window": _of(pytorch_msssim.ssim, data_range=1.0, win_size=5),
    "ssim of volumes": _of(pytorch_msssim.ssim, _pair(1, 1, 14, 14, 14), data_range=1.0),
    "ms_ssim": _of(pytorch_msssim.ms_ssim, _pair(2, 1, 176, 176), data_range=1.0),
    "ms_ssim, two scales": _of(
        pytorch_msssim.ms_ssim, _pair(2, 3, 40, 40), data_range=1.0, win_size=3, weights=[0.4, 0.6]
    ),
    "SSIM": lambda: (pytorch_msssim.SSIM(data_range=1.0, channel=3), _pair(2, 3, 24, 24)(), {}),
}
