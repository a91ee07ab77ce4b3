"""Operators in parts where PyTorch's own decomposition is wrong."""

from __future__ import annotations

from collections.abc import Callable
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
    rows, targets = torch.atleast_2d(x), torch.atleast_2d(target)
    n = rows.shape[1]
    classes = torch.arange(n, device=x.device)
    end = torch.where(targets == -1, classes, n).amin(-1, keepdim=True)
    is_given = classes < end
    chosen = rows.gather(-1, torch.where(is_given, targets, 0))
    is_target = (classes == torch.where(is_given, targets, -1).unsqueeze(-1)).any(1)
    margins = (1 - chosen.unsqueeze(-1) + rows.unsqueeze(-2)).clamp_min(0)  # [row, target, class]
    counts = is_given.unsqueeze(-1) & ~is_target.unsqueeze(-2)
    each = torch.where(counts, margins, 0).sum((1, 2)) / n
    if reduction == MEAN:
        return each.mean()
    return each.sum() if reduction == SUM else each.reshape(x.shape[:-1])


#: By overload, as in PyTorch's table.
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.multilabel_margin_loss.default: multilabel_margin_loss,
}
