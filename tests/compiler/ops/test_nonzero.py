"""Sizes that data give, and searches, from torch to kernels: eager PyTorch's values at every size."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import shapevm
from shapevm.errors import GuardError

from .test_scatter import check
from .test_torch import f32, f64, i64

X = ((("n", 5), f32),)
INTS = (((2, "n"), i64),)


def changed(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[x > 0] = x[x > 0] * 3
    x[x.sum(1) > 0] += 1
    return x


def searched(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows, line = x.sort(1)[0], x[0].sort()[0]
    return (
        torch.searchsorted(rows, x.flip(1)),
        torch.searchsorted(line, x + 0.25, right=True, out_int32=True),
        torch.searchsorted(line, 0.5),
        torch.bucketize(x, line),
        torch.searchsorted(x, x.flip(1), sorter=x.argsort(1)),
    )


def uniques(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    return values, inverse, counts, values[inverse]


CASES: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("nonzero", lambda x: (torch.nonzero(x > 0), torch.nonzero(x[:, 0])), X),
    ("nonzero of nothing", lambda x: torch.nonzero(x > 9), X),
    ("nonzero_static", lambda x: torch.nonzero_static(x > 0, size=7, fill_value=-1), X),
    ("masked_select", lambda x: (x.masked_select(x > 0), x.masked_select(x[0] > 0)), X),
    ("mask", lambda x: (x[x > 0], x[x[:, 0] > 0] * 2), X),
    ("mask of an inner axis", lambda x: x[:, torch.tensor([True, False, True, True, False])].sum(1), X),
    ("mask and None", lambda x: x[:, x[0] > 0], (((3, "n"), f32),)),
    ("mask assignment", changed, X),
    ("masked_scatter", lambda x: x.masked_scatter(x > 0, torch.arange(200.0)), X),
    ("unique", uniques, INTS),
    ("unique values", torch.unique, (((2, "n"), i64),)),
    ("unique slices", lambda x: torch.unique(x % 3, dim=1, return_inverse=True, return_counts=True), INTS),
    ("unique rows", lambda x: torch.unique(x.round(), dim=0, return_inverse=True), X),
    ("unique along the only axis", lambda x: torch.unique(x, dim=-1, return_counts=True), ((("n",), i64),)),
    (
        "unique of three axes",
        lambda x: torch.unique((x % 2).reshape(-1, 2, 3), False, True, True, dim=0),
        ((("n", 6), i64),),
    ),
    ("unique of no slices", lambda x: torch.unique(x[:, :, None][:, :, :0], False, True, True, dim=2), X),
    ("unique of bool", lambda x: torch.unique(x > 0.5, dim=0, return_counts=True), X),
    ("unique of bf16", lambda x: torch.unique(x.bfloat16().round(), dim=0, return_counts=True), X),
    (
        "unique of NaN",
        lambda x: torch.unique(torch.where(x > 0, torch.nan, x.round()), dim=0, return_counts=True)[1].sum(),
        X,
    ),
    (
        "unique beside NaN",
        lambda x: torch.unique(
            torch.stack([x[0, 0] * 0 + torch.tensor([2.0, 1, 2]), torch.tensor([0, torch.nan, 0])], 1), dim=0
        ).nan_to_num(7),
        X,
    ),
    ("unique_consecutive", lambda x: torch.unique_consecutive(x.sort()[0], True, True), ((("n",), i64),)),
    ("searchsorted", searched, X),
    ("searchsorted f64", searched, ((("n", 3), f64),)),
    (
        "bincount",
        lambda x: (torch.bincount(x.flatten().abs()), torch.bincount(x[0].abs(), minlength=9)),
        INTS,
    ),
    ("bincount of weights", lambda x: torch.bincount(x[0].abs(), weights=x[1] * 0.5), INTS),
    (
        "bincount of as many weights",
        lambda x, w: torch.bincount(x.abs(), weights=w[w > -9]),
        ((("n",), i64), (("n",), f32)),
    ),
    ("repeat_interleave", lambda x: (x.repeat_interleave(x[0].abs(), dim=1), x.repeat_interleave(2)), INTS),
    ("take", lambda x: torch.take(x, torch.tensor([[0, 4], [-1, 2]])), X),
]


@pytest.mark.parametrize(("name", "function", "specs"), CASES, ids=[case[0] for case in CASES])
def test_places(name: str, function: Callable[..., Any], specs: tuple[Any, ...]) -> None:
    check(function, specs, tolerance=2e-6)


class Repeated(torch.nn.Module):
    def forward(self, x, times):
        return torch.repeat_interleave(x, times, dim=0)


@pytest.mark.parametrize("is_script", [False, True])
def test_elements_are_not_repeated_fewer_than_zero_times(is_script: bool) -> None:
    args = torch.arange(3.0), torch.tensor([1, 0, 2])
    n = torch.export.Dim("n", min=1, max=9)
    if is_script:
        exe = shapevm.compile(torch.jit.script(Repeated()), args=args)
    else:
        exe = shapevm.compile(Repeated(), args, dynamic_shapes=({0: n}, {0: n}))
    for times in ([1, 0, 2], [0, 0, 0], [5, 1, 1]):
        given = args[0], torch.tensor(times)
        assert torch.equal(exe(*given), Repeated()(*given))
    with pytest.raises(GuardError, match="repeat_interleave: times must be at least 0"):
        exe(args[0], torch.tensor([3, -1, 2]))
