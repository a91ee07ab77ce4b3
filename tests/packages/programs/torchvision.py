"""Layers, operators and small classifiers of `torchvision`."""

from __future__ import annotations

from typing import Any

import torch
from torchvision import models, ops
from torchvision.transforms.v2 import functional as transforms


def _image(side: int = 16, channels: int = 3) -> tuple[torch.Tensor]:
    return (torch.randn(2, channels, side, side),)


def _boxes(n: int) -> torch.Tensor:
    corner = 8 * torch.rand(n, 2)
    return torch.cat([corner, corner + 1 + 4 * torch.rand(n, 2)], 1)


def _of(make: Any, args: Any = _image) -> Any:
    return lambda: (make(), args(), {})


def _function(function: Any, args: Any = _image, **more: Any) -> Any:
    return lambda: (lambda *x: function(*x, **more), args(), {})


PROGRAMS = {
    "resnet": _of(
        lambda: models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5), lambda: _image(64)
    ),
    "squeezenet": _of(lambda: models.squeezenet1_1(num_classes=5), lambda: _image(64)),
    "shufflenet": _of(
        lambda: models.ShuffleNetV2([1, 1, 1], [8, 16, 32, 64, 32], num_classes=5), lambda: _image(64)
    ),
    "vision transformer": _of(
        lambda: models.VisionTransformer(16, 4, 1, 2, 16, 32, num_classes=5), lambda: _image(16)
    ),
    "swin transformer": _of(
        lambda: models.SwinTransformer([4, 4], 8, [1, 1], [2, 2], [4, 4], num_classes=5), lambda: _image(32)
    ),
    "box_iou": _function(ops.box_iou, lambda: (_boxes(4), _boxes(3))),
    "generalized_box_iou": _function(ops.generalized_box_iou, lambda: (_boxes(4), _boxes(3))),
    "complete_box_iou": _function(ops.complete_box_iou, lambda: (_boxes(4), _boxes(3))),
    "box_convert": _function(ops.box_convert, lambda: (_boxes(4),), in_fmt="xyxy", out_fmt="cxcywh"),
    "clip_boxes": _function(ops.clip_boxes_to_image, lambda: (_boxes(4),), size=(9, 9)),
    "sigmoid_focal_loss": _function(
        ops.sigmoid_focal_loss, lambda: (torch.randn(4, 5), torch.rand(4, 5)), reduction="mean"
    ),
    "FrozenBatchNorm2d": _of(lambda: ops.FrozenBatchNorm2d(3)),
    "SqueezeExcitation": _of(lambda: ops.SqueezeExcitation(16, 4), lambda: _image(8, 16)),
    "Permute and MLP": _of(
        lambda: torch.nn.Sequential(ops.Permute([0, 2, 3, 1]), ops.MLP(16, [8, 4])), lambda: _image(8, 16)
    ),
    "FeaturePyramidNetwork": lambda: (
        ops.FeaturePyramidNetwork([4, 8], 6),
        ({"a": torch.randn(2, 4, 16, 16), "b": torch.randn(2, 8, 8, 8)},),
        {},
    ),
    "resize": _function(transforms.resize, size=[8, 12], antialias=True),
    "normalize": _function(transforms.normalize, mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.4]),
    "gaussian_blur": _function(transforms.gaussian_blur, kernel_size=[3, 5], sigma=[0.8, 1.1]),
    "rgb_to_grayscale": _function(transforms.rgb_to_grayscale, num_output_channels=3),
    "adjust_hue": _function(transforms.adjust_hue, lambda: (torch.rand(2, 3, 8, 8),), hue_factor=0.1),
    "adjust_contrast": _function(
        transforms.adjust_contrast, lambda: (torch.rand(2, 3, 8, 8),), contrast_factor=1.3
    ),
    "center_crop": _function(transforms.center_crop, output_size=[8, 9]),
    "affine": _function(transforms.affine, angle=20.0, translate=[1.0, 2.0], scale=1.1, shear=[3.0, 2.0]),
}
