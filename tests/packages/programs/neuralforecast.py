"""Forecasts of time series (`neuralforecast`)."""

from __future__ import annotations

import torch
from neuralforecast import models

COMMON = {"h": 4, "input_size": 12, "max_steps": 1, "alias": None}


class _Forecast(torch.nn.Module):
    """A model without the trainer around it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, past, mask):
        windows = {"insample_y": past, "insample_mask": mask}
        return self.model(windows | dict.fromkeys(("futr_exog", "hist_exog", "stat_exog")))


def _of(name: str, columns: int = 1, **options):
    def make():
        several = {"n_series": columns} if columns > 1 else {}
        model = getattr(models, name)(**COMMON, **several, **options)
        return _Forecast(model), (torch.rand(3, 12, columns), torch.ones(3, 12, columns)), {}

    return make


PROGRAMS = {
    "MLP": _of("MLP", hidden_size=8),
    "NBEATS": _of("NBEATS", mlp_units=[[8, 8]] * 3),
    "NHITS": _of("NHITS", mlp_units=[[8, 8]] * 3),
    "DLinear": _of("DLinear", moving_avg_window=5),
    "NLinear": _of("NLinear"),
    "TiDE": _of("TiDE", hidden_size=8, decoder_output_dim=4, temporal_decoder_dim=8),
    "TCN": _of("TCN", encoder_hidden_size=8, decoder_hidden_size=8, dilations=[1, 2]),
    "LSTM": _of("LSTM", encoder_hidden_size=8, decoder_hidden_size=8, encoder_n_layers=1),
    "GRU": _of("GRU", encoder_hidden_size=8, decoder_hidden_size=8, encoder_n_layers=1),
    "PatchTST": _of(
        "PatchTST", hidden_size=8, n_heads=2, encoder_layers=1, patch_len=4, stride=2, linear_hidden_size=8
    ),
    "DeepNPTS": _of("DeepNPTS", hidden_size=8),
    "KAN": _of("KAN", hidden_size=8),
    "BiTCN": _of("BiTCN", hidden_size=8),
    "TimesNet": _of("TimesNet", hidden_size=8, conv_hidden_size=8, encoder_layers=1),
    "VanillaTransformer": _of(
        "VanillaTransformer", hidden_size=8, n_head=2, conv_hidden_size=8, encoder_layers=1
    ),
    "RMoK": _of("RMoK", 2),
    "TimeMixer": _of("TimeMixer", 2, d_model=8, d_ff=8, e_layers=1),
    "iTransformer": _of("iTransformer", 2, hidden_size=8, n_heads=2, e_layers=1, d_ff=8),
    "TSMixer": _of("TSMixer", 2, ff_dim=8),
    "SOFTS": _of("SOFTS", 2, hidden_size=8, d_core=8, e_layers=1, d_ff=8),
    "StemGNN": _of("StemGNN", 2),
}
