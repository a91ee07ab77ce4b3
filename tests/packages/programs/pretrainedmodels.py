"""Blocks of classifiers (`pretrainedmodels`)."""

from __future__ import annotations

import importlib
from typing import Any

import torch


def _of(module: str, name: str, *args: Any, shape: tuple[int, ...], **more: Any) -> Any:
    def make():
        net = getattr(importlib.import_module(f"pretrainedmodels.models.{module}"), name)
        return net(*args, **more), (torch.randn(shape),), {}

    return make


_SENET = {
    "layers": [1, 1, 1, 1],
    "groups": 2,
    "reduction": 4,
    "dropout_p": None,
    "inplanes": 64,
    "num_classes": 5,
    "input_3x3": False,
    "downsample_kernel_size": 1,
    "downsample_padding": 0,
}


def _senet() -> Any:
    senet = importlib.import_module("pretrainedmodels.models.senet")
    return senet.SENet(senet.SEResNeXtBottleneck, **_SENET), (torch.randn(1, 3, 224, 224),), {}


PROGRAMS = {
    "SENet": _senet,
    "SEModule": _of("senet", "SEModule", 8, 2, shape=(2, 8, 5, 5)),
    "DPN": _of(
        "dpn",
        "DPN",
        small=True,
        num_init_features=8,
        k_r=8,
        groups=2,
        k_sec=(1, 1, 1, 1),
        inc_sec=(4, 4, 4, 4),
        num_classes=5,
        shape=(1, 3, 64, 64),
    ),
    "Block of Xception": _of("xception", "Block", 4, 8, 2, 2, shape=(2, 4, 13, 13)),
    "Mixed_3a": _of("inceptionv4", "Mixed_3a", shape=(1, 64, 9, 9)),
    "Reduction_A": _of("inceptionv4", "Reduction_A", shape=(1, 384, 7, 7)),
    "Inception_B": _of("inceptionv4", "Inception_B", shape=(1, 1024, 5, 5)),
    "Inception_C": _of("inceptionv4", "Inception_C", shape=(1, 1536, 4, 4)),
    "Block17": _of("inceptionresnetv2", "Block17", shape=(1, 1088, 5, 5)),
    "AdaptiveAvgMaxPool2d": _of("dpn", "AdaptiveAvgMaxPool2d", pool_type="avgmaxc", shape=(2, 4, 7, 7)),
    "CellStem0": _of("nasnet_mobile", "CellStem0", 8, shape=(1, 8, 16, 16)),
    "SeparableConv2d of NASNet": _of("nasnet_mobile", "SeparableConv2d", 4, 6, 5, 2, 2, shape=(2, 4, 11, 11)),
}
