"""Segmentation of images (`segmentation_models_pytorch`)."""

from __future__ import annotations

from typing import Any

import segmentation_models_pytorch as smp
import torch

_SIZES: dict[str, Any] = {"encoder_name": "resnet18", "encoder_weights": None, "classes": 2}


def _net(name: str, side: int = 64, **more: Any) -> Any:
    return lambda: (getattr(smp, name)(**{**_SIZES, **more}), (torch.randn(1, 3, side, side),), {})


def _loss(make: Any) -> Any:
    return lambda: (make(), (torch.randn(2, 1, 8, 9), (torch.rand(2, 1, 8, 9) > 0.5).float()), {})


PROGRAMS = {
    "Unet": _net("Unet", encoder_depth=3, decoder_channels=(16, 8, 8)),
    "Unet with scse": _net(
        "Unet", encoder_depth=3, decoder_channels=(16, 16, 16), decoder_attention_type="scse"
    ),
    "UnetPlusPlus": _net("UnetPlusPlus", encoder_depth=3, decoder_channels=(16, 8, 8)),
    "Linknet": _net("Linknet", encoder_depth=3),
    "FPN": _net("FPN", decoder_pyramid_channels=16, decoder_segmentation_channels=32),
    "PSPNet": _net("PSPNet", psp_out_channels=16),
    "DeepLabV3Plus": _net("DeepLabV3Plus", decoder_channels=16),
    "PAN": _net("PAN", 128, decoder_channels=8),
    "MAnet": _net("MAnet", encoder_depth=3, decoder_channels=(16, 8, 8)),
    "Unet of mobilenet": _net(
        "Unet", encoder_name="mobilenet_v2", encoder_depth=3, decoder_channels=(16, 8, 8)
    ),
    "DiceLoss": _loss(lambda: smp.losses.DiceLoss("binary")),
    "JaccardLoss": _loss(lambda: smp.losses.JaccardLoss("binary")),
    "FocalLoss": _loss(lambda: smp.losses.FocalLoss("binary")),
    "TverskyLoss": _loss(lambda: smp.losses.TverskyLoss("binary")),
    "LovaszLoss": _loss(lambda: smp.losses.LovaszLoss("binary")),
    "SoftBCEWithLogitsLoss": _loss(lambda: smp.losses.SoftBCEWithLogitsLoss(smooth_factor=0.1)),
}
