"""Normalising flows (`normflows`)."""

from __future__ import annotations

import normflows as nf
import torch


def _of(make, *shape: int):
    return lambda: (make(), (torch.randn(shape or (5, 4)),), {})


class _LogProbability(torch.nn.Module):
    def __init__(self, of):
        super().__init__()
        self.of = of

    def forward(self, x):
        return self.of.log_prob(x)


class _Inverse(torch.nn.Module):
    def __init__(self, flow):
        super().__init__()
        self.flow = flow

    def forward(self, x):
        return self.flow.inverse(x)


def _mlp(*sizes: int):
    return nf.nets.MLP(list(sizes), init_zeros=False)


def _mask() -> torch.Tensor:
    return torch.tensor([1.0, 0.0, 1.0, 0.0])


def _real_nvp():
    parts = [nf.flows.AffineCouplingBlock(_mlp(2, 8, 4)), nf.flows.Permute(4, mode="swap")]
    return nf.NormalizingFlow(nf.distributions.DiagGaussian(4), parts)


PROGRAMS = {
    "AffineCouplingBlock": _of(lambda: nf.flows.AffineCouplingBlock(_mlp(2, 8, 4))),
    "MaskedAffineFlow": _of(lambda: nf.flows.MaskedAffineFlow(_mask(), _mlp(4, 8, 4), _mlp(4, 8, 4))),
    "Planar": _of(lambda: nf.flows.Planar((4,), act="leaky_relu")),
    "Radial": _of(lambda: nf.flows.Radial((4,))),
    "Permute": _of(lambda: nf.flows.Permute(4)),
    "ActNorm, inverse": _of(lambda: _Inverse(nf.flows.MaskedAffineFlow(_mask(), _mlp(4, 8, 4), None))),
    "LULinearPermute": _of(lambda: nf.flows.LULinearPermute(4)),
    "Invertible1x1Conv": _of(lambda: nf.flows.Invertible1x1Conv(4), 2, 4, 3, 3),
    "InvertibleAffine": _of(lambda: nf.flows.InvertibleAffine(4)),
    "Squeeze": _of(lambda: _Inverse(nf.flows.Squeeze()), 2, 4, 6, 6),
    "MaskedAffineAutoregressive": _of(lambda: _Inverse(nf.flows.MaskedAffineAutoregressive(4, 8))),
    "CoupledRationalQuadraticSpline": _of(
        lambda: _Inverse(nf.flows.CoupledRationalQuadraticSpline(4, 1, 8, num_bins=4))
    ),
    "AutoregressiveRationalQuadraticSpline": _of(
        lambda: _Inverse(nf.flows.AutoregressiveRationalQuadraticSpline(4, 1, 8, num_bins=4))
    ),
    "RealNVP": _of(lambda: _LogProbability(_real_nvp())),
    "GaussianMixture": _of(lambda: _LogProbability(nf.distributions.GaussianMixture(3, 4))),
    "TwoMoons": _of(lambda: _LogProbability(nf.distributions.TwoMoons()), 5, 2),
    "CircularGaussianMixture": _of(lambda: _LogProbability(nf.distributions.CircularGaussianMixture()), 5, 2),
    "ResidualNet": _of(lambda: nf.nets.ResidualNet(4, 3, 8, num_blocks=1)),
    "MADE": _of(lambda: nf.nets.MADE(4, 8, num_blocks=1)),
    "ConvNet2d": _of(lambda: nf.nets.ConvNet2d([3, 4, 2], [3, 1]), 2, 3, 6, 6),
}
