"""Distances between measures (`geomloss`)."""

from __future__ import annotations

import torch
from geomloss import SamplesLoss


def _points() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(5, 2), torch.rand(6, 2)


def _of(name: str, **options):
    return lambda: (SamplesLoss(name, backend="tensorized", **options), _points(), {})


PROGRAMS = {
    "sinkhorn": _of("sinkhorn", p=2, blur=0.3, scaling=0.5, diameter=1.0),
    "sinkhorn, p = 1": _of("sinkhorn", p=1, blur=0.3, scaling=0.5, diameter=1.0),
    "sinkhorn, unbalanced": _of("sinkhorn", p=2, blur=0.3, reach=0.5, scaling=0.5, diameter=1.0),
    "sinkhorn, biased": _of("sinkhorn", p=2, blur=0.3, scaling=0.5, diameter=1.0, debias=False),
    "gaussian": _of("gaussian", blur=0.3),
    "laplacian": _of("laplacian", blur=0.3),
    "energy": _of("energy"),
    "gaussian in batches": lambda: (
        SamplesLoss("gaussian", blur=0.3, backend="tensorized"),
        (torch.rand(2, 5, 2), torch.rand(2, 6, 2)),
        {},
    ),
    "weighted energy": lambda: (
        SamplesLoss("energy", backend="tensorized"),
        (torch.full((5,), 0.2), torch.rand(5, 2), torch.full((4,), 0.25), torch.rand(4, 2)),
        {},
    ),
}
