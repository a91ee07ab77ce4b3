"""Stochastic differential equations (`torchsde`), solved along noise that is given."""

from __future__ import annotations

import torch


class _Path:
    """A path of noise as torchsde asks for it: what it did between two times."""

    def __init__(self, steps):
        self.steps, self.shape, self.levy_area_approximation = steps, steps.shape[1:], "none"
        self.dtype, self.device = steps.dtype, steps.device
        self.at = 0

    def __call__(self, start, end, **_):
        self.at += 1
        return self.steps[(self.at - 1) % self.steps.shape[0]]


class _Equation(torch.nn.Module):
    def __init__(self, kind: str):
        super().__init__()
        self.noise_type, self.sde_type = "diagonal", kind
        self.drift = torch.nn.Linear(3, 3)

    def f(self, t, y):
        return torch.tanh(self.drift(y))

    def g(self, t, y):
        return 0.1 * y.sigmoid()


class _Solved(torch.nn.Module):
    def __init__(self, method: str, kind: str = "ito"):
        super().__init__()
        self.equation, self.method = _Equation(kind), method
        self.register_buffer("times", torch.tensor([0.0, 0.25, 0.5]))

    def forward(self, y, steps):
        import torchsde

        options = {"bm": _Path(steps), "dt": 0.125, "method": self.method}
        return torchsde.sdeint(self.equation, y, self.times, **options)


def _of(*args):
    return lambda: (_Solved(*args), (torch.randn(5, 3), 0.1 * torch.randn(4, 5, 3)), {})


PROGRAMS = {
    "euler": _of("euler"),
    "milstein": _of("milstein"),
    "euler_heun": _of("euler_heun", "stratonovich"),
    "heun": _of("heun", "stratonovich"),
    "midpoint": _of("midpoint", "stratonovich"),
    "milstein, stratonovich": _of("milstein", "stratonovich"),
}
