"""PyTorch's own module database as test cases: every module with all inputs that PyTorch tests it with, under
the argument names that its `forward` has."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from ..opinfo.cases import DTYPES, SEED, Cell


@dataclass(frozen=True)
class Case:
    """A module with example arguments; nobody changes them: all take copies."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a copy of the arguments: (args, kwargs)."""
        copied: Any = tree_map_only(torch.Tensor, torch.clone, (self.args, dict(self.kwargs)))
        return copied

    def copy(self) -> torch.nn.Module:
        """Return a copy of the module."""
        return copy.deepcopy(self.module)

    def dynamic_shapes(self) -> dict[str, Any]:
        """Return `Dim.AUTO` for every axis of every tensor."""
        bound = inspect.signature(self.module.forward).bind(*self.args, **self.kwargs)
        return {name: tree_map_only(torch.Tensor, _automatic, x) for name, x in bound.arguments.items()} | {
            name: None
            for name, x in bound.arguments.items()
            if x is None or isinstance(x, bool | int | float)
        }


def _automatic(x: torch.Tensor) -> dict[int, Any]:
    return dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO)


def database() -> dict[str, Any]:
    """Return PyTorch's entries by name, such as "nn.Linear"."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_modules import module_db
    return {info.name: info for info in module_db}


def cells(infos: Mapping[str, Any], dtypes: Sequence[str] = ("f32",)) -> list[Cell]:
    """Return every module at those of `dtypes` that it supports on CPU."""
    return [
        Cell(name, dtype)
        for name, info in infos.items()
        for dtype in dtypes
        if DTYPES[dtype] in info.supported_dtypes("cpu")
    ]


def inputs(info: Any, dtype: str, training: bool) -> list[Any]:
    """Return all of PyTorch's inputs of a module at a dtype, in evaluation or in training mode."""
    torch.manual_seed(SEED)
    made: list[Any] = info.module_inputs_func(
        info, device="cpu", dtype=DTYPES[dtype], requires_grad=False, training=training
    )
    return [found for found in made if found.forward_input is not None]


def case(info: Any, dtype: str, found: Any, training: bool) -> Case:
    """Return one of PyTorch's inputs as a case, its weights drawn from a seed."""
    torch.manual_seed(SEED)
    args, kwargs = found.constructor_input.args, dict(found.constructor_input.kwargs)
    needs_dtype = "dtype" in inspect.signature(info.module_cls).parameters and "dtype" not in kwargs
    module = info.module_cls(*args, **kwargs, **({"dtype": DTYPES[dtype]} if needs_dtype else {}))
    made = Case(module.train(training), tuple(found.forward_input.args), dict(found.forward_input.kwargs))
    if info.is_lazy:  # its first call says which weights it has
        given, named = made.arguments()
        module(*given, **named)
    return made
