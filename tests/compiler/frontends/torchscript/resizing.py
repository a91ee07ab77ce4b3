"""Interpolation and sampling grids with sizes, scales and modes known at run time."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from .programs import program, x

_IMAGE = x(1, 2, 6, 7)


@program((_IMAGE, 2.0), (_IMAGE, 1.5), (_IMAGE, 0.6), (x(2, 1, 1, 3), 1.0), (_IMAGE, 0.01))
def scales_smoothly(a: Tensor, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    corners = F.interpolate(a, scale_factor=factor, mode="bicubic", align_corners=True)
    smooth = F.interpolate(a, scale_factor=factor, mode="bilinear", antialias=True)
    return F.interpolate(a, scale_factor=factor, mode="bicubic"), corners, smooth


@program((_IMAGE, 2.0), (_IMAGE, 1.5), (_IMAGE, 0.6), (x(2, 1, 1, 3), 1.0))
def scales_to_the_nearest(a: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    line = F.interpolate(a[0], scale_factor=factor, mode="nearest-exact")
    return F.interpolate(a, scale_factor=factor, mode="nearest-exact"), line


@program((_IMAGE, "nearest"), (_IMAGE, "bilinear"), (_IMAGE, "bicubic"), (_IMAGE, "area"),
         (_IMAGE, "nearest-exact"), (_IMAGE, "lanczos"), (_IMAGE, "cubic"))  # fmt: skip
def resizes_by_name(a: Tensor, mode: str) -> Tensor:
    return F.interpolate(a, size=[5, 4], mode=mode)


@program((_IMAGE, "bilinear", 3), (_IMAGE, "bicubic", 9), (_IMAGE, "lanczos", 4), (_IMAGE, "lanczos", 20))
def smooths_by_name(a: Tensor, mode: str, n: int) -> Tensor:
    return F.interpolate(a, size=[n, n], mode=mode, antialias=True)


@program(
    (x(2, 2, 3), 4, 5, True), (x(2, 2, 3), 1, 7, False), (x(1, 2, 3), 8, 1, True), (x(1, 2, 3), 0, 1, True)
)  # fmt: skip
def places_in_an_image(theta: Tensor, h: int, w: int, corners: bool) -> Tensor:
    return F.affine_grid(theta, [theta.size(0), 3, h, w], align_corners=corners)


@program((x(2, 3, 4), x(2, 1, 3, 2, 5)), (x(1, 3, 4), x(1, 1, 1, 7, 3)), (x(1, 3, 4), x(1, 2, 2, 2, 2)))
def places_in_a_volume(theta: Tensor, a: Tensor) -> Tensor:
    return F.affine_grid(theta, list(a.size()), align_corners=False)
