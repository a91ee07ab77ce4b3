"""Packed sequences through TorchScript: lengths that a call tells, against eager PyTorch."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import shapevm
from shapevm.errors import GuardError

LENGTHS = ([6, 4, 2], [5, 5, 1], [3, 2, 1], [1, 1, 1])


class Packed(torch.nn.Module):
    """A recurrent layer over sequences of several lengths."""

    def __init__(self, layer: torch.nn.Module, batch_first: bool, is_sorted: bool) -> None:
        super().__init__()
        self.layer, self.batch_first, self.is_sorted = layer, batch_first, is_sorted

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        packed = pack_padded_sequence(x, lengths, self.batch_first, self.is_sorted)
        result, last = self.layer(packed)
        made, n = pad_packed_sequence(result, self.batch_first, padding_value=-2.0)
        return made, n, last


class PackedPair(Packed):
    """The same with two states."""

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        packed = pack_padded_sequence(x, lengths, self.batch_first, self.is_sorted)
        result, last = self.layer(packed)
        made, n = pad_packed_sequence(result, self.batch_first, padding_value=-2.0)
        return made, n, last


def leaves(x: Any) -> list[Tensor]:
    return torch.utils._pytree.tree_leaves(x)


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_layers(kind: Any, options: dict[str, Any], is_sorted: bool) -> None:
    torch.manual_seed(0)
    layer = kind(5, 4, batch_first=is_sorted, **options)
    model = (PackedPair if kind is torch.nn.LSTM else Packed)(layer, is_sorted, is_sorted).eval()
    x = torch.randn((3, 6, 5) if is_sorted else (6, 3, 5))
    exe = shapevm.compile(torch.jit.script(model), (x, torch.tensor(LENGTHS[0])), strategy="generic")
    assert not exe.machine.externs
    for lengths in LENGTHS:
        given = torch.tensor(lengths if is_sorted else lengths[::-1])
        for found, wanted in zip(leaves(exe(x, given)), leaves(model(x, given)), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    longer = torch.randn((4, 9, 5) if is_sorted else (9, 4, 5))
    found, wanted = (
        leaves(f(longer, torch.tensor([9, 7, 7, 1][:: 1 if is_sorted else -1]))) for f in (exe, model)
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lengths", [[4, 5, 2], [7, 2, 1], [3, 2, 0]])
def test_lengths_that_do_not_fit_are_refused(lengths: list[int]) -> None:
    model = Packed(torch.nn.GRU(5, 4), False, True).eval()
    exe = shapevm.compile(torch.jit.script(model), (torch.randn(6, 3, 5), torch.tensor(LENGTHS[0])))
    with pytest.raises(GuardError, match="pack_padded_sequence: the lengths must go down"):
        exe(torch.randn(6, 3, 5), torch.tensor(lengths))


def test_total_length() -> None:
    def run(x: Tensor, lengths: Tensor, total: int) -> Tensor:
        packed = pack_padded_sequence(x, lengths)
        return pad_packed_sequence(packed, total_length=total)[0]

    script = torch.jit.script(run)
    x, lengths = torch.randn(6, 3, 5), torch.tensor([4, 2, 1])
    exe = shapevm.compile(script, (x, lengths, 8), strategy="generic")
    for total in (8, 4):
        assert torch.equal(exe(x, lengths, total), script(x, lengths, total))
