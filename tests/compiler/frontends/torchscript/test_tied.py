"""Operators of free sizes that share some: those of one letter of einsum, rows of scores and of targets."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import shapevm


def scores(q: Tensor, k: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    k = k[kept]  # of a size that data decide
    return torch.einsum("b i d, i d -> b i", q, k), torch.einsum("...id,id->...di", q, k)


def arguments(b: int, i: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return arguments of which every other row of the second is kept."""
    return torch.randn(b, i, d), torch.randn(2 * i, d), torch.arange(2 * i) % 2 == 0


def test_sizes_of_one_letter_are_equal() -> None:
    with shapevm.compile(torch.jit.trace(scores, arguments(2, 3, 4)), args=arguments(2, 3, 4)) as exe:
        for sizes in ((2, 3, 4), (3, 5, 4), (5, 7, 2)):
            args = arguments(*sizes)
            torch.testing.assert_close(exe(*args), scores(*args))
        with pytest.raises(shapevm.errors.GuardError, match="must be equal"):
            exe(*arguments(2, 3, 4)[:2], torch.arange(6) < 2)


def similarities(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.einsum("nc,mc->nm", x, y), torch.einsum("nc,nc->n", x, y)


def test_sizes_of_0_and_1_are_taken() -> None:
    example = torch.randn(6, 8), torch.randn(6, 8)
    with shapevm.compile(torch.jit.trace(similarities, example), args=example) as exe:
        for shape in ((6, 8), (1, 8), (1, 1), (3, 1), (0, 8), (3, 0)):
            args = torch.randn(shape), torch.randn(shape)
            torch.testing.assert_close(exe(*args), similarities(*args))


def margin_loss(scores: Tensor, target: Tensor) -> Tensor:
    mask = torch.zeros(target.shape[0], 4)
    mask[torch.arange(target.shape[0]), target] = 1
    return F.cross_entropy(scores + mask * (scores[mask == 1] - 0.3).unsqueeze(1), target, reduction="none")


def dense_loss(scores: Tensor, target: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    return F.cross_entropy(scores, target), F.cross_entropy(scores, shares, label_smoothing=0.1)


def test_rows_of_scores_have_a_target_each() -> None:
    def batch(n: int) -> tuple[Tensor, Tensor]:
        return torch.randn(n, 4), torch.arange(n) % 4

    with shapevm.compile(torch.jit.trace(margin_loss, batch(8)), args=batch(8)) as exe:
        for n in (8, 1, 5, 2):
            args = batch(n)
            torch.testing.assert_close(exe(*args), margin_loss(*args))


def test_positions_of_scores_have_a_target_each() -> None:
    def images(n: int, height: int) -> tuple[Tensor, Tensor, Tensor]:
        target = torch.arange(n * height * 5).reshape(n, height, 5) % 3
        return torch.randn(n, 3, height, 5), target, torch.rand(n, 3, height, 5)

    with shapevm.compile(torch.jit.trace(dense_loss, images(2, 4)), args=images(2, 4)) as exe:
        for sizes in ((2, 4), (1, 7), (3, 1)):
            args = images(*sizes)
            torch.testing.assert_close(exe(*args), dense_loss(*args))


def test_axes_that_tensordot_sums_are_equal(caplog: pytest.LogCaptureFixture) -> None:
    def products(x: Tensor, y: Tensor) -> Tensor:
        return torch.tensordot(x, y, dims=([0, 1], [0, -2]))

    caplog.set_level("INFO", logger="shapevm")
    example = torch.randn(2, 3, 4), torch.randn(2, 3, 5)
    with shapevm.compile(torch.jit.trace(products, example), args=example) as exe:
        args = torch.randn(7, 1, 2), torch.randn(7, 1, 3)
        torch.testing.assert_close(exe(*args), products(*args))
        with pytest.raises(shapevm.errors.ShapeError, match="axis 0 has size 1"):  # as many products, others
            exe(torch.randn(2, 1, 4), torch.randn(1, 2, 5))
    assert "as in the example: axis 1 of y is axis 1 of x, axis 0 of y is axis 0 of x" in caplog.text


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_axes_of_size_1_that_tensordot_sums(dtype: torch.dtype) -> None:
    def products(x: Tensor, y: Tensor) -> Tensor:
        return torch.tensordot(x, y, dims=([0, 1], [0, 1]))

    def given(*sizes: int) -> tuple[Tensor, Tensor]:
        n, m, rows, columns = sizes
        return torch.arange(n * rows).reshape(1, n, rows).to(dtype), torch.ones(m, 1, columns).to(dtype)

    example = given(3, 2, 4, 5)
    with shapevm.compile(torch.jit.trace(products, example), args=example) as exe:
        for sizes in ((3, 2, 4, 5), (1, 7, 2, 1), (6, 1, 3, 3)):
            torch.testing.assert_close(exe(*given(*sizes)), products(*given(*sizes)))
