"""Kernels of Gaussian processes (`gpytorch`)."""

from __future__ import annotations

import gpytorch
import torch
from gpytorch import kernels


class _Dense(torch.nn.Module):
    """The dense matrix of a kernel."""

    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def forward(self, a, b):
        return self.kernel(a, b).to_dense()


class _Mean(torch.nn.Module):
    """The mean of a process after observations, by its formula."""

    def __init__(self):
        super().__init__()
        self.kernel = kernels.ScaleKernel(kernels.RBFKernel())

    def forward(self, seen, values, x):
        inner = self.kernel(seen).to_dense() + 0.1 * torch.eye(seen.shape[0])
        return self.kernel(x, seen).to_dense() @ torch.linalg.solve(inner, values)


def _of(make, width: int = 2):
    return lambda: (_Dense(make()), (torch.randn(5, width), torch.randn(4, width)), {})


PROGRAMS = {
    "RBF": _of(kernels.RBFKernel),
    "RBF with a scale for each column": _of(lambda: kernels.RBFKernel(ard_num_dims=2)),
    "scaled RBF": _of(lambda: kernels.ScaleKernel(kernels.RBFKernel())),
    "Matern 1/2": _of(lambda: kernels.MaternKernel(0.5)),
    "Matern 3/2": _of(lambda: kernels.MaternKernel(1.5)),
    "Matern 5/2": _of(lambda: kernels.MaternKernel(2.5)),
    "periodic": _of(kernels.PeriodicKernel),
    "rational quadratic": _of(kernels.RQKernel),
    "cosine": _of(kernels.CosineKernel),
    "linear": _of(kernels.LinearKernel),
    "polynomial": _of(lambda: kernels.PolynomialKernel(2)),
    "piecewise polynomial": _of(lambda: kernels.PiecewisePolynomialKernel(2)),
    "spectral mixture": _of(lambda: kernels.SpectralMixtureKernel(3, ard_num_dims=2)),
    "sum and product": _of(lambda: kernels.RBFKernel() + kernels.PeriodicKernel() * kernels.LinearKernel()),
    "constant mean": lambda: (gpytorch.means.ConstantMean(), (torch.randn(5, 2),), {}),
    "linear mean": lambda: (gpytorch.means.LinearMean(2), (torch.randn(5, 2),), {}),
    "mean after observations": lambda: (
        _Mean(),
        (torch.randn(5, 2), torch.randn(5), torch.randn(3, 2)),
        {},
    ),
}
