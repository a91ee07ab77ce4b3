"""Filterbanks and their inverses (`asteroid_filterbanks`)."""

from __future__ import annotations

import torch
from asteroid_filterbanks import (
    STFTFB,
    AnalyticFreeFB,
    Decoder,
    Encoder,
    FreeFB,
    ParamSincFB,
    transforms,
)


def _encoder(kind, n: int = 16, size: int = 16, **more):
    return lambda: (Encoder(kind(n, size, stride=8, **more)), (torch.randn(2, 1, 200),), {})


def _decoder(kind, n: int = 16, size: int = 16):
    return lambda: (Decoder(kind(n, size, stride=8)), (torch.randn(2, n + 2 * (kind is STFTFB), 20),), {})


def _of_spectrum(function):
    return lambda: (function, (torch.randn(2, 18, 20),), {})


PROGRAMS = {
    "FreeFB": _encoder(FreeFB),
    "AnalyticFreeFB": _encoder(AnalyticFreeFB),
    "STFTFB": _encoder(STFTFB),
    "ParamSincFB": _encoder(ParamSincFB, 16, 17),
    "FreeFB, decoder": _decoder(FreeFB),
    "STFTFB, decoder": _decoder(STFTFB),
    "magnitude": _of_spectrum(transforms.mag),
    "real and imaginary parts with their magnitude": _of_spectrum(transforms.magreim),
    "phase": _of_spectrum(transforms.angle),
    "magnitude applied": lambda: (
        transforms.apply_mag_mask,
        (torch.randn(2, 18, 20), torch.rand(2, 9, 20)),
        {},
    ),
    "complex mask": lambda: (
        transforms.apply_complex_mask,
        (torch.randn(2, 18, 20), torch.randn(2, 18, 20)),
        {},
    ),
}
