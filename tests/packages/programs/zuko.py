"""Normalising flows as distributions (`zuko`)."""

from __future__ import annotations

import torch
import zuko


class _LogProbability(torch.nn.Module):
    def __init__(self, flow):
        super().__init__()
        self.flow = flow

    def forward(self, x, *context):
        return self.flow(*context).log_prob(x)


def _of(name: str, context: int = 2, **options):
    def make():
        flow = getattr(zuko.flows, name)(3, context, transforms=2, hidden_features=(8, 8), **options)
        args = (torch.randn(5, 3), torch.randn(5, context)) if context else (torch.randn(5, 3),)
        return _LogProbability(flow), args, {}

    return make


PROGRAMS = {
    "MAF": _of("MAF"),
    "MAF without context": _of("MAF", 0),
    "NSF": _of("NSF", bins=4),
    "NICE": _of("NICE"),
    "NCSF": _of("NCSF", bins=4),
    "SOSPF": _of("SOSPF", degree=2, polynomials=2),
    "BPF": _of("BPF", degree=4),
    "MLP": lambda: (zuko.nn.MLP(3, 2, (8, 8)), (torch.randn(5, 3),), {}),
    "MLP with norms": lambda: (zuko.nn.MLP(3, 2, (8,), normalize=True), (torch.randn(5, 3),), {}),
    "MaskedMLP": lambda: (zuko.nn.MaskedMLP(torch.ones(4, 3).tril() > 0, (8,)), (torch.randn(5, 3),), {}),
    "MonotonicMLP": lambda: (zuko.nn.MonotonicMLP(3, 2, (8,)), (torch.randn(5, 3),), {}),
}
