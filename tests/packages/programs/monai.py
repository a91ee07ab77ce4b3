"""Networks, losses and metrics for medical images (`monai`)."""

from __future__ import annotations

from typing import Any

import torch
from monai import losses, metrics
from monai.networks import blocks, nets


def _image(side: int = 16, channels: int = 1) -> tuple[torch.Tensor]:
    return (torch.randn(2, channels, side, side),)


def _of(make: Any, args: Any = _image) -> Any:
    return lambda: (make(), args(), {})


def _segments() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(2, 3, 8, 9), (torch.rand(2, 3, 8, 9) > 0.5).float()


PROGRAMS = {
    "UNet": _of(lambda: nets.UNet(2, 1, 2, (4, 8, 16), (2, 2))),
    "UNet of volumes": _of(
        lambda: nets.UNet(3, 1, 2, (4, 8), (2,), num_res_units=1), lambda: (torch.randn(1, 1, 8, 8, 8),)
    ),
    "BasicUNet": _of(lambda: nets.BasicUNet(2, 1, 2, (4, 4, 8, 8, 8, 4)), lambda: _image(32)),
    "AttentionUnet": _of(lambda: nets.AttentionUnet(2, 1, 2, (4, 8), (2,))),
    "SegResNet": _of(lambda: nets.SegResNet(2, init_filters=8, blocks_down=(1, 1), blocks_up=(1,))),
    "DynUNet": _of(lambda: nets.DynUNet(2, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], filters=[4, 8, 8])),
    "VNet": _of(lambda: nets.VNet(2, 1, 2), lambda: _image(32)),
    "DenseNet": _of(lambda: nets.DenseNet(2, 1, 5, 8, 4, (1, 1)), lambda: _image(32)),
    "ResNet": _of(
        lambda: nets.ResNet(
            "basic", [1, 1, 1, 1], [4, 8, 8, 8], spatial_dims=2, n_input_channels=1, num_classes=5
        ),
        lambda: _image(32),
    ),
    "ViT": _of(lambda: nets.ViT(1, 16, 4, 16, 32, 1, 2, spatial_dims=2, classification=True)),
    "UNETR": _of(lambda: nets.UNETR(1, 2, (16, 16), 4, 16, 32, 2, spatial_dims=2)),
    "SwinUNETR": _of(
        lambda: nets.SwinUNETR(
            1, 2, depths=(1, 1, 1, 1), num_heads=(1, 1, 1, 1), feature_size=12, spatial_dims=2
        ),
        lambda: _image(64),
    ),
    "Classifier": _of(lambda: nets.Classifier((1, 16, 16), 5, (4, 8), (2, 2))),
    "SubpixelUpsample": _of(lambda: blocks.SubpixelUpsample(2, 4, 3, 2), lambda: _image(7, 4)),
    "SimpleASPP": _of(lambda: blocks.SimpleASPP(2, 4, 4), lambda: _image(16, 4)),
    "ChannelSELayer": _of(lambda: blocks.ChannelSELayer(2, 4), lambda: _image(7, 4)),
    "DiceLoss": _of(lambda: losses.DiceLoss(sigmoid=True), _segments),
    "DiceCELoss": _of(lambda: losses.DiceCELoss(softmax=True), _segments),
    "GeneralizedDiceLoss": _of(lambda: losses.GeneralizedDiceLoss(softmax=True), _segments),
    "FocalLoss": _of(losses.FocalLoss, _segments),
    "TverskyLoss": _of(lambda: losses.TverskyLoss(sigmoid=True), _segments),
    "SSIMLoss": _of(lambda: losses.SSIMLoss(2), lambda: (torch.rand(2, 1, 16, 16), torch.rand(2, 1, 16, 16))),
    "LocalNormalizedCrossCorrelationLoss": _of(
        lambda: losses.LocalNormalizedCrossCorrelationLoss(2),
        lambda: (torch.rand(2, 1, 16, 16), torch.rand(2, 1, 16, 16)),
    ),
    "compute_dice": lambda: (metrics.compute_dice, _segments(), {}),
}
