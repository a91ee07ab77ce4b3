"""1x1 convolutions whose image is channels first before and behind them: which kernels they become."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from shapevm.jit.families.matmul.spec import Matmul
from torch import nn

import shapevm

from .test_layout import W1, conv, kernels, specs

BIAS = torch.randn(8)


def mixed(x: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, W1, BIAS)


def families(function: Callable[..., torch.Tensor], *shape: int) -> list[str]:
    return [family for family, _ in kernels(function, *shape)]


def test_one_alone_is_a_product_of_its_weight_and_the_image_as_it_lies() -> None:
    assert kernels(lambda x: mixed(x).relu(), 2, 8, 30, 20) == [("matmul", "matmul add maximum")]
    assert families(lambda x: F.conv2d(x, W1), 2, 8, 30, 20) == ["matmul"]
    assert families(lambda x: F.conv1d(x, W1[..., 0]), 2, 8, 600) == ["matmul"]


def test_norm_activation_and_shortcut_are_its_epilogue() -> None:
    norm = nn.BatchNorm2d(8).eval()
    assert families(lambda x: F.hardswish(norm(mixed(x)) + x), 2, 8, 30, 20) == ["matmul"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: conv(mixed(x).relu()),  # the permutes between them go
        lambda x: mixed(conv(x)),
        lambda x: mixed(x) + conv(x),  # one of them is channels last
        lambda x: torch.cat([mixed(x), conv(x)], 1).relu(),
    ],
)
def test_beside_another_convolution_images_are_channels_last(function) -> None:
    layouts = [spec.product.b_layout for spec in specs(function, 2, 8, 30, 20) if isinstance(spec, Matmul)]
    assert layouts == ["panels"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: mixed(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1),
        lambda x: mixed(x.permute(0, 3, 1, 2)).relu().permute(0, 2, 3, 1) + 1.0,
    ],
)
def test_images_that_come_and_go_channels_last_are_rows(function) -> None:
    assert families(function, 2, 30, 20, 8) == ["matmul"]


def test_images_that_come_or_go_channels_last_are_moved_once() -> None:
    assert families(lambda x: mixed(x.permute(0, 3, 1, 2)), 2, 30, 20, 8) == ["nest", "matmul"]
    assert families(lambda x: mixed(x).permute(0, 2, 3, 1), 2, 8, 30, 20) == ["matmul", "nest"]


def test_images_of_few_pixels_are_rows() -> None:
    """Then there is little to move, and a product of few columns is slow."""
    assert families(lambda x: F.conv2d(x, W1), 2, 8, 14, 14) == ["nest", "matmul", "nest"]


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.gate = nn.Conv2d(40, 72, 1), nn.Parameter(torch.randn(1, 72, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.mix(x)) * self.gate


@pytest.mark.parametrize("target", ["", "x86-64-v3"])
def test_results_are_eagers_and_the_same_bits_on_every_tier(target) -> None:
    torch.manual_seed(0)
    model, side = Mixed().eval(), torch.export.Dim("side", min=23, max=64)
    shapes = {"x": {0: torch.export.Dim("n", min=1, max=8), 2: side, 3: side}}
    x = torch.randn(2, 40, 29, 29)
    found = []
    for strategy in ("generic", "jit"):
        with shapevm.settings.scope(target=target):
            exe = shapevm.compile(model, (x,), dynamic_shapes=shapes, strategy=strategy)
        for n, size in ((2, 29), (1, 23), (3, 32)):
            x = torch.randn(n, 40, size, size, generator=torch.Generator().manual_seed(size))
            found.append(exe(x))
            torch.testing.assert_close(found[-1], model(x), rtol=1e-5, atol=1e-5)
    for a, b in zip(found[:3], found[3:], strict=True):
        assert np.array_equal(a.detach().numpy().view(np.int32), b.detach().numpy().view(np.int32))
