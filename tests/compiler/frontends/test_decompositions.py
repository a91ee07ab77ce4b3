"""Operators in parts: eager's values where PyTorch's own decomposition is wrong."""

import pytest
import torch
from torch import nn

import shapevm

TARGETS = torch.tensor([[1, 3, -1, 0, 0, 0], [0, -1, -1, 2, 2, 2], [5, 4, 3, 2, 1, 0], [-1, 0, 1, 2, 3, 4]])


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(4, 6), (6,), (1, 6)])
def test_multilabel_margin_loss(reduction: str, shape: tuple[int, ...]) -> None:
    model = nn.MultiLabelMarginLoss(reduction=reduction)
    x, target = torch.randn(shape), TARGETS[: shape[0]] if len(shape) == 2 else TARGETS[1]
    torch.testing.assert_close(shapevm.compile(model, (x, target))(x, target), model(x, target))
