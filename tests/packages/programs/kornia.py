"""Image processing (`kornia`)."""

from __future__ import annotations

import kornia
import torch
from kornia import color, enhance, feature, filters, geometry, losses, morphology


def _image(side: int = 16, channels: int = 3) -> torch.Tensor:
    return torch.rand(2, channels, side, side + 2)


def _of(function, args=lambda: (_image(),), **more):
    return lambda: (lambda *x: function(*x, **more), args(), {})


def _points() -> torch.Tensor:
    return torch.rand(2, 6, 2)


PROGRAMS = {
    "rgb_to_hsv": _of(color.rgb_to_hsv),
    "rgb_to_lab": _of(color.rgb_to_lab),
    "hsv_to_rgb": _of(color.hsv_to_rgb),
    "rgb_to_ycbcr": _of(color.rgb_to_ycbcr),
    "gaussian_blur2d": _of(filters.gaussian_blur2d, kernel_size=(5, 5), sigma=(1.5, 1.5)),
    "median_blur": _of(filters.median_blur, kernel_size=(3, 3)),
    "bilateral_blur": _of(filters.bilateral_blur, kernel_size=3, sigma_color=0.1, sigma_space=(1.5, 1.5)),
    "sobel": _of(filters.sobel),
    "laplacian": _of(filters.laplacian, kernel_size=3),
    "unsharp_mask": _of(filters.unsharp_mask, kernel_size=(3, 3), sigma=(1.5, 1.5)),
    "canny": _of(filters.canny, hysteresis=False),
    "spatial_gradient": _of(filters.spatial_gradient),
    "dilation": _of(morphology.dilation, lambda: (_image(), torch.ones(3, 3))),
    "erosion": _of(morphology.erosion, lambda: (_image(), torch.ones(3, 3))),
    "opening": _of(morphology.opening, lambda: (_image(), torch.ones(3, 3))),
    "rotate": _of(geometry.rotate, lambda: (_image(), torch.tensor([30.0, -10.0]))),
    "warp_perspective": _of(
        geometry.warp_perspective,
        lambda: (_image(), torch.eye(3)[None] + torch.zeros(2, 3, 3)),
        dsize=(12, 14),
    ),
    "warp_affine": _of(
        geometry.warp_affine, lambda: (_image(), torch.eye(2, 3)[None] + torch.zeros(2, 2, 3)), dsize=(12, 14)
    ),
    "resize": _of(geometry.resize, size=(20, 11), antialias=True),
    "pyrdown": _of(geometry.pyrdown),
    "hflip": _of(geometry.hflip),
    "center_crop": _of(geometry.center_crop, size=(8, 8)),
    "remap": _of(geometry.remap, lambda: (_image(), 16 * torch.rand(2, 9, 9), 16 * torch.rand(2, 9, 9))),
    "convert_points_to_homogeneous": _of(geometry.convert_points_to_homogeneous, lambda: (_points(),)),
    "transform_points": _of(
        geometry.transform_points, lambda: (torch.eye(3)[None] + 0.1 * torch.rand(2, 3, 3), _points())
    ),
    "quaternion_to_rotation_matrix": _of(
        geometry.quaternion_to_rotation_matrix, lambda: (torch.randn(5, 4),)
    ),
    "axis_angle_to_rotation_matrix": _of(
        geometry.axis_angle_to_rotation_matrix, lambda: (torch.randn(5, 3),)
    ),
    "harris_response": _of(feature.harris_response),
    "hessian_response": _of(feature.hessian_response),
    "HardNet": lambda: (feature.HardNet(pretrained=False), (torch.rand(3, 1, 32, 32),), {}),
    "SOSNet": lambda: (feature.SOSNet(pretrained=False), (torch.rand(3, 1, 32, 32),), {}),
    "match_nn": _of(lambda a, b: feature.match_nn(a, b), lambda: (torch.randn(5, 8), torch.randn(7, 8))),
    "adjust_gamma": _of(enhance.adjust_gamma, gamma=0.8),
    "adjust_hue": _of(enhance.adjust_hue, factor=0.3),
    "equalize": _of(enhance.equalize),
    "equalize_clahe": _of(enhance.equalize_clahe, lambda: (torch.rand(1, 1, 16, 16),), grid_size=(2, 2)),
    "normalize_min_max": _of(enhance.normalize_min_max),
    "posterize": _of(enhance.posterize, bits=3),
    "solarize": _of(enhance.solarize, thresholds=0.5),
    "histogram": _of(
        enhance.histogram, lambda: (torch.rand(2, 30), torch.linspace(0, 1, 8), torch.tensor(0.1))
    ),
    "ssim_loss": _of(losses.ssim_loss, lambda: (_image(), _image()), window_size=5),
    "focal_loss": _of(
        losses.focal_loss, lambda: (torch.randn(2, 4, 5, 6), torch.randint(0, 4, (2, 5, 6))), alpha=0.5
    ),
    "dice_loss": _of(losses.dice_loss, lambda: (torch.randn(2, 4, 5, 6), torch.randint(0, 4, (2, 5, 6)))),
    "total_variation": _of(losses.total_variation),
    "one_hot": _of(
        kornia.utils.one_hot,
        lambda: (torch.randint(0, 4, (2, 5, 6)),),
        num_classes=4,
        device=torch.device("cpu"),
        dtype=torch.float32,
    ),
}
