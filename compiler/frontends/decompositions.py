"""Operators in parts where PyTorch's own decomposition is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
MEAN, SUM = 1, 2  # of PyTorch's reductions; 0: none


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """Return sum(max(0, 1 - (x[target] - x[other])) / n) over targets, which end at the first -1, and other
    classes.

    PyTorch's own decomposition (2.13) counts the places behind the -1 as targets of class 0, and gives [1]
    for a single sample.
    """
    margins, _ = _margins(x, target)
    each = margins.relu().sum((1, 2)) / margins.shape[2]  # its gradient is 0 where a margin is
    if reduction == MEAN:
        return each.mean()
    return each.sum() if reduction == SUM else each.reshape(x.shape[:-1])


def multilabel_margin_loss_forward(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Return the loss, and which classes are targets, as 0 and 1."""
    _, is_target = _margins(x, target)
    return multilabel_margin_loss(x, target, reduction), is_target.to(x.dtype).reshape(target.shape)


def _margins(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return 1 - x[target] + x[other] as [row, target, class], 0 for pairs that do not count; and which
    classes are targets."""
    rows, targets = torch.atleast_2d(x), torch.atleast_2d(target)
    n = rows.shape[1]
    classes = torch.arange(n, device=x.device)
    end = torch.where(targets == -1, classes, n).amin(-1, keepdim=True)
    is_given = classes < end
    chosen = torch.where(is_given, targets, 0)
    is_target = (classes == torch.where(is_given, targets, -1).unsqueeze(-1)).any(1)
    margins = 1 - rows.gather(-1, chosen).unsqueeze(-1) + rows.unsqueeze(-2)
    counts = is_given.unsqueeze(-1) & ~is_target.unsqueeze(-2)
    return torch.where(counts, margins, 0), is_target


#: By overload, as in PyTorch's table.
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.multilabel_margin_loss.default: multilabel_margin_loss,
    aten.multilabel_margin_loss_forward.default: multilabel_margin_loss_forward,
}


@contextmanager
def instead_of_torch_own() -> Iterator[None]:
    """Let tracing use ours where PyTorch takes operators apart before it asks for decompositions."""
    key = torch._C.DispatchKey.Autograd
    own = {op: op.py_kernels[key] for op in DECOMPOSITIONS if key in op.py_kernels}
    _set_kernels(key, {op: DECOMPOSITIONS[op] for op in own})
    try:
        yield
    finally:
        _set_kernels(key, own)


def _set_kernels(key: Any, kernels: dict[Any, Callable[..., Any]]) -> None:
    for op, kernel in kernels.items():
        op.py_kernels[key] = kernel
        op._dispatch_cache.clear()
