"""Parts of Segment Anything (`segment_anything`)."""

from __future__ import annotations

import torch
from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, TwoWayTransformer
from torch import nn


def _encoder(**options):
    module = ImageEncoderViT(
        img_size=32,
        patch_size=4,
        embed_dim=16,
        depth=2,
        num_heads=2,
        out_chans=8,
        use_rel_pos=True,
        **options,
    )
    return module.eval(), (torch.randn(1, 3, 32, 32),), {}


class _Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = MaskDecoder(
            transformer_dim=16, transformer=TwoWayTransformer(1, 16, 2, 32), num_multimask_outputs=3,
            iou_head_depth=2, iou_head_hidden_dim=16,
        )  # fmt: skip

    def forward(self, image, places, sparse, dense):
        return self.decoder(image, places, sparse, dense, True)


class _Prompts(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = PromptEncoder(16, (4, 4), (16, 16), 4)

    def forward(self, points, labels, boxes):
        return self.encoder((points, labels), boxes, None)


PROGRAMS = {
    "image encoder, windows": lambda: _encoder(window_size=3, global_attn_indexes=(1,)),
    "image encoder": lambda: _encoder(window_size=0, global_attn_indexes=()),
    "mask decoder": lambda: (
        _Decoder().eval(),
        (*(torch.randn(1, 16, 4, 4) for _ in range(2)), torch.randn(3, 2, 16), torch.randn(3, 16, 4, 4)),
        {},
    ),
    "prompt encoder": lambda: (
        _Prompts().eval(),
        (torch.rand(2, 3, 2) * 16, torch.randint(0, 2, (2, 3)), torch.rand(2, 4) * 16),
        {},
    ),
    "two-way transformer": lambda: (
        TwoWayTransformer(1, 16, 2, 32).eval(),
        (torch.randn(2, 16, 4, 5), torch.randn(2, 16, 4, 5), torch.randn(2, 3, 16)),
        {},
    ),
}
