"""Embeddings of numbers in tables (`rtdl_num_embeddings`)."""

from __future__ import annotations

import torch
from rtdl_num_embeddings import (
    LinearEmbeddings,
    LinearReLUEmbeddings,
    PeriodicEmbeddings,
    PiecewiseLinearEmbeddings,
    PiecewiseLinearEncoding,
)

BINS = [torch.linspace(-1, 1, n) for n in (4, 3, 6)]


def _of(make):
    return lambda: (make(), (torch.randn(5, 3),), {})


PROGRAMS = {
    "LinearEmbeddings": _of(lambda: LinearEmbeddings(3, 8)),
    "LinearReLUEmbeddings": _of(lambda: LinearReLUEmbeddings(3, 8)),
    "PeriodicEmbeddings": _of(lambda: PeriodicEmbeddings(3, 8, lite=False)),
    "PeriodicEmbeddings, lite": _of(lambda: PeriodicEmbeddings(3, 8, lite=True)),
    "PiecewiseLinearEncoding": _of(lambda: PiecewiseLinearEncoding(BINS)),
    "PiecewiseLinearEmbeddings A": _of(
        lambda: PiecewiseLinearEmbeddings(BINS, 8, activation=True, version="A")
    ),
    "PiecewiseLinearEmbeddings B": _of(
        lambda: PiecewiseLinearEmbeddings(BINS, 8, activation=False, version="B")
    ),
    "network": _of(
        lambda: torch.nn.Sequential(
            PeriodicEmbeddings(3, 8, lite=True), torch.nn.Flatten(), torch.nn.Linear(24, 2)
        )
    ),
}
