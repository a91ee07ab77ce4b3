"""EfficientNets (`efficientnet_pytorch`)."""

from __future__ import annotations

from typing import Any

import torch
from efficientnet_pytorch import EfficientNet, utils

_BLOCKS = ["r1_k3_s11_e1_i32_o16_se0.25", "r2_k5_s22_e3_i16_o24_se0.25"]


def _net(**more: Any) -> Any:
    def make():
        _, options = utils.get_model_params("efficientnet-b0", {"num_classes": 5, "image_size": None, **more})
        net = EfficientNet(utils.BlockDecoder.decode(_BLOCKS), options)
        net.set_swish(memory_efficient=False)
        return net, (torch.randn(2, 3, 32, 32),), {}

    return make


def _layer(make: Any) -> Any:
    return lambda: (make(), (torch.randn(2, 3, 15, 15),), {})


PROGRAMS = {
    "EfficientNet": _net(),
    "EfficientNet without top": _net(include_top=False),
    "EfficientNet without dropped connections": _net(drop_connect_rate=0.0),
    "Conv2dDynamicSamePadding": _layer(lambda: utils.Conv2dDynamicSamePadding(3, 4, 3, stride=2)),
    "Conv2dStaticSamePadding": _layer(
        lambda: utils.Conv2dStaticSamePadding(3, 4, 3, stride=2, image_size=15)
    ),
    "MaxPool2dDynamicSamePadding": _layer(lambda: utils.MaxPool2dDynamicSamePadding(3, 2)),
    "MemoryEfficientSwish": _layer(utils.MemoryEfficientSwish),
}
