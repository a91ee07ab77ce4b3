"""Vision transformers (`vit_pytorch`)."""

from __future__ import annotations

import importlib

import torch

_SIZES = {"dim": 16, "depth": 1, "heads": 2, "mlp_dim": 32}
_IMAGE = {"image_size": 16, "patch_size": 4, "num_classes": 5}


def _of(module: str, name: str, *shape: int, **more):
    def make():
        net = getattr(importlib.import_module(f"vit_pytorch.{module}"), name)(**more)
        return net, (torch.randn(shape or (2, 3, 16, 16)),), {}

    return make


PROGRAMS = {
    "ViT": _of("vit", "ViT", **_SIZES, **_IMAGE),
    "ViT, mean": _of("vit", "ViT", pool="mean", **_SIZES, **_IMAGE),
    "SimpleViT": _of("simple_vit", "SimpleViT", **_SIZES, **_IMAGE),
    "SimpleViT with registers": _of("simple_vit_with_register_tokens", "SimpleViT", **_SIZES, **_IMAGE),
    "SimpleViT of sounds": _of(
        "simple_vit_1d", "SimpleViT", 2, 3, 32, seq_len=32, patch_size=4, num_classes=5, **_SIZES
    ),
    "DeepViT": _of("deepvit", "DeepViT", **_SIZES, **_IMAGE),
    "CaiT": _of("cait", "CaiT", cls_depth=1, **_SIZES, **_IMAGE),
    "T2TViT": _of(
        "t2t", "T2TViT", 2, 3, 32, 32, image_size=32, num_classes=5, t2t_layers=((7, 4), (3, 2)), **_SIZES
    ),
    "CCT": _of(
        "cct",
        "CCT",
        img_size=(16, 16),
        embedding_dim=16,
        n_conv_layers=1,
        num_layers=1,
        num_heads=2,
        mlp_ratio=2.0,
        num_classes=5,
        positional_embedding="learnable",
    ),
    "MobileViT": _of(
        "mobile_vit",
        "MobileViT",
        1,
        3,
        64,
        64,
        image_size=(64, 64),
        dims=[8, 8, 8],
        channels=[4, 4, 8, 8, 8, 8, 8, 8, 8, 8, 16],
        num_classes=5,
        depths=(1, 1, 1),
    ),
    "PiT": _of(
        "pit", "PiT", image_size=16, patch_size=4, dim=16, num_classes=5, depth=(1, 1), heads=2, mlp_dim=32
    ),
    "XCiT": _of("xcit", "XCiT", cls_depth=1, **_SIZES, **_IMAGE),
    "SimpleViT of videos": _of(
        "simple_vit_3d",
        "SimpleViT",
        1,
        3,
        4,
        16,
        16,
        image_size=16,
        frames=4,
        frame_patch_size=2,
        image_patch_size=4,
        num_classes=5,
        **_SIZES,
    ),
    "ViT with dropout of patches": _of("vit_with_patch_dropout", "ViT", **_SIZES, **_IMAGE),
}
