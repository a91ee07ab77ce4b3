"""Encoders with a padding mask, traced in evaluation without gradients, where PyTorch computes with nested
tensors: positions of padding are 0 in the end."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import shapevm


class Encoder(nn.Module):
    """Two layers, and a norm after them."""

    def __init__(self, activation: str = "relu") -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=activation)
        self.layers = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8))

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        made: Tensor = self.layers(x, src_key_padding_mask=padding)
        return made


def batch(*lengths: int) -> tuple[Tensor, Tensor]:
    """Return sequences of these lengths and the mask of their padding."""
    n = max(lengths)
    return torch.randn(len(lengths), n, 8), torch.arange(n) >= torch.tensor(lengths)[:, None]


BATCHES = (batch(5, 2), batch(7, 1, 4), batch(1), batch(3, 3, 3, 3), batch(4, 0))


@pytest.mark.parametrize("form", ["traced", "frozen", "optimised"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_padding_is_0(form: str, activation: str) -> None:
    with torch.no_grad():
        script = torch.jit.trace(Encoder(activation).eval(), BATCHES[0])
        assert "_nested_tensor_from_mask" in str(script.inlined_graph)
        script = torch.jit.freeze(script) if form == "frozen" else script
        script = torch.jit.optimize_for_inference(script) if form == "optimised" else script
        with shapevm.compile(script, args=BATCHES[0]) as exe:
            for args in BATCHES:
                found = exe(*args)
                torch.testing.assert_close(found, script(*args))
            assert not exe.machine.externs


def test_a_mask_with_gaps_counts_its_positions() -> None:
    x, padding = torch.randn(2, 4, 8), torch.tensor([[False, True, False, True], [True, False, False, False]])
    with torch.no_grad():
        script = torch.jit.trace(Encoder().eval(), BATCHES[0])
        with shapevm.compile(script, args=BATCHES[0]) as exe:
            torch.testing.assert_close(exe(x, padding), script(x, padding))


def test_a_scripted_encoder_is_that_of_gradients() -> None:
    script = torch.jit.script(Encoder().eval())
    with shapevm.compile(script, args=BATCHES[0]) as exe:
        for args in BATCHES[:4]:
            torch.testing.assert_close(exe(*args), script(*args).detach())
