"""Networks that enlarge and restore images (`spandrel`)."""

from __future__ import annotations

import importlib
from typing import Any

import torch


def _of(architecture: str, name: str, side: int = 16, **more: Any) -> Any:
    def make():
        module = importlib.import_module(f"spandrel.architectures.{architecture}")
        return getattr(module, name)(**more), (torch.rand(1, 3, side, side),), {}

    return make


PROGRAMS = {
    "ESRGAN": _of("ESRGAN.__arch.RRDB", "RRDBNet", num_filters=8, num_blocks=1, scale=2),
    "Compact": _of("Compact.__arch.SRVGG", "SRVGGNetCompact", num_feat=8, num_conv=2, upscale=2),
    "SPAN": _of("SPAN.__arch.span", "SPAN", num_in_ch=3, num_out_ch=3, feature_channels=8, upscale=2),
    "SwinIR": _of(
        "SwinIR.__arch.SwinIR",
        "SwinIR",
        img_size=16,
        window_size=4,
        depths=[2],
        embed_dim=8,
        num_heads=[2],
        mlp_ratio=2,
        upscale=2,
        upsampler="pixelshuffledirect",
    ),
    "RGT": _of(
        "RGT.__arch.rgt",
        "RGT",
        img_size=16,
        embed_dim=8,
        depth=[1],
        num_heads=[2],
        split_size=[4, 4],
        mlp_ratio=2.0,
        upscale=2,
    ),
    "DAT": _of(
        "DAT.__arch.DAT",
        "DAT",
        img_size=16,
        embed_dim=32,
        depth=[1],
        num_heads=[2],
        split_size=[4, 4],
        expansion_factor=2.0,
        upscale=2,
    ),
    "SAFMN": _of("SAFMN.__arch.safmn", "SAFMN", dim=8, n_blocks=1, ffn_scale=2.0, upscaling_factor=2),
    "NAFNet": _of(
        "NAFNet.__arch.NAFNet_arch", "NAFNet", width=4, middle_blk_num=1, enc_blk_nums=[1], dec_blk_nums=[1]
    ),
    "OmniSR": _of("OmniSR.__arch.OmniSR", "OmniSR", num_feat=8, res_num=1, block_num=1, up_scale=2),
    "PLKSR": _of("PLKSR.__arch.PLKSR", "PLKSR", dim=8, n_blocks=1, upscaling_factor=2),
}
