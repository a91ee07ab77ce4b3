"""torch.ctc_loss while a model is traced: PyTorch has no fake kernels for its parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_impls import op_implementations_dict as kernels

LOSSES = (torch.ops.aten.ctc_loss.Tensor, torch.ops.aten.ctc_loss.IntList)
_PARTS = torch.ops.aten._ctc_loss.Tensor
_TORCH: Any = torch
_ORIGINAL = _TORCH.ctc_loss


def _fake(mode: Any, overload: Any, logs: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    """The losses, and empty values in place of those that only gradients need: ctc_loss, which is all that a
    trace keeps, drops them."""
    return logs.new_empty(logs.shape[1:-1]), logs.new_empty(0)


def _loss(logs: Tensor, target: Tensor, steps: Any, lengths: Any, *rest: Any) -> Tensor:
    """torch.ctc_loss, with lists of lengths as tensors."""
    given = (x if isinstance(x, Tensor) else torch.tensor(x) for x in (steps, lengths))
    return _ORIGINAL(logs, target, *given, *rest)


@contextmanager
def losses_are_traced() -> Iterator[None]:
    """Let torch.export trace connectionist temporal classification."""
    _TORCH.ctc_loss, kernels[_PARTS] = _loss, _fake
    try:
        yield
    finally:
        _TORCH.ctc_loss = _ORIGINAL
        kernels.pop(_PARTS, None)
