"""PyTorch's own operator database as test cases: its sample inputs as modules of tensors alone.

A *cell* is one operator at one dtype. Its cases are some of the samples that PyTorch tests that operator
with, evenly chosen among those that eager PyTorch runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

DTYPES: dict[str, torch.dtype] = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "i8": torch.int8, "u8": torch.uint8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "bool": torch.bool,
}  # fmt: skip
#: Operators whose results' contents are open: only their shape and dtype are compared.
OPEN = ("empty", "new_empty", "resize_")
#: Operators that give elements and their places, where PyTorch leaves open which of equal elements it takes.
TIES = ("topk", "kthvalue", "mode", "median", "nanmedian", "sort", "argsort")
SEED = 20


@dataclass(frozen=True)
class Cell:
    """One operator (its name in the database, with the variant) at one dtype."""

    op: str
    dtype: str


class Call(torch.nn.Module):
    """`function` on one sample: tensors are the inputs, everything else is fixed."""

    def __init__(self, function: Any, sample: Any) -> None:
        super().__init__()
        leaves, self.spec = tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        self.function = function
        self.is_stable = sample.kwargs.get("stable", False)
        self.tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Call the function with `tensors` in the places of the sample's."""
        args, kwargs = self.arguments(tensors)
        return self.function(*args, **kwargs)

    def arguments(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return (args, kwargs) with `tensors` in the places of the sample's."""
        given = iter(tensors)
        leaves = [
            next(given) if is_tensor else leaf
            for is_tensor, leaf in zip(self.is_tensor, self.leaves, strict=True)
        ]
        first, args, kwargs = tree_unflatten(leaves, self.spec)
        return (first, *args), kwargs

    def kind(self) -> Hashable:
        """Return what calls have in common that differ in the tensors' values alone: one program is exported
        for all of them."""
        types = tuple((x.dtype, tuple(x.shape), x.stride()) for x in self.tensors)
        fixed = [leaf for leaf, is_tensor in zip(self.leaves, self.is_tensor, strict=True) if not is_tensor]
        return self.function, types, tuple(self.is_tensor), repr(self.spec), repr(fixed)


class Together(torch.nn.Module):
    """Several calls as one program: exporting and compiling costs less than one by one."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Return the results of all calls, their tensors one after the other."""
        given = iter(tensors)
        return [call(*(next(given) for _ in call.tensors)) for call in self.calls]


def name_of(info: Any) -> str:
    """Return an entry's name with its variant: "div.floor_rounding"."""
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def database() -> dict[str, Any]:
    """Return PyTorch's entries by name. Those that draw random numbers do so from the caller's generator, not
    from one that each call seeds anew: only so it shows which results are open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_methods_invocations as entries
    entries.wrapper_set_seed = _as_it_is
    return {name_of(info): info for info in entries.op_db}


def _as_it_is(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def cells(infos: dict[str, Any], dtypes: Sequence[str] = tuple(DTYPES)) -> list[Cell]:
    """Return every operator at those of `dtypes` that it supports on CPU."""
    return [
        Cell(name, dtype)
        for name, info in infos.items()
        for dtype in dtypes
        if DTYPES[dtype] in info.supported_dtypes("cpu")
    ]


def samples(info: Any, dtype: str) -> list[Any]:
    """Return all of PyTorch's samples of an operator at a dtype."""
    torch.manual_seed(SEED)
    return list(_samples(info, DTYPES[dtype]))


def calls(info: Any, made: Sequence[Any], limit: int) -> list[Call]:
    """Return at most `limit` of the samples, evenly chosen, as calls."""
    step = max(len(made) / limit, 1)
    chosen = [made[int(i * step)] for i in range(min(limit, len(made)))]
    return [Call(info.op, sample) for sample in chosen]


def _samples(info: Any, dtype: torch.dtype) -> Iterator[Any]:
    """Yield the samples until making one fails."""
    try:
        yield from info.sample_inputs("cpu", dtype)
    except Exception:  # PyTorch's sample functions raise anything, some only for some dtypes
        return
