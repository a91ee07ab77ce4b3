"""einsum of free sizes: those of one letter are equal in every call."""

from __future__ import annotations

import pytest
import torch
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
