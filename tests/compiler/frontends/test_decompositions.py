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


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(4, 6), (6,), (1, 6)])
def test_multilabel_margin_loss_by_torch_compile(reduction: str, shape: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    model = nn.MultiLabelMarginLoss(reduction=reduction)
    target = TARGETS[: shape[0]] if len(shape) == 2 else TARGETS[1]
    x = torch.randn(shape)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="shapevm")(x, target), model(x, target))
    found = []
    for run in (torch.compile(model, backend="shapevm"), model):
        leaf = x.clone().requires_grad_()
        loss = run(leaf, target)
        (loss * torch.arange(1.0, loss.numel() + 1).reshape(loss.shape)).sum().backward()
        found.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(found[0], found[1])
