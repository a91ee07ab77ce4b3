"""Floats of sizes that are rounded to sizes: the results have the sizes that f64 gives, in every door."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.export import Dim
from torch.nn.functional import interpolate

import shapevm

SIZES = (2, 9, 10, 11, 20, 90, 91, 180, 999, 1000)  # f64 rounds 0.7 * 90 below 63, and 0.7 * 10 to 7


def resized(x: Tensor) -> Tensor:
    return interpolate(x, scale_factor=0.7, mode="linear")


def there_and_back(x: Tensor) -> Tensor:
    return interpolate(interpolate(x, scale_factor=0.7), size=x.shape[2]) + x


def counted(x: Tensor) -> Tensor:
    return torch.arange(0, x.shape[2], 0.1)


def filled(x: Tensor) -> Tensor:
    n = x.shape[2]
    return x.new_ones(math.ceil(n / 0.3), math.floor(n * 0.35) + 1, round(n * 0.45))


class Module(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def check(exe: Callable[[Tensor], Tensor], function: Callable[[Tensor], Tensor]) -> None:
    for n in SIZES:
        x = torch.randn(2, 3, n)
        # A position near 1000 has an error of 3e-5 in f32, with or without fused products.
        torch.testing.assert_close(exe(x), function(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", [resized, there_and_back, counted, filled])
def test_exported(function: Callable[[Tensor], Tensor]) -> None:
    sizes = ({0: Dim.AUTO, 2: Dim.AUTO},)
    example = (torch.randn(2, 3, 14),)
    options = shapevm.Options(fallback="error")
    exe = shapevm.compile(Module(function), example, dynamic_shapes=sizes, options=options)
    check(exe, function)


@pytest.mark.parametrize("function", [resized, counted])
def test_scripted(function: Callable[[Tensor], Tensor]) -> None:
    check(shapevm.compile(torch.jit.script(function), args=(torch.randn(2, 3, 14),)), function)


@pytest.mark.parametrize("function", [resized, there_and_back, counted, filled])
def test_torch_compile(function: Callable[[Tensor], Tensor], caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    check(torch.compile(function, backend="shapevm", dynamic=True), function)
    assert "runs in PyTorch" not in caplog.text


@pytest.mark.parametrize("size", [10, 19, 20, 90])
def test_an_assumption_about_a_product_is_that_of_f64(size: int) -> None:
    model = Module(lambda x: x[..., : int(x.shape[2] * 0.7)])
    exe = shapevm.compile(model, (torch.randn(2, 3, size),), dynamic_shapes=({2: Dim.AUTO},))
    for n in range(size - 3, size + 4):
        x = torch.randn(2, 3, n)
        if int(n * 0.7) == int(size * 0.7):
            torch.testing.assert_close(exe(x), model(x))
        else:
            with pytest.raises(shapevm.Error):
                exe(x)
