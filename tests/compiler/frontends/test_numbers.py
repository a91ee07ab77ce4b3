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


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda a, b: torch.arange(a.item(), b.item(), 0.5), ((2.0, 4.5), (2.0, 2.0), (-1.5, 0.25))),
        (lambda a, b: torch.cond(a.item() > b.item(), torch.sin, torch.cos, (b,)), ((2.0, 1.0), (1.0, 2.0))),
        (
            lambda a, b: torch.cond((a * 3).item() - 1 <= 2, torch.sin, torch.cos, (b,)),
            ((1.0, 1.0), (1.5, 2.0)),
        ),
    ],
    ids=["arange", "two", "computed"],
)
def test_conditions_on_floats_of_tensors(
    function: Callable[[Tensor, Tensor], Tensor], values: tuple[tuple[float, float], ...]
) -> None:
    class Two(torch.nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return function(a, b)

    given = [(torch.tensor(a), torch.tensor(b)) for a, b in values]
    exe = shapevm.compile(Two(), given[0], options=shapevm.Options(fallback="error"))
    for a, b in given:
        torch.testing.assert_close(exe(a, b), function(a, b))


def test_a_check_of_a_float_is_made_at_every_call() -> None:
    def checked(x: Tensor) -> Tensor:
        torch._check(x.item() > 0.5)
        return x * x.item()

    exe = shapevm.compile(Module(checked), (torch.tensor(0.75),))
    assert exe(torch.tensor(2.0)).item() == 4.0
    with pytest.raises(shapevm.errors.GuardError):
        exe(torch.tensor(0.5))
