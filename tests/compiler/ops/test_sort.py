"""Elements in order, from torch to kernels: eager PyTorch's values and places at every size."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .test_scatter import check
from .test_torch import bf16, boolean, f32, f64, i64

X = ((("n", 5), f32),)
LONG = (((2, "n"), f32),)


def with_nan(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 1.0, torch.nan, x)


CASES: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("sort", lambda x: (*x.sort(), *x.sort(0, descending=True), *x.sort(dim=0, stable=True)), X),
    ("sort deep", lambda x: (*x.sort(1), *x.sort(0)), (((3, "n", 2), f64),)),
    (
        "sort ints",
        lambda x: (*x.sort(stable=True), *x.sort(stable=True, descending=True)),
        (((2, "n"), i64),),
    ),
    ("sort half", lambda x: tuple(x.sort(stable=True, descending=True)), (((2, "n"), bf16),)),
    ("sort bools", lambda x: tuple(x.sort(stable=True)), (((2, "n"), boolean),)),
    ("sort zero-d", lambda x: tuple(x[0, 0].sort()), X),
    ("argsort", lambda x: (x.argsort(), x.argsort(0, descending=True), torch.argsort(x, stable=True)), X),
    ("msort", torch.msort, X),
    ("sort with NaN", lambda x: (*with_nan(x).sort(stable=True), with_nan(x).sort(descending=True)[0]), LONG),
    ("topk", lambda x: (*x.topk(2), *x.topk(3, largest=False), *x.topk(1, 0)), X),
    ("kthvalue", lambda x: (*x.kthvalue(2), *x.kthvalue(1, 0, True)), X),
    ("median", lambda x: (*x.median(0), *x.median(1, True), x.median()), X),
    ("median with NaN", lambda x: (*with_nan(x).median(0), with_nan(x).median()), X),
    ("nanmedian", lambda x: (*with_nan(x).nanmedian(1), with_nan(x).nanmedian()), LONG),
    ("median ints", lambda x: x.median(0)[0], ((("n", 5), i64),)),
]


@pytest.mark.parametrize(("name", "function", "specs"), CASES, ids=[case[0] for case in CASES])
def test_sort(name: str, function: Callable[..., Any], specs: tuple[Any, ...]) -> None:
    check(function, specs)
