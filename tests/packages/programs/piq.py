"""Quality of images (`piq`)."""

from __future__ import annotations

import piq
import torch


def _pair(side: int = 48) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(2, 3, side, side), torch.rand(2, 3, side, side)


def _of(function, args=_pair, **more):
    return lambda: (lambda *x: function(*x, **more), args(), {})


PROGRAMS = {
    "psnr": _of(piq.psnr),
    "ssim": _of(piq.ssim, downsample=False),
    "ssim, map": _of(piq.ssim, downsample=False, full=True),
    "ssim, each image": _of(piq.ssim, downsample=False, reduction="none"),
    "multi scale ssim": _of(piq.multi_scale_ssim, kernel_size=3),
    "gmsd": _of(piq.gmsd),
    "multi scale gmsd": _of(piq.multi_scale_gmsd),
    "haarpsi": _of(piq.haarpsi),
    "mdsi": _of(piq.mdsi),
    "fsim": _of(piq.fsim),
    "vsi": _of(piq.vsi),
    "vif": _of(piq.vif_p),
    "total variation": _of(piq.total_variation, lambda: _pair()[:1]),
    "information weighted ssim": _of(piq.information_weighted_ssim, lambda: _pair(176)),
}
