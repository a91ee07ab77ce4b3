"""Normalising flows (`nflows`)."""

from __future__ import annotations

import torch
from nflows import distributions, flows, nn, transforms
from nflows.transforms import autoregressive, coupling

MASK = torch.tensor([1, 0, 1, 0])


def _rows(width: int = 4, rows: int = 5) -> torch.Tensor:
    return torch.randn(rows, width)


def _net(n_in: int, n_out: int):
    return nn.nets.ResidualNet(n_in, n_out, hidden_features=8, num_blocks=1)


def _transform(make, x=_rows):
    return lambda: (make(), (x(),), {})


class _LogProbability(torch.nn.Module):
    def __init__(self, flow):
        super().__init__()
        self.flow = flow

    def forward(self, *args):
        return self.flow.log_prob(*args)


def _unit() -> torch.Tensor:
    return torch.rand(5, 4)


def _flow():
    parts = [
        transforms.ReversePermutation(4),
        transforms.MaskedAffineAutoregressiveTransform(4, 8, num_blocks=1),
        transforms.LULinear(4),
    ]
    return flows.Flow(transforms.CompositeTransform(parts), distributions.StandardNormal([4]))


PROGRAMS = {
    "affine coupling": _transform(lambda: coupling.AffineCouplingTransform(MASK, _net)),
    "additive coupling": _transform(lambda: coupling.AdditiveCouplingTransform(MASK, _net)),
    "quadratic spline coupling": _transform(
        lambda: coupling.PiecewiseQuadraticCouplingTransform(MASK, _net, 4, tails="linear", tail_bound=2.0)
    ),
    "rational quadratic spline coupling": _transform(
        lambda: coupling.PiecewiseRationalQuadraticCouplingTransform(
            MASK, _net, 4, tails="linear", tail_bound=2.0
        )
    ),
    "affine autoregressive": _transform(
        lambda: autoregressive.MaskedAffineAutoregressiveTransform(4, 8, num_blocks=1)
    ),
    "rational quadratic spline, autoregressive": _transform(
        lambda: autoregressive.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
            4, 8, num_bins=4, num_blocks=1, tails="linear"
        )
    ),
    "LU": _transform(lambda: transforms.LULinear(4)),
    "QR": _transform(lambda: transforms.QRLinear(4, 2)),
    "SVD": _transform(lambda: transforms.SVDLinear(4, 2)),
    "Householder": _transform(lambda: transforms.HouseholderSequence(4, 3)),
    "random permutation": _transform(lambda: transforms.RandomPermutation(4)),
    "sigmoid": _transform(transforms.Sigmoid),
    "logit": _transform(transforms.Logit, _unit),
    "batch norm": _transform(lambda: transforms.BatchNorm(4)),
    "one by one convolution": _transform(
        lambda: transforms.OneByOneConvolution(4), lambda: torch.randn(2, 4, 3, 3)
    ),
    "squeeze": _transform(transforms.SqueezeTransform, lambda: torch.randn(2, 4, 6, 6)),
    "made": _transform(lambda: transforms.made.MADE(4, 8, num_blocks=1)),
    "log probability of a flow": lambda: (_LogProbability(_flow()), (_rows(),), {}),
    "log probability, normal": lambda: (
        _LogProbability(distributions.DiagonalNormal([4])),
        (_rows(),),
        {},
    ),
    "log probability, autoregressive mixture": lambda: (
        _LogProbability(
            distributions.MADEMoG(
                4, 8, None, num_blocks=1, num_mixture_components=2, custom_initialization=True
            )
        ),
        (_rows(),),
        {},
    ),
}
