"""Reductions with places, scans and norms, compiled: the values of eager PyTorch, NaN and ties included."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .compiled import check
from .test_torch import tensor

f32, f64, bf16, i64, i32, u8, boolean = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
Case = tuple[str, Callable[..., Any], Any]


def all_of(name: str, function: Callable[..., Any], *dtypes: torch.dtype) -> list[Case]:
    return [(f"{name} {str(d)[6:]}", function, ((("n", 5), d),)) for d in dtypes]


SCANS: list[Case] = [
    *all_of(
        "cumsum", lambda x: (x.cumsum(0), x.cumsum(1), x.cumsum(-1, dtype=f64)), f32, bf16, i64, u8, boolean
    ),
    *all_of("cumprod", lambda x: (x.cumprod(0), x.cumprod(1)), f32, i32),
    *all_of("cummax", lambda x: (*x.cummax(0), *x.cummax(1), *x.cummin(0), *x.cummin(1)), f32, i64, boolean),
    ("logcumsumexp", lambda x: (x.logcumsumexp(0), x.logcumsumexp(1)), ((("n", 5), f32),)),
    ("inner axis", lambda x: (x.cumsum(1), x.cummax(1)[1]), (((2, "n", 3), f32),)),
    ("computed", lambda x: x.exp().cumsum(1) * 2 + x.t().cumsum(1).t(), ((("n", 20), f32),)),
    ("reversed", lambda x: x.flip(1).cumsum(1).flip(1), ((("n", 20), f32),)),
    ("of one", lambda x: (x.sum().cumsum(0), *x.sum().cummax(0)), (((1, "n"), f32),)),
]
PLACES: list[Case] = [
    *all_of("argmax", lambda x: (x.argmax(), x.argmax(1), x.argmax(0, keepdim=True)), f32, bf16, i64, u8),
    *all_of("argmin", lambda x: (x.argmin(), x.argmin(1), x.argmin(0)), f32, i64),
    *all_of("max", lambda x: (*x.max(1), *x.min(0, keepdim=True)), f32, i64, boolean),
    ("middle", lambda x: (x.argmax(1), *x.max(1, keepdim=True)), (((2, "n", 3), f32),)),
    ("computed", lambda x: (x.exp().argmax(1), x.t().argmin(0)), ((("n", 40), f32),)),
    ("aminmax", lambda x: (*torch.aminmax(x, dim=1), *torch.aminmax(x)), ((("n", 5), f32),)),
    (
        "logsumexp",
        lambda x: (x.logsumexp(1), x.logsumexp((0, 1)), x.logsumexp(0, keepdim=True)),
        ((("n", 5), f32),),
    ),
]
SUMS: list[Case] = [
    ("count_nonzero", lambda x: (torch.count_nonzero(x), torch.count_nonzero(x, 1)), ((("n", 5), i64),)),
    ("nan sums", lambda x: (x.nansum(1), x.nansum()), ((("n", 5), f32),)),
    ("moments", lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, 1, correction=0)), ((("n", 5), f32),)),
    ("corrections", lambda x: (x.std(1, correction=2), x.var(1, correction=0)), ((("n", 5), f32),)),
    *all_of(
        "in bool", lambda x: ((x > 0).prod(1, dtype=boolean), x.sum(0, dtype=boolean)), f32, i64, boolean
    ),
    ("products", lambda x: (x.prod(1), x.prod(0, keepdim=True), x.prod(1, dtype=f64)), ((("n", 5), f32),)),
    ("any, all", lambda x: (x.any(0), x.all((0, 1)), x.all(1, keepdim=True)), ((("n", 5), u8),)),
    (
        "norms",
        lambda x: tuple(
            torch.linalg.vector_norm(x, p, 1) for p in (0, 1, 2, 3, 0.5, float("inf"), -float("inf"), -1)
        ),
        ((("n", 5), f32),),
    ),
    (
        "norm",
        lambda x: (x.norm(), x.norm(p=1), x.norm(3, 1), torch.linalg.matrix_norm(x)),
        ((("n", 5), f32),),
    ),
]


def ties(shape: tuple[Any, ...], dtype: torch.dtype, n: int, seed: int) -> torch.Tensor:
    """Few different values, infinities and NaNs among them."""
    x = tensor(shape, dtype, n, seed)
    if not dtype.is_floating_point:
        return x
    x = x.round()
    x[x == 1] = float("inf")
    x[(x == -1) & (torch.arange(x.shape[-1]) % 2 == 0)] = float("nan")
    return x


@pytest.mark.parametrize(("name", "function", "specs"), SCANS, ids=lambda v: v if isinstance(v, str) else "")
def test_scans(name: str, function: Callable[..., Any], specs: Any) -> None:
    check(function, specs)


@pytest.mark.parametrize("make", [tensor, ties])
@pytest.mark.parametrize(("name", "function", "specs"), PLACES, ids=lambda v: v if isinstance(v, str) else "")
def test_places(name: str, function: Callable[..., Any], specs: Any, make: Any) -> None:
    check(function, specs, (6, 1, 17), make)


def test_scans_of_infinities_and_nans() -> None:
    check(lambda x: (*x.cummax(1), *x.cummin(0), x.cumsum(1)), ((("n", 37), f32),), make=ties)


@pytest.mark.filterwarnings("ignore:var", "ignore:std")
@pytest.mark.parametrize(("name", "function", "specs"), SUMS, ids=lambda v: v if isinstance(v, str) else "")
def test_sums(name: str, function: Callable[..., Any], specs: Any) -> None:
    check(function, specs, (6, 1, 17))


@pytest.mark.parametrize("dtype", [f32, bf16, i64])
def test_logsumexp_also_of_no_elements(dtype: torch.dtype) -> None:
    check(
        lambda x: (x.logsumexp(0), x.logsumexp(1), x.logsumexp((0, -1)), x[0, 0].logsumexp(0, keepdim=True)),
        (((1, 3, "n"), dtype),),
        (6, 1, 0, 17),
    )
