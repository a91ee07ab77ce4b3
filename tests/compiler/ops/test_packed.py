"""Packed sequences through TorchScript and torch.export: run-time lengths, against eager PyTorch."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shapevm.compiler.frontends import packed_operators  # noqa: F401 - registers them
from torch import Tensor
from torch.export import Dim
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

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


# Through torch.export --------------------------------------------------------------------------------


class Tagger(torch.nn.Module):
    """What models do with packed sequences: first states, layers between, a total length."""

    def __init__(self, kind: Any = torch.nn.LSTM, is_sorted: bool = False, **options: Any) -> None:
        super().__init__()
        self.between, self.is_sorted = torch.nn.Linear(4, 4), is_sorted
        self.layer = kind(4, 6, batch_first=True, **options)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=self.is_sorted)
        rows = torch.relu(self.between(packed.data))
        packed = PackedSequence(rows, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        n = self.layer.num_layers * (2 if self.layer.bidirectional else 1)
        first = torch.arange(x.size(0)).to(x.dtype)[:, None].expand(n, x.size(0), 6).contiguous()
        is_pair = isinstance(self.layer, torch.nn.LSTM)
        made, last = self.layer(packed, (first, first * 0.5) if is_pair else first)
        whole, _ = pad_packed_sequence(made, batch_first=True, total_length=x.size(1))
        again, last_again = self.layer(made._replace(data=rows))
        padded, n_steps = pad_packed_sequence(again, batch_first=True, padding_value=-1.0)
        return whole, last, padded, last_again, n_steps


TAGGERS = {
    "lstm": {"num_layers": 2, "bidirectional": True},
    "sorted": {"is_sorted": True},
    "gru": {"kind": torch.nn.GRU, "bidirectional": True},
    "tanh": {"kind": torch.nn.RNN, "bias": False},
    "relu": {"kind": torch.nn.RNN, "nonlinearity": "relu", "num_layers": 2},
}


def exported(model: torch.nn.Module, lengths: list[int]) -> shapevm.Executable:
    batch, time = Dim("batch", min=1), Dim("time", min=1)
    args = (torch.randn(len(lengths), 6, 4), torch.tensor(lengths))
    exe = shapevm.compile(model, args, dynamic_shapes=({0: batch, 1: time}, {0: batch}), strategy="generic")
    assert not exe.machine.externs, "PyTorch runs a part of it"
    return exe


@pytest.mark.parametrize("name", TAGGERS)
def test_through_export(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Tagger(**TAGGERS[name]).eval()
    exe = exported(model, [6, 5, 2])
    exe.save(tmp_path / "model.svm")
    for steps, lengths in ((6, [6, 5, 2]), (6, [4, 3, 3, 1]), (9, [9]), (9, [7, 7]), (1, [1, 1])):
        x = torch.randn(len(lengths), steps, 4)
        given = torch.tensor(lengths if model.is_sorted else lengths[::-1])
        found, wanted = exe(x, given), model(x, given)
        for one, other in zip(leaves(found), leaves(wanted), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "lengths.npy", given.numpy())
    command = [Path(sys.executable).parent / "shapevm-run", tmp_path / "model.svm", "--strategy", "generic"]
    command += ["--input", f"x={tmp_path / 'x.npy'}", "--input", f"lengths={tmp_path / 'lengths.npy'}"]
    subprocess.run([*map(str, command), "--output", str(tmp_path / "y.npz")], check=True)
    with np.load(tmp_path / "y.npz") as results:
        for one, row in zip(leaves(found), exe.machine.outputs, strict=True):
            assert results[row.name].tobytes() == one.numpy().tobytes()


def test_lengths_that_do_not_go_down_are_refused() -> None:
    exe = exported(Tagger(is_sorted=True).eval(), [6, 5, 2])
    with pytest.raises(GuardError, match="the lengths must go down, from time at most to 1 at least"):
        exe(torch.randn(2, 6, 4), torch.tensor([3, 4]))


def test_torch_is_as_before_when_export_ends() -> None:
    names = ("_pack_padded_sequence", "_pad_packed_sequence", "lstm")
    before = [*(getattr(torch._VF, name) for name in names), torch.nn.LSTM.forward]
    exported(Tagger().eval(), [6, 5, 2])
    assert [*(getattr(torch._VF, name) for name in names), torch.nn.LSTM.forward] == before


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh"])
def test_operators_are_what_torch_computes(kind: str) -> None:
    """The operators that stand in for torch's while a model is exported run, too."""
    torch.manual_seed(0)
    x, lengths = torch.randn(3, 6, 5), torch.tensor([6, 4, 1])
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn_tanh": torch.nn.RNN}[kind](5, 4).eval()
    wanted, last = layer(pack_padded_sequence(x, lengths, batch_first=True))
    rows, batch_sizes = torch.ops.shapevm.pack_padded(x, lengths, True)
    states = [torch.zeros(1, 3, 4)] * (2 if kind == "lstm" else 1)
    options = (list(layer._flat_weights), True, 1, False)
    made, *others = torch.ops.shapevm.packed_layers(kind, rows, batch_sizes, states, *options)
    torch.testing.assert_close(made, wanted.data)  # MKL's bits depend on where tensors lie in memory
    torch.testing.assert_close(others[0], leaves(last)[0])
    padded, n_steps = torch.ops.shapevm.pad_packed(made, batch_sizes, 3, True, 0.5, 6)
    torch.testing.assert_close(padded, pad_packed_sequence(wanted, batch_first=True, padding_value=0.5)[0])
    assert n_steps.tolist() == [6, 4, 1]
