"""Functions that turn with space (`e3nn`)."""

from __future__ import annotations

import torch
from e3nn import nn, o3
from e3nn.math import soft_one_hot_linspace, soft_unit_step

IRREPS = "4x0e + 2x1o + 1x2e"


def _of(make, *shapes):
    return lambda: (make(), tuple(torch.randn(shape) for shape in shapes), {})


WIDTH = o3.Irreps(IRREPS).dim

PROGRAMS = {
    "spherical harmonics": _of(lambda: lambda x: o3.spherical_harmonics([0, 1, 2, 3], x, True), (5, 3)),
    "spherical harmonics, module": _of(lambda: o3.SphericalHarmonics("1x0e + 1x1o + 1x2e", True), (5, 3)),
    "Linear": _of(lambda: o3.Linear(IRREPS, "3x0e + 2x1o"), (5, WIDTH)),
    "FullyConnectedTensorProduct": _of(
        lambda: o3.FullyConnectedTensorProduct(IRREPS, "1x0e + 1x1o", "3x0e + 2x1o"), (5, WIDTH), (5, 4)
    ),
    "TensorProduct with weights": _of(
        lambda: o3.FullyConnectedTensorProduct("2x0e + 1x1o", "1x0e + 1x1o", "2x0e", shared_weights=False),
        (5, 5),
        (5, 4),
        (5, 6),
    ),
    "ElementwiseTensorProduct": _of(
        lambda: o3.ElementwiseTensorProduct("2x0e + 1x1o", "2x0e + 1x1o"), (5, 5), (5, 5)
    ),
    "FullTensorProduct": _of(lambda: o3.FullTensorProduct("1x0e + 1x1o", "1x1o"), (5, 4), (5, 3)),
    "Norm": _of(lambda: o3.Norm(IRREPS), (5, WIDTH)),
    "Gate": _of(
        lambda: nn.Gate("4x0e", [torch.relu], "2x0e", [torch.sigmoid], "2x1o"),
        (5, 12),
    ),
    "BatchNorm": _of(lambda: nn.BatchNorm(IRREPS), (5, WIDTH)),
    "Activation": _of(lambda: nn.Activation("4x0e", [torch.tanh]), (5, 4)),
    "NormActivation": _of(lambda: nn.NormActivation(IRREPS, torch.sigmoid), (5, WIDTH)),
    "FullyConnectedNet": _of(lambda: nn.FullyConnectedNet([4, 8, 3], torch.relu), (5, 4)),
    "soft one hot": _of(
        lambda: lambda x: soft_one_hot_linspace(x, 0.0, 2.0, 6, basis="smooth_finite", cutoff=True), (9,)
    ),
    "soft unit step": _of(lambda: soft_unit_step, (9,)),
    "Wigner matrix": _of(lambda: lambda a, b, c: o3.wigner_D(2, a, b, c), (4,), (4,), (4,)),
    "angles to matrix": _of(lambda: o3.angles_to_matrix, (4,), (4,), (4,)),
    "ExtractIr": _of(lambda: nn.ExtractIr(IRREPS, "1o"), (5, WIDTH)),
}
