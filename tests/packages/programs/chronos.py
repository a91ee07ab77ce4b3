"""Forecasts by language models of time series (`chronos`)."""

from __future__ import annotations

import torch
from chronos.chronos_bolt import ChronosBoltModelForForecasting, InstanceNorm, Patch, ResidualBlock
from transformers import T5Config


def _bolt(**more):
    series = {
        "context_length": 32,
        "prediction_length": 4,
        "input_patch_size": 4,
        "input_patch_stride": 4,
        "quantiles": [0.1, 0.5, 0.9],
        **more,
    }
    config = T5Config(
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_decoder_layers=1,
        num_heads=2,
        vocab_size=2,
        pad_token_id=0,
        decoder_start_token_id=0,
        is_encoder_decoder=True,
        feed_forward_proj="relu",
    )
    config.chronos_config = series
    return _Quantiles(ChronosBoltModelForForecasting(config))


class _Quantiles(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, series, mask=None):
        return self.model(series, mask=mask).quantile_preds


def _series(length: int = 16) -> torch.Tensor:
    return torch.randn(3, length)


PROGRAMS = {
    "Bolt": lambda: (_bolt(), (_series(),), {}),
    "Bolt with a register token": lambda: (_bolt(use_reg_token=True), (_series(),), {}),
    "Bolt with a mask": lambda: (_bolt(), (_series(), torch.rand(3, 16) > 0.2), {}),
    "Bolt, length of no whole patches": lambda: (_bolt(), (_series(18),), {}),
    "Patch": lambda: (Patch(4, 4), (_series(),), {}),
    "Patch with overlaps": lambda: (Patch(4, 2), (_series(),), {}),
    "Patch, length of no whole patches": lambda: (Patch(4, 4), (_series(18),), {}),
    "InstanceNorm": lambda: (InstanceNorm(), (_series(),), {}),
    "InstanceNorm, arcsinh": lambda: (InstanceNorm(use_arcsinh=True), (_series(),), {}),
    "ResidualBlock": lambda: (ResidualBlock(8, 16, 4, "relu"), (torch.randn(3, 5, 8),), {}),
    "ResidualBlock with a norm": lambda: (
        ResidualBlock(8, 16, 4, "silu", use_layer_norm=True),
        (torch.randn(3, 5, 8),),
        {},
    ),
}
