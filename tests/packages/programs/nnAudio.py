"""Spectrograms as convolutions (`nnAudio`)."""

from __future__ import annotations

import torch
from nnAudio import features


def _of(make, length: int = 600):
    return lambda: (make(), (torch.randn(2, length),), {})


PROGRAMS = {
    "STFT, magnitude": _of(
        lambda: features.STFT(64, hop_length=16, output_format="Magnitude", verbose=False)
    ),
    "STFT, complex": _of(lambda: features.STFT(64, hop_length=16, output_format="Complex", verbose=False)),
    "STFT, phase": _of(lambda: features.STFT(64, hop_length=16, output_format="Phase", verbose=False)),
    "STFT, not centred": _of(lambda: features.STFT(64, hop_length=16, center=False, verbose=False)),
    "STFT, log frequencies": _of(
        lambda: features.STFT(
            64, hop_length=16, freq_scale="log", fmin=50, fmax=6000, sr=16000, verbose=False
        )
    ),
    "MelSpectrogram": _of(
        lambda: features.MelSpectrogram(16000, 128, n_mels=16, hop_length=32, verbose=False)
    ),
    "MFCC": _of(lambda: features.MFCC(16000, 8, n_fft=128, n_mels=16, hop_length=32, verbose=False)),
    "Gammatonegram": _of(
        lambda: features.Gammatonegram(16000, n_fft=128, n_bins=16, hop_length=32, verbose=False)
    ),
    "CQT1992v2": _of(
        lambda: features.CQT1992v2(8000, 64, fmin=220, n_bins=24, bins_per_octave=12, verbose=False), 3000
    ),
    "CQT2010v2": _of(
        lambda: features.CQT2010v2(8000, 64, fmin=220, n_bins=24, bins_per_octave=12, verbose=False), 3000
    ),
    "VQT": _of(lambda: features.VQT(8000, 64, fmin=220, n_bins=24, bins_per_octave=12, verbose=False), 3000),
}
