"""flex_attention with functions of scores and masks, as one program without PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import shapevm

NATIVE = shapevm.Options(fallback="error")


class Biased(nn.Module):
    """Causal scores with a bias of each head, any batch and length."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(-1, 1, 4))

    def forward(self, q: Tensor) -> Tensor:
        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where(i >= j, s + self.bias[h] * (i - j), -float("inf"))

        return flex_attention(q, q, q, score_mod=score)


class Grouped(nn.Module):
    """A window of keys, of heads that two heads of queries share."""

    def forward(self, q: Tensor) -> Tensor:
        mask = create_block_mask(lambda b, h, i, j: (i > j) & (i - j < 5), None, None, 16, 16, device="cpu")
        return flex_attention(q, q[:, :2], q[:, :2] * 2, block_mask=mask, enable_gqa=True, scale=0.3)


class Summed(nn.Module):
    """The sums of rows, the first of which has no key."""

    def forward(self, q: Tensor) -> tuple[Tensor, ...]:
        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where(i > j, s, -float("inf"))

        made, aux = flex_attention(q, q, q, score, return_aux=AuxRequest(lse=True))
        return made, aux.lse


def test_scores_and_heads_at_any_length() -> None:
    model, auto = Biased(), Dim.AUTO
    exe = shapevm.compile(
        model, (torch.randn(2, 4, 16, 8),), dynamic_shapes=({0: auto, 2: auto},), options=NATIVE
    )
    for shape in ((2, 4, 16, 8), (3, 4, 23, 8), (1, 4, 1, 8)):
        q = torch.randn(shape)
        torch.testing.assert_close(exe(q), model(q))


def test_masks_and_groups_of_heads() -> None:
    model = Grouped()
    exe = shapevm.compile(model, (torch.randn(2, 4, 16, 8),), dynamic_shapes=({0: Dim.AUTO},), options=NATIVE)
    for batch in (1, 2, 5):
        q = torch.randn(batch, 4, 16, 8)
        torch.testing.assert_close(exe(q), model(q))
        assert not exe(q)[:, :, 0].any()  # a row without keys


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_sums_of_rows(dtype: torch.dtype) -> None:
    model, auto = Summed(), Dim.AUTO
    example = torch.randn(2, 4, 16, 8).to(dtype)
    with shapevm.compile(model, (example,), dynamic_shapes=({0: auto, 2: auto},), options=NATIVE) as exe:
        for shape in ((2, 4, 16, 8), (1, 4, 23, 8), (3, 4, 1, 8)):
            q = torch.randn(shape).to(dtype)
            torch.testing.assert_close(exe(q), model(q), rtol=2e-3, atol=1e-3)  # eager rounds chances to f16
