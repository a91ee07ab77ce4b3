"""Harmonics on the sphere (`torch_harmonics`)."""

from __future__ import annotations

import torch
import torch_harmonics as th
from torch_harmonics import quadrature


class _Real(torch.nn.Module):
    """Gives complex results as pairs of numbers."""

    def __init__(self, transform):
        super().__init__()
        self.transform = transform

    def forward(self, x):
        return torch.view_as_real(self.transform(x))


class _FromReal(torch.nn.Module):
    """Takes complex arguments as pairs of numbers."""

    def __init__(self, transform):
        super().__init__()
        self.transform = transform

    def forward(self, x):
        return self.transform(torch.view_as_complex(x))


class _There(torch.nn.Module):
    """A transform and its inverse."""

    def __init__(self, **grid):
        super().__init__()
        self.there, self.back = th.RealSHT(8, 16, **grid), th.InverseRealSHT(8, 16, **grid)

    def forward(self, x):
        return self.back(self.there(x))


def _of(make, *shape: int):
    return lambda: (make(), (torch.randn(shape),), {})


PROGRAMS = {
    "RealSHT": _of(lambda: _Real(th.RealSHT(8, 16)), 2, 3, 8, 16),
    "RealSHT, Legendre-Gauss": _of(lambda: _Real(th.RealSHT(8, 16, grid="legendre-gauss")), 2, 8, 16),
    "InverseRealSHT": _of(lambda: _FromReal(th.InverseRealSHT(8, 16, lmax=8, mmax=8)), 2, 8, 8, 2),
    "RealVectorSHT": _of(lambda: _Real(th.RealVectorSHT(8, 16)), 2, 2, 8, 16),
    "InverseRealVectorSHT": _of(
        lambda: _FromReal(th.InverseRealVectorSHT(8, 16, lmax=8, mmax=8)), 2, 2, 8, 8, 2
    ),
    "there and back": _of(_There, 2, 8, 16),
    "there and back, Lobatto": _of(lambda: _There(grid="lobatto"), 2, 8, 16),
    "ResampleS2": _of(lambda: th.ResampleS2(8, 16, 12, 24), 2, 3, 8, 16),
    "DiscreteContinuousConvS2": _of(
        lambda: th.DiscreteContinuousConvS2(4, 6, (8, 16), (8, 16), (3,), theta_cutoff=0.5), 2, 4, 8, 16
    ),
    "AttentionS2": lambda: (
        th.AttentionS2(8, 2, (8, 16), (8, 16)),
        (torch.randn(2, 8, 8, 16),),
        {},
    ),
    "QuadratureS2": _of(lambda: quadrature.QuadratureS2((8, 16)), 2, 3, 8, 16),
}
