"""Sizes that an operator's arguments must have: equal as the example's are, and checked at every call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import shapevm


def gated(x: Tensor) -> Tensor:
    return F.glu(x, 1)


def normal(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, [2], weight)


def doubled_normal(x: Tensor) -> Tensor:
    return F.rms_norm(torch.cat([x, x], 1), [4])


def parts(x: Tensor) -> list[Tensor]:
    return torch.split(x, [1, 3], 1)


def sampled(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, grid, align_corners=False)


def rows(x: Tensor, index: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    made = x.index_reduce(0, index, source, "amax")
    return x.index_add(0, index, source), x.index_copy(0, index, source), made


def similar(x: Tensor, y: Tensor) -> Tensor:
    return F.cosine_similarity(x, y, dim=-1)


def aligned(logs: Tensor, target: Tensor, steps: Tensor) -> Tensor:
    return F.ctc_loss(logs, target, steps, torch.tensor([2, 1]))


def channels(x: Tensor) -> tuple[Tensor, Tensor]:
    return F.pixel_shuffle(x, 2), F.channel_shuffle(x, 2)


def _labels(n: int, of_target: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(6, n, 3).log_softmax(2), torch.ones(of_target, 2).long(), torch.full((n,), 6)


def _rows(n: int, of_index: int, *source: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(n, 2), torch.arange(of_index), torch.randn(source)


_CASES: list[tuple[Callable[..., Any], list[Any], list[Any]]] = [
    (gated, [(3, 4), (1, 2), (0, 6), (2, 0)], [(3, 5)]),
    (normal, [((1, 2), (2,)), ((3, 2), (2,))], [((3, 5), (5,)), ((3, 1), (1,)), ((3, 2), (1,))]),
    (doubled_normal, [(1, 2), (3, 2)], [(3, 1), (3, 3)]),
    (parts, [(1, 4), (3, 4)], [(3, 5), (3, 3)]),
    (
        sampled,
        [((1, 2, 3, 4), (1, 3, 3, 2)), ((3, 2, 3, 4), (3, 1, 3, 2))],
        [((1, 2, 3, 4), (1, 3, 3, n)) for n in (1, 3)] + [((1, 2, 3, 4), (2, 3, 3, 2))],
    ),
    (rows, [_rows(5, 2, 2, 2), _rows(7, 3, 3, 2)], [_rows(5, 2, 3, 2), _rows(5, 3, 2, 3)]),
    (aligned, [_labels(2, 2)], [_labels(3, 2), _labels(3, 3), _labels(1, 1)]),
    (channels, [(1, 4, 2, 3), (3, 8, 1, 1)], [(1, 6, 2, 3), (1, 5, 2, 2)]),
    (similar, [((1, 2, 3), (2, 1, 3)), ((1, 5, 2), (3, 1, 2)), ((1, 1, 1), (1, 1, 1))], []),
]


def _made(given: Sequence[Any]) -> tuple[Tensor, ...]:
    """Return tensors: those given, or of the shapes given."""
    if isinstance(given[0], int):
        return (torch.randn(*given),)
    return tuple(x if isinstance(x, Tensor) else torch.randn(x) for x in given)


@pytest.mark.parametrize("function, right, wrong", _CASES)
def test_other_sizes_are_refused_as_in_pytorch(
    function: Callable[..., Any], right: list[Any], wrong: list[Any]
) -> None:
    with shapevm.compile(torch.jit.script(function), args=_made(right[0])) as exe:
        for args in map(_made, right):
            torch.testing.assert_close(exe(*args), function(*args))
        for args in map(_made, wrong):
            with pytest.raises((RuntimeError, IndexError)):
                function(*args)
            with pytest.raises((shapevm.ShapeError, shapevm.errors.GuardError)):
                exe(*args)
