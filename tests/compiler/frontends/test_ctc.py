"""Losses of connectionist temporal classification, which PyTorch computes and programs call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import shapevm

from ..ops.test_torch import Function

FREE = torch.export.Dim.AUTO
Given = tuple[Tensor, Tensor, Tensor, Tensor]


def given(batch: int, steps: int) -> Given:
    logs = torch.randn(steps, batch, 7).log_softmax(2)
    return logs, torch.randint(1, 7, (batch, 4)), torch.full((batch,), steps), torch.full((batch,), 3)


@pytest.mark.parametrize("options", [{}, {"reduction": "none"}, {"zero_infinity": True, "reduction": "sum"}])
def test_losses_at_free_sizes(options: dict[str, Any]) -> None:
    def loss(*args: Tensor) -> Tensor:
        return F.ctc_loss(*args, **options)

    shapes = (({0: FREE, 1: FREE}, {0: FREE}, {0: FREE}, {0: FREE}),)
    with shapevm.compile(Function(loss), given(3, 12), dynamic_shapes=shapes) as exe:
        for batch, steps in ((3, 12), (1, 5), (5, 30), (2, 2)):
            args = given(batch, steps)
            torch.testing.assert_close(exe(*args), loss(*args))


def test_lengths_may_be_lists() -> None:
    def loss(logs: Tensor, target: Tensor) -> Tensor:
        return F.ctc_loss(logs, target, (9, 8), [3, 2])

    logs, target, *_ = given(2, 9)
    with shapevm.compile(Function(loss), (logs, target)) as exe:
        torch.testing.assert_close(exe(logs, target), loss(logs, target))


def test_without_pytorch_the_operator_is_named() -> None:
    with pytest.raises(shapevm.UnsupportedOp, match=r"aten\.ctc_loss\.Tensor"):
        shapevm.compile(Function(F.ctc_loss), given(3, 12), options=shapevm.Options(fallback="error"))


def test_torch_is_as_before() -> None:
    before = torch.ctc_loss
    test_lengths_may_be_lists()
    assert torch.ctc_loss is before
