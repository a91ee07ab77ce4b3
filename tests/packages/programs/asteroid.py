"""Separation of voices (`asteroid`) with its filterbanks."""

from __future__ import annotations

import torch
from asteroid import losses, masknn, models
from asteroid.masknn import convolutional, norms, recurrent

FILTERS = {"n_filters": 16, "kernel_size": 16, "stride": 8}
BLOCKS = {"n_blocks": 2, "n_repeats": 1, "bn_chan": 8, "hid_chan": 16, "skip_chan": 8}


def _sound(length: int = 320) -> torch.Tensor:
    return torch.randn(2, 1, length)


def _of(make, args=lambda: (_sound(),)):
    return lambda: (make(), args(), {})


def _features(channels: int = 8, length: int = 20) -> tuple[torch.Tensor]:
    return (torch.randn(2, channels, length),)


def _two() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, 2, 200), torch.randn(2, 2, 200)


PROGRAMS = {
    "ConvTasNet": _of(lambda: models.ConvTasNet(2, **FILTERS, **BLOCKS)),
    "ConvTasNet, causal": _of(
        lambda: models.ConvTasNet(2, causal=True, norm_type="cLN", **FILTERS, **BLOCKS)
    ),
    "DPRNNTasNet": _of(
        lambda: models.DPRNNTasNet(
            2, bn_chan=8, hid_size=8, chunk_size=10, hop_size=5, n_repeats=1, **FILTERS
        )
    ),
    "DPTNet": _of(
        lambda: models.DPTNet(2, n_heads=2, ff_hid=8, chunk_size=10, hop_size=5, n_repeats=1, **FILTERS)
    ),
    "SuDORMRFNet": _of(
        lambda: models.SuDORMRFNet(
            2, bn_chan=8, num_blocks=1, upsampling_depth=2, n_filters=16, kernel_size=17, stride=8
        )
    ),
    "DeMask": _of(
        lambda: models.DeMask(
            hidden_dims=(16,), n_filters=32, kernel_size=32, stride=16, fb_type="stft", sample_rate=8000
        )
    ),
    "TDConvNet": _of(
        lambda: masknn.TDConvNet(8, 2, n_blocks=2, n_repeats=1, bn_chan=8, hid_chan=16), _features
    ),
    "DPRNN": _of(
        lambda: masknn.DPRNN(8, 2, bn_chan=8, hid_size=8, chunk_size=6, hop_size=3, n_repeats=1), _features
    ),
    "LSTMMasker": _of(lambda: masknn.LSTMMasker(8, 2, n_layers=1, hid_size=8), _features),
    "Conv1DBlock": _of(lambda: convolutional.Conv1DBlock(8, 16, 8, 3, 1, 1), _features),
    "SingleRNN": _of(
        lambda: recurrent.SingleRNN("GRU", 8, 8, 2, bidirectional=True), lambda: (torch.randn(2, 9, 8),)
    ),
    "GlobLN": _of(lambda: norms.GlobLN(8), _features),
    "CumLN": _of(lambda: norms.CumLN(8), _features),
    "FeatsGlobLN": _of(lambda: norms.FeatsGlobLN(8), lambda: (torch.randn(2, 8, 5, 6),)),
    "pairwise negative SI-SDR": _of(lambda: losses.pairwise_neg_sisdr, _two),
    "SI-SDR with permutations": _of(
        lambda: losses.PITLossWrapper(losses.pairwise_neg_sisdr, pit_from="pw_mtx"), _two
    ),
}
