"""Transformers with variations (`x_transformers`)."""

from __future__ import annotations

from typing import Any

import torch
from x_transformers import (
    ContinuousTransformerWrapper,
    CrossAttender,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)


def _encoder(**more: Any) -> Any:
    return lambda: (Encoder(dim=16, depth=1, heads=2, attn_dim_head=8, **more), (torch.randn(2, 6, 16),), {})


def _decoder(**more: Any) -> Any:
    def make() -> Any:
        layers = Decoder(dim=16, depth=1, heads=2, attn_dim_head=8, **more)
        net = TransformerWrapper(num_tokens=32, max_seq_len=64, attn_layers=layers)
        return net, (torch.randint(0, 32, (2, 6)),), {}

    return make


PROGRAMS = {
    "encoder": _encoder(),
    "rotary positions": _encoder(rotary_pos_emb=True),
    "relative positions": _encoder(rel_pos_bias=True),
    "ALiBi": _encoder(alibi_pos_bias=True, alibi_num_heads=2),
    "dynamic positions": _encoder(dynamic_pos_bias=True),
    "RMSNorm": _encoder(use_rmsnorm=True),
    "SwiGLU": _encoder(ff_glu=True, ff_swish=True),
    "squared ReLU": _encoder(ff_relu_squared=True),
    "talking heads": _encoder(attn_pre_talking_heads=True, attn_post_talking_heads=True),
    "sparse top k": _encoder(attn_sparse_topk=3),
    "normed queries": _encoder(attn_qk_norm=True),
    "memories": _encoder(attn_num_mem_kv=3),
    "gated values": _encoder(attn_gate_values=True),
    "sandwich": _encoder(sandwich_norm=True),
    "macaron": _encoder(macaron=True),
    "shifted tokens": _encoder(shift_tokens=1),
    "decoder": _decoder(),
    "decoder with rotary positions": _decoder(rotary_pos_emb=True),
    "decoder with one key head": _decoder(attn_one_kv_head=True),
    "continuous": lambda: (
        ContinuousTransformerWrapper(
            dim_in=5, dim_out=4, max_seq_len=64, attn_layers=Encoder(dim=16, depth=1, heads=2)
        ),
        (torch.randn(2, 6, 5),),
        {},
    ),
    "cross attention": lambda: (
        CrossAttender(dim=16, depth=1, heads=2),
        (torch.randn(2, 6, 16),),
        {"context": torch.randn(2, 4, 16)},
    ),
    "images": lambda: (
        ViTransformerWrapper(
            image_size=16, patch_size=4, num_classes=5, attn_layers=Encoder(dim=16, depth=1, heads=2)
        ),
        (torch.randn(2, 3, 16, 16),),
        {},
    ),
    "encoder and decoder": lambda: (
        XTransformer(
            dim=16,
            enc_num_tokens=32,
            enc_depth=1,
            enc_heads=2,
            enc_max_seq_len=32,
            dec_num_tokens=32,
            dec_depth=1,
            dec_heads=2,
            dec_max_seq_len=32,
        ),
        (torch.randint(0, 32, (2, 6)), torch.randint(0, 32, (2, 5))),
        {},
    ),
}
