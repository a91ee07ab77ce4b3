"""Differential equations (`torchdiffeq`), solved with steps of fixed size."""

from __future__ import annotations

import torch
from torchdiffeq import odeint


class _Field(torch.nn.Module):
    def __init__(self, width: int = 3):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(width, 8), torch.nn.Tanh(), torch.nn.Linear(8, width))

    def forward(self, t, y):
        return self.net(y) - 0.1 * t * y


class _Solved(torch.nn.Module):
    def __init__(self, method: str, field=None, **options):
        super().__init__()
        self.field, self.method, self.options = field or _Field(), method, options or None
        self.register_buffer("times", torch.linspace(0.0, 1.0, 4))

    def forward(self, y):
        return odeint(self.field, y, self.times, method=self.method, options=self.options)


def _spiral(t, y):
    return torch.stack((y[..., 1], -y[..., 0]), -1) ** 3


def _of(method: str, width: int = 3, **more):
    return lambda: (_Solved(method, **more), (torch.randn(5, width),), {})


PROGRAMS = {
    **{name: _of(name) for name in ("euler", "midpoint", "heun2", "heun3", "rk4", "explicit_adams")},
    "euler with half steps": _of("euler", step_size=0.1),
    "rk4 with small steps": _of("rk4", step_size=0.125),
    "spiral by midpoint": _of("midpoint", 2, field=_spiral),
    "spiral by rk4": _of("rk4", 2, field=_spiral),
}
