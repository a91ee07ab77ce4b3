"""Rearrangements of axes (`einops`)."""

from __future__ import annotations

import torch
from einops import einsum, pack, rearrange, reduce, repeat
from einops.layers.torch import EinMix, Rearrange, Reduce
from torch import nn


def _image() -> tuple[torch.Tensor]:
    return (torch.randn(2, 4, 6, 8),)


def _of(function, args=_image):
    return lambda: (function, args(), {})


PROGRAMS = {
    "space to depth": _of(lambda x: rearrange(x, "b c (h p) (w q) -> b (c p q) h w", p=2, q=2)),
    "depth to space": _of(lambda x: rearrange(x, "b (c p q) h w -> b c (h p) (w q)", p=2, q=2)),
    "heads": _of(
        lambda x: rearrange(x, "b n (three h d) -> three b h n d", three=3, h=2),
        lambda: (torch.randn(2, 5, 24),),
    ),
    "windows": _of(lambda x: rearrange(x, "b c (h p) (w q) -> (b h w) (p q) c", p=3, q=4)),
    "mean over axes": _of(lambda x: reduce(x, "b c h w -> b c", "mean")),
    "pooling": _of(lambda x: reduce(x, "b c (h 2) (w 2) -> b c h w", "max")),
    "repeat": _of(lambda x: repeat(x, "b c h w -> b c (h 2) (w 3)")),
    "repeat over a new axis": _of(
        lambda x, y: torch.cat((repeat(x, "1 n d -> b n d", b=y.shape[0]), y), 1),
        lambda: (torch.randn(1, 3, 4), torch.randn(2, 5, 4)),
    ),
    "einsum": _of(
        lambda q, k: einsum(q, k, "b h i d, b h j d -> b h i j"),
        lambda: (torch.randn(2, 2, 5, 4), torch.randn(2, 2, 6, 4)),
    ),
    "pack": _of(
        lambda x, y: pack([x, y], "b * d")[0], lambda: (torch.randn(2, 3, 4), torch.randn(2, 5, 6, 4))
    ),
    "layers": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2),
            nn.Linear(16, 8),
            Reduce("b n d -> b d", "mean"),
        ),
        (torch.randn(2, 3, 6, 8),),
        {},
    ),
    "EinMix": lambda: (
        EinMix("b t d -> b t e", weight_shape="d e", bias_shape="e", d=6, e=4),
        (torch.randn(2, 5, 6),),
        {},
    ),
}
