"""Slices with run-time ends: PyTorch's clamping, at sizes where an end is negative too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import Dim

import shapevm

from .test_torch import Function

NATIVE = shapevm.Options(fallback="error")
#: By the least size; `x[n - 1:]` of an empty axis is empty, which tracing takes for one position.
ENDS: dict[str, tuple[Callable[[torch.Tensor, int], torch.Tensor], int]] = {
    "x[n - 1:]": (lambda x, n: x[n - 1 :], 1),
    "x[:n - 1]": (lambda x, n: x[: n - 1], 1),
    "x[n // 2 - 1:]": (lambda x, n: x[n // 2 - 1 :], 0),
    "x[n - 3:n - 1]": (lambda x, n: x[n - 3 : n - 1], 0),
    "x[3 - n:]": (lambda x, n: x[3 - n :], 0),
    "x[:3 - n]": (lambda x, n: x[: 3 - n], 0),
    "x[n - 5:2]": (lambda x, n: x[n - 5 : 2], 0),
    "x[n - 4::2]": (lambda x, n: x[n - 4 :: 2], 0),
    "x[:, n - 3:]": (lambda x, n: x[:, n - 3 :], 0),
    "x[n - 2]": (lambda x, n: x[n - 2], 1),
}


@pytest.mark.parametrize("name", ENDS)
def test_ends_that_a_call_tells(name: str) -> None:
    take, least = ENDS[name]
    model = Function(lambda x: take(x, x.shape[0]) * 2)
    shapes = (({0: Dim.AUTO, 1: Dim.AUTO},),)
    with shapevm.compile(model, (torch.randn(6, 5),), dynamic_shapes=shapes, options=NATIVE) as exe:
        for n in (*range(least, 9), 31):
            x = torch.randn(n, 5)
            assert torch.equal(exe(x), model(x)), n
