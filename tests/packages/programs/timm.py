"""Small image models and layers (`timm`)."""

from __future__ import annotations

from typing import Any

import timm
import torch
from timm import layers


def _image(side: int = 32, channels: int = 3) -> tuple[torch.Tensor]:
    return (torch.randn(2, channels, side, side),)


def _model(name: str, side: int = 32, **more: Any) -> Any:
    return lambda: (timm.create_model(name, num_classes=5, **more), _image(side), {})


def _layer(make: Any, args: Any = lambda: _image(8, 16)) -> Any:
    return lambda: (make(), args(), {})


def _tokens() -> tuple[torch.Tensor]:
    return (torch.randn(2, 9, 16),)


PROGRAMS = {
    "test_vit": _model("test_vit", 160),
    "test_resnet": _model("test_resnet", 64),
    "test_convnext": _model("test_convnext", 64),
    "test_efficientnet": _model("test_efficientnet", 64),
    "test_byobnet": _model("test_byobnet", 64),
    "test_nfnet": _model("test_nfnet", 64),
    "test_mambaout": _model("test_mambaout", 64),
    "lcnet_035": _model("lcnet_035", 64),
    "mobilenetv3_small_050": _model("mobilenetv3_small_050", 64),
    "vit of free sides": lambda: (
        timm.create_model("test_vit", num_classes=5, dynamic_img_size=True, img_size=32),
        _image(48),
        {},
    ),
    "features": lambda: (timm.create_model("test_resnet", features_only=True), _image(64), {}),
    "BlurPool2d": _layer(lambda: layers.BlurPool2d(16)),
    "EcaModule": _layer(lambda: layers.EcaModule(16)),
    "SEModule": _layer(lambda: layers.SEModule(16)),
    "SplitAttn": _layer(lambda: layers.SplitAttn(16)),
    "AttentionPool2d": _layer(lambda: layers.AttentionPool2d(16, feat_size=8, num_heads=2)),
    "AttentionPoolLatent": _layer(lambda: layers.AttentionPoolLatent(16, num_heads=2), _tokens),
    "Conv2dSame": _layer(lambda: layers.Conv2dSame(16, 8, 3, stride=2)),
    "StdConv2dSame": _layer(lambda: layers.StdConv2dSame(16, 8, 3, stride=2)),
    "MixedConv2d": _layer(lambda: layers.MixedConv2d(16, 16, [3, 5], depthwise=True)),
    "CondConv2d": _layer(
        lambda: layers.CondConv2d(16, 8, 3, num_experts=4),
        lambda: (*_image(8, 16), torch.rand(2, 4)),
    ),
    "AvgPool2dSame": _layer(lambda: layers.AvgPool2dSame(3, 2)),
    "SelectAdaptivePool2d": _layer(lambda: layers.SelectAdaptivePool2d(pool_type="catavgmax")),
    "FilterResponseNorm": _layer(lambda: layers.FilterResponseNormTlu2d(16)),
    "EvoNorm2dS0": _layer(lambda: layers.EvoNorm2dS0(16, groups=4)),
    "EvoNorm2dB0": _layer(lambda: layers.EvoNorm2dB0(16)),
    "GlobalResponseNorm": _layer(lambda: layers.GlobalResponseNormMlp(16, 32, use_conv=True)),
    "SwiGLU": _layer(lambda: layers.SwiGLU(16, 32), _tokens),
    "PatchEmbed with padding": _layer(
        lambda: layers.PatchEmbed(None, 4, 3, 16, dynamic_img_pad=True), lambda: _image(18)
    ),
}
