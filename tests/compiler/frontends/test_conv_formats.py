"""Sizes at which only the memory format of a convolution's result would differ from the trace's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from shapevm.compiler.frontends.conv_formats import formats_leave_no_guards
from torch import nn
from torch._subclasses.fake_impls import op_implementations_dict as kernels
from torch.export import Dim

import shapevm

IMAGES = nn.Sequential(
    nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1),
    nn.Conv2d(8, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4),
)  # fmt: skip
CASES = [
    (nn.Conv3d(5, 4, 2, stride=(1, 3, 2), dilation=(1, 2, 1)), (2, 5, 3, 3, 3), [(1, 5, 2, 3, 3)]),
    (IMAGES, (2, 3, 32, 40), [(1, 3, 1, 1), (2, 3, 8, 8), (1, 3, 9, 3), (3, 3, 64, 2)]),
    (nn.ConvTranspose1d(2, 3, 3, padding=2), (2, 2, 7), [(1, 2, 3), (4, 2, 4)]),
]


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("model, shape, others", CASES)
def test_small_results(
    model: nn.Module, shape: Sequence[int], others: Sequence[Sequence[int]], is_last: bool
) -> None:
    x = torch.randn(shape)
    if is_last and x.ndim >= 4:
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        x = x.to(memory_format=formats[x.ndim])
    free = {axis: Dim.AUTO for axis in range(x.ndim) if axis != 1}
    with (
        torch.no_grad(),
        shapevm.compile(model.eval(), (x,), dynamic_shapes=(free,), strategy="generic") as exe,
    ):
        for other in (shape, *others):
            x = torch.randn(other)
            torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=1e-6)
        with pytest.raises(shapevm.ShapeError):
            exe(torch.randn(1, 99, *shape[2:]))


def test_what_a_convolution_needs_stays_checked() -> None:
    with shapevm.compile(
        nn.Conv1d(2, 3, 4), (torch.randn(2, 2, 9),), dynamic_shapes=({0: Dim.AUTO, 2: Dim.AUTO},)
    ) as exe:
        assert exe(torch.randn(1, 2, 4)).shape == (1, 3, 1)
        with pytest.raises(shapevm.Error, match=r"x.shape\[2\]|s1"):
            exe(torch.randn(1, 2, 3))


def test_torchs_own_kernel_is_put_back() -> None:
    before = dict(kernels)
    with formats_leave_no_guards():
        assert dict(kernels) != before
    assert dict(kernels) == before
