"""Filters and resampling of sound (`julius`)."""

from __future__ import annotations

import julius
import torch


def _sound(length: int = 400) -> torch.Tensor:
    return torch.randn(2, 2, length)


PROGRAMS = {
    "ResampleFrac up": lambda: (julius.ResampleFrac(2, 3), (_sound(),), {}),
    "ResampleFrac down": lambda: (julius.ResampleFrac(5, 2), (_sound(),), {}),
    "ResampleFrac of full length": lambda: (julius.ResampleFrac(4, 1, zeros=8), (_sound(),), {"full": True}),
    "LowPassFilter": lambda: (julius.LowPassFilter(0.2), (_sound(),), {}),
    "LowPassFilter by FFT": lambda: (julius.LowPassFilter(0.02, fft=True), (_sound(2000),), {}),
    "LowPassFilters": lambda: (julius.LowPassFilters([0.1, 0.2]), (_sound(),), {}),
    "HighPassFilter": lambda: (julius.HighPassFilter(0.2), (_sound(),), {}),
    "BandPassFilter": lambda: (julius.BandPassFilter(0.1, 0.3), (_sound(),), {}),
    "SplitBands": lambda: (julius.SplitBands(8000, 4), (_sound(),), {}),
    "FFTConv1d": lambda: (julius.FFTConv1d(2, 3, 50), (_sound(),), {}),
    "FFTConv1d with strides": lambda: (julius.FFTConv1d(2, 3, 50, stride=4), (_sound(),), {}),
    "unfold": lambda: (lambda x: julius.core.unfold(x, 16, 8), (_sound(),), {}),
}
