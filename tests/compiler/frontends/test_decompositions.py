"""Operators in parts: eager's values where PyTorch's own decomposition is wrong."""

from typing import Any

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


@pytest.mark.parametrize("sizes", [{}, {0: torch.export.Dim.AUTO}], ids=["static", "free"])
@pytest.mark.parametrize("dtypes", [(torch.float16, torch.float32), (torch.float32, torch.float64)])
def test_threshold_backward_has_the_common_dtype(
    dtypes: tuple[torch.dtype, torch.dtype], sizes: dict[int, Any]
) -> None:
    class Model(torch.nn.Module):
        def forward(self, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.aten.threshold_backward(grad, x, 0.5) * 2

    args = torch.randn(9).to(dtypes[0]), torch.randn(9).to(dtypes[1])
    found, expected = shapevm.compile(Model(), args, dynamic_shapes=(sizes, sizes))(*args), Model()(*args)
    assert found.dtype == expected.dtype and torch.equal(found, expected)


@pytest.mark.parametrize("mask_type", [0, 1])
@pytest.mark.parametrize("need_weights", [False, True])
def test_a_query_that_reads_nothing_gives_nan(need_weights: bool, mask_type: int) -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    inner = (
        attention.in_proj_weight,
        attention.in_proj_bias,
        attention.out_proj.weight,
        attention.out_proj.bias,
    )

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            made = torch._native_multi_head_attention(
                x, x, x, 8, 2, *inner, mask, need_weights, True, mask_type
            )
            return made[0]

    x, mask = torch.randn(3, 5, 8), torch.zeros((5, 5) if mask_type == 0 else (3, 5), dtype=torch.bool)
    mask[1] = True
    with torch.no_grad(), shapevm.compile(Model(), (x, mask)) as exe:
        expected = Model()(x, mask)
        assert expected.isnan().any() and not expected.isnan().all()
        torch.testing.assert_close(exe(x, mask), expected, equal_nan=True)
