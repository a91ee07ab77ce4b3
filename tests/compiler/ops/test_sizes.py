"""Results without elements, and sizes that PyTorch takes for equal and that are known at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

import shapevm

from .test_torch import Function

NATIVE = shapevm.Options(fallback="error")
EMPTY: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "trilinear without an axis": (
        lambda x, y, z: torch._trilinear(x, y, z, [1], [1], [1], [], 1),
        [(0,), (0,), (0,)],
    ),
    "trilinear of one": (lambda x, y, z: torch._trilinear(x, y, z, [], [], [], []), [(2, 0), (2, 1), (2, 1)]),
    "trilinear summed": (lambda x, y, z: torch._trilinear(x, y, z, [1], [0], [1], [2]), [(2, 0)] * 3),
    "unfold of a number": (lambda x: x.unfold(0, 0, 1), [()]),
    "unfold of a number by 1": (lambda x: x.unfold(0, 1, 1), [()]),
}
MERGED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "conv": (lambda x: F.conv1d(x.flatten(1, 2), torch.ones(3, 8, 2)), (3, 2, 4, 5)),
    "conv_transpose": (lambda x: F.conv_transpose1d(x.flatten(1, 2), torch.ones(8, 3, 2)), (3, 2, 4, 5)),
    "copy": (lambda x: torch.ones(8).copy_(x.flatten()), (2, 4)),
    "expand": (lambda x: x.flatten().expand(3, 8) * 1, (2, 4)),
    "linear": (lambda x: F.linear(x.flatten(1), torch.ones(3, 8)), (3, 2, 4)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_results_of_size_0(name: str) -> None:
    function, shapes = EMPTY[name]
    args = tuple(torch.ones(shape) for shape in shapes)
    found, expected = shapevm.compile(Function(function), args, options=NATIVE)(*args), function(*args)
    assert found.shape == expected.shape and torch.equal(found, expected)


@pytest.mark.parametrize("name", MERGED)
def test_merged_axes_that_must_be_a_number(name: str) -> None:
    function, shape = MERGED[name]
    shapes = ((dict.fromkeys(range(len(shape)), Dim.AUTO),),)
    x = torch.randn(shape)
    exe = shapevm.compile(Function(function), (x,), dynamic_shapes=shapes, options=NATIVE)
    torch.testing.assert_close(exe(x), function(x))
    last = len(shape) - 3 if len(shape) == 4 else len(shape) - 2
    sizes = [4 if i == last else 2 if i == last + 1 else size for i, size in enumerate(shape)]
    other = torch.randn(sizes)
    torch.testing.assert_close(exe(other), function(other))
    sizes[last] = 5
    with pytest.raises(shapevm.Error, match="must be equal|the model needs"):
        exe(torch.randn(sizes))
