"""Parts of forecasts of time series (`pytorch_forecasting`)."""

from __future__ import annotations

import torch
from pytorch_forecasting.layers import _nbeats as nbeats
from pytorch_forecasting.models.nhits import sub_modules as nhits
from pytorch_forecasting.models.temporal_fusion_transformer import sub_modules as tft


def _of(make, *shapes):
    return lambda: (make(), tuple(torch.randn(shape) for shape in shapes), {})


def _variables() -> tuple:
    return {"a": torch.randn(3, 5, 4), "b": torch.randn(3, 5, 1)}, torch.randn(3, 5, 6)


def _selection():
    prescalers = torch.nn.ModuleDict({"b": torch.nn.Linear(1, 8)})
    return tft.VariableSelectionNetwork({"a": 4, "b": 8}, 8, {"a": True}, 0.1, 6, prescalers=prescalers)


PROGRAMS = {
    "GatedLinearUnit": _of(lambda: tft.GatedLinearUnit(4, 8), (3, 5, 4)),
    "ResampleNorm": _of(lambda: tft.ResampleNorm(4, 8), (3, 5, 4)),
    "AddNorm": _of(lambda: tft.AddNorm(4), (3, 5, 4), (3, 5, 4)),
    "GateAddNorm": _of(lambda: tft.GateAddNorm(4, 4), (3, 5, 4), (3, 5, 4)),
    "GatedResidualNetwork": _of(lambda: tft.GatedResidualNetwork(4, 8, 6), (3, 5, 4)),
    "GatedResidualNetwork with a context": _of(
        lambda: tft.GatedResidualNetwork(4, 8, 6, context_size=2), (3, 5, 4), (3, 5, 2)
    ),
    "VariableSelectionNetwork": lambda: (_selection(), _variables(), {}),
    "TimeDistributedInterpolation": _of(lambda: tft.TimeDistributedInterpolation(7), (3, 5, 4)),
    "InterpretableMultiHeadAttention": _of(
        lambda: tft.InterpretableMultiHeadAttention(2, 8), (3, 5, 8), (3, 6, 8), (3, 6, 8)
    ),
    "PositionalEncoder": _of(lambda: tft.PositionalEncoder(8, 20), (3, 5, 8)),
    "N-BEATS seasonal block": _of(
        lambda: nbeats.NBEATSSeasonalBlock(8, 4, backcast_length=6, forecast_length=3), (5, 6)
    ),
    "N-BEATS trend block": _of(
        lambda: nbeats.NBEATSTrendBlock(8, 3, backcast_length=6, forecast_length=3), (5, 6)
    ),
    "N-BEATS generic block": _of(
        lambda: nbeats.NBEATSGenericBlock(8, 4, backcast_length=6, forecast_length=3), (5, 6)
    ),
    "N-HiTS MLP": _of(lambda: nhits.MLP(4, 2, [8, 8], "ReLU", 0.1), (5, 4)),
}
