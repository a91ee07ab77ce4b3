"""Parts of models of images and text (`open_clip`)."""

from __future__ import annotations

from typing import Any

import torch
from open_clip import model, modified_resnet, transformer
from open_clip.loss import ClipLoss, SigLipLoss

_TEXT: dict[str, Any] = {"context_length": 8, "vocab_size": 20, "width": 16, "heads": 2, "layers": 1}
_IMAGE: dict[str, Any] = {
    "image_size": 16,
    "patch_size": 4,
    "width": 16,
    "layers": 1,
    "heads": 2,
    "mlp_ratio": 2.0,
    "output_dim": 8,
}


def _image() -> torch.Tensor:
    return torch.randn(2, 3, 16, 16)


def _tokens() -> torch.Tensor:
    return torch.randint(1, 20, (2, 8))


def _clip(**more: Any) -> Any:
    vision = {"image_size": 16, "patch_size": 4, "width": 16, "layers": 1, "head_width": 8}
    return model.CLIP(8, vision, {**_TEXT, **more}), (_image(), _tokens()), {}


def _loss(make: Any, *more: float) -> Any:
    def of():
        first, second = (torch.nn.functional.normalize(torch.randn(4, 8), dim=1) for _ in range(2))
        return make(), (first, second, *map(torch.tensor, (*more,))), {}

    return of


PROGRAMS = {
    "CLIP": _clip,
    "CLIP with text's last token": lambda: _clip(pool_type="last"),
    "VisionTransformer": lambda: (transformer.VisionTransformer(**_IMAGE), (_image(),), {}),
    "VisionTransformer with attentional pool": lambda: (
        transformer.VisionTransformer(
            **_IMAGE, attentional_pool=True, attn_pooler_queries=4, attn_pooler_heads=2
        ),
        (_image(),),
        {},
    ),
    "VisionTransformer with average pool": lambda: (
        transformer.VisionTransformer(**_IMAGE, pool_type="avg", no_ln_pre=True),
        (_image(),),
        {},
    ),
    "TextTransformer": lambda: (transformer.TextTransformer(**_TEXT, output_dim=8), (_tokens(),), {}),
    "TextTransformer with a class token": lambda: (
        transformer.TextTransformer(**_TEXT, output_dim=8, embed_cls=True, pad_id=0),
        (_tokens(),),
        {},
    ),
    "MultimodalTransformer": lambda: (
        transformer.MultimodalTransformer(width=16, layers=1, heads=2, context_length=8, output_dim=8),
        (torch.randn(2, 5, 16), torch.randn(2, 8, 16)),
        {},
    ),
    "ModifiedResNet": lambda: (
        modified_resnet.ModifiedResNet((1, 1, 1, 1), 8, 4, image_size=64, width=8),
        (torch.randn(1, 3, 64, 64),),
        {},
    ),
    "AttentionalPooler": lambda: (
        transformer.AttentionalPooler(8, 16, n_head=2, n_queries=4),
        (torch.randn(2, 9, 16),),
        {},
    ),
    "ClipLoss": _loss(ClipLoss, 10.0),
    "SigLipLoss": _loss(SigLipLoss, 10.0, -10.0),
}
