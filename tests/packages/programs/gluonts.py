"""Forecasts of time series (`gluonts.torch`): the parameters of distributions."""

from __future__ import annotations

import torch
from gluonts.torch.model.d_linear.module import DLinearModel
from gluonts.torch.model.i_transformer.module import ITransformerModel
from gluonts.torch.model.lag_tst.module import LagTSTModel
from gluonts.torch.model.patch_tst.module import PatchTSTModel
from gluonts.torch.model.simple_feedforward.module import SimpleFeedForwardModel
from gluonts.torch.model.tft import layers
from gluonts.torch.model.tide.module import ResBlock
from gluonts.torch.modules.feature import FeatureEmbedder
from gluonts.torch.scaler import MeanScaler, StdScaler

_TRANSFORMER = {
    "d_model": 8,
    "nhead": 2,
    "dim_feedforward": 16,
    "dropout": 0.0,
    "activation": "relu",
    "norm_first": False,
    "num_encoder_layers": 1,
}


def _past(length: int = 12, *columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(3, length, *columns) + 1, torch.ones(3, length, *columns)


def _scaler(make):
    return lambda: (make(), _past(), {})


def _patches(**more):
    model = PatchTSTModel(4, 12, 4, 2, "end", num_feat_dynamic_real=0, **_TRANSFORMER, **more)
    return model, _past(), {}


PROGRAMS = {
    "DLinear": lambda: (DLinearModel(4, 12, 8, kernel_size=5, scaling="mean"), _past(), {}),
    "DLinear, scaled by deviations": lambda: (
        DLinearModel(4, 12, 8, kernel_size=5, scaling="std"),
        _past(),
        {},
    ),
    "SimpleFeedForward": lambda: (SimpleFeedForwardModel(4, 12, [8, 8]), _past()[:1], {}),
    "SimpleFeedForward with batch norms": lambda: (
        SimpleFeedForwardModel(4, 12, [8, 8], batch_norm=True),
        _past()[:1],
        {},
    ),
    "PatchTST": lambda: _patches(scaling="mean"),
    "PatchTST, scaled by deviations": lambda: _patches(scaling="std"),
    "LagTST": lambda: (
        LagTSTModel(4, 12, freq="D", lags_seq=[1, 2, 3], scaling="mean", **_TRANSFORMER),
        _past(15),
        {},
    ),
    "ITransformer": lambda: (
        ITransformerModel(4, 12, scaling="mean", nonnegative_pred_samples=False, **_TRANSFORMER),
        _past(12, 2),
        {},
    ),
    "MeanScaler": _scaler(lambda: MeanScaler(dim=1, keepdim=True)),
    "StdScaler": _scaler(lambda: StdScaler(dim=1, keepdim=True)),
    "ResBlock": lambda: (ResBlock(6, 8, 4, 0.1, True), (torch.randn(3, 6),), {}),
    "GatedResidualNetwork": lambda: (
        layers.GatedResidualNetwork(8, d_static=4),
        (torch.randn(3, 5, 8), torch.randn(3, 5, 4)),
        {},
    ),
    "VariableSelectionNetwork": lambda: (
        layers.VariableSelectionNetwork(8, 3),
        ([torch.randn(3, 5, 8) for _ in range(3)],),
        {},
    ),
    "TemporalFusionEncoder": lambda: (
        layers.TemporalFusionEncoder(8, 8),
        (torch.randn(3, 5, 8), torch.randn(3, 4, 8)),
        {},
    ),
    "FeatureEmbedder": lambda: (FeatureEmbedder([4, 5], [3, 2]), (torch.randint(0, 4, (3, 6, 2)),), {}),
}
