"""Sizes 0 and 1: where the model does something else there, compiling says so."""

import pytest
import torch

import shapevm


class Branches(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] == 1 else x + 1


class FailsAtZero(torch.nn.Module):
    def forward(self, x):
        return x - x.amax(0)


class Same(torch.nn.Module):
    def forward(self, x, y):
        return x + y


def rows(least):
    return {0: torch.export.Dim("rows", min=least, max=64)}


def test_a_branch_at_one_is_refused():
    with pytest.raises(shapevm.ShapeError, match=r"at rows = 1 .*another way.*Dim\('rows', min=2\)"):
        shapevm.compile(Branches(), (torch.randn(5, 3),), dynamic_shapes=(rows(1),))


def test_a_bound_that_keeps_it_out_is_fine():
    x = torch.randn(5, 3)
    exe = shapevm.compile(Branches(), (x,), dynamic_shapes=(rows(2),))
    torch.testing.assert_close(exe(x), x + 1)
    with pytest.raises(shapevm.ShapeError):
        exe(x[:1])


def test_a_model_that_fails_at_zero_says_so():
    with pytest.raises(shapevm.ShapeError, match=r"at rows = 0 the model itself fails"):
        shapevm.compile(FailsAtZero(), (torch.randn(5, 3),), dynamic_shapes=(rows(0),))


def test_sizes_0_and_1_are_ordinary_elsewhere():
    x, y = torch.randn(5, 3), torch.randn(5, 3)
    exe = shapevm.compile(Same(), (x,), {"y": y}, dynamic_shapes={"x": rows(0), "y": rows(0)})
    for n in (0, 1, 5):
        torch.testing.assert_close(exe(x[:n], y=y[:n]), x[:n] + y[:n])
