"""Operators whose decomposition in PyTorch fixes the sizes of the example: here they stay free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import shapevm


def weighted(x: Tensor, weight: Tensor) -> Tensor:
    return F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(x), weight)


def blocks(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.kron(x, y), torch.kron(y[0], x)


def norms(x: Tensor) -> list[Tensor]:
    large = float("inf")
    made = [torch.linalg.norm(x[0], "fro"), torch.linalg.norm(x, -1.0, [0, -1])]
    made += [torch.linalg.norm(x[0], 1.0, keepdim=True), torch.linalg.norm(x[0], -large)]
    made += [torch.linalg.matrix_norm(x, large, keepdim=True), torch.linalg.matrix_norm(x, 1.0, [2, 0])]
    made.append(torch.linalg.matrix_norm(x, dtype=torch.float64))
    return made


def parts(x: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    return torch.tensor_split(x, 3), torch.tensor_split(x, 2, 1), x.tensor_split([1, 2])


def halves(x: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
    return torch.unsafe_chunk(x, 2), x.chunk(2), torch.unsafe_split(x, 2)[0]


def common(x: Tensor, y: Tensor) -> list[int]:
    return torch.broadcast_shapes(x.shape, y.shape)


def shuffled(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2)


def cleaned(x: Tensor) -> Tensor:
    window = torch.hann_window(8)
    made = torch.stft(x, 8, 4, window=window, return_complex=True) * 2
    return torch.istft(made, 8, 4, 8, window, length=x.size(1))


def counted(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.nan_to_num(x), torch.sinc(x), F.hardshrink(x)


_PAIRS = [((5, 3), (3,)), ((2, 3), (3,)), ((1, 3), (3,)), ((0, 3), (3,))]
_CASES: list[tuple[Callable[..., Any], list[Any]]] = [
    (weighted, _PAIRS),
    (common, _PAIRS),
    (blocks, [((2, 3), (2, 2)), ((1, 2), (3, 1)), ((5, 1), (1, 7)), ((0, 3), (1, 2))]),
    (norms, [((2, 5, 3),), ((3, 1, 1),), ((7, 2, 5),)]),
    (parts, [((7, 5),), ((6, 4),), ((1, 1),), ((2, 0),), ((5, 3),)]),
    (counted, [((1, 0, 3),), ((0, 0, 5),), ((3, 4, 2),)]),
    (shuffled, [((2, 4, 2, 2),), ((1, 8, 4, 2),), ((3, 12, 2, 6),)]),
    (cleaned, [((2, 32),), ((1, 17),), ((3, 43),)]),
    (halves, [((7, 5),), ((6, 4),), ((2, 1),), ((0, 1),)]),
]


@pytest.mark.parametrize("function, shapes", _CASES)
def test_every_size_is_taken(
    function: Callable[..., Any], shapes: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="shapevm")
    calls = [tuple(map(torch.randn, each)) for each in shapes]
    script = torch.jit.script(function)
    with shapevm.compile(script, args=calls[0]) as exe:
        for args in calls:
            torch.testing.assert_close(exe(*args), script(*args), equal_nan=True)
        assert not exe.machine.externs
    assert "fixes sizes" not in caplog.text and "as in the example: s" not in caplog.text


class Losses(nn.Module):
    """Losses with weights of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = nn.BCELoss(weight=torch.rand(3))
        self.scores = nn.BCEWithLogitsLoss(pos_weight=torch.rand(3))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.shares(torch.sigmoid(x), y), self.scores(x, y)


@pytest.mark.parametrize("is_traced", [False, True])
def test_weights_of_classes_fix_no_batch(is_traced: bool) -> None:
    calls = [(torch.randn(n, 3), torch.rand(n, 3)) for n in (5, 1, 7)]
    script = torch.jit.trace(Losses(), calls[0]) if is_traced else torch.jit.script(Losses())
    with shapevm.compile(script, args=calls[0]) as exe:
        for args in calls:
            torch.testing.assert_close(exe(*args), script(*args))


def test_labels_of_one_sample_have_one_loss() -> None:
    def loss(x: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(x, target, reduction="none")

    script = torch.jit.trace(loss, (torch.rand(5), torch.tensor([1, 3, -1, 0, 0])))
    with shapevm.compile(script, args=(torch.rand(5), torch.tensor([1, 3, -1, 0, 0]))) as exe:
        for targets in ([1, 3, -1, 0, 0], [-1, 1, 1], [2, 0, 1, 3, 4, 5, 6]):
            args = torch.rand(len(targets)), torch.tensor(targets)
            torch.testing.assert_close(exe(*args), loss(*args))


def test_batch_norm_without_statistics() -> None:
    def normal(x: Tensor) -> Any:
        return torch.ops.aten._native_batch_norm_legit(x, None, None, True, 0.5, 1e-5)

    script = torch.jit.trace(normal, torch.randn(2, 3, 4))
    with shapevm.compile(script, args=(torch.randn(2, 3, 4),)) as exe:
        for shape in ((2, 3, 4), (5, 1, 2)):
            x = torch.randn(shape)
            torch.testing.assert_close(tuple(exe(x)), tuple(normal(x)))


def windowed(x: Tensor) -> Tensor:
    """Add windows of 3 x 3 of a padded image, whose number a division by their rows gives again."""
    b, h, w, c = x.shape
    down, right = (3 - h % 3) % 3, (3 - w % 3) % 3
    rows, columns = h + down, w + right
    padded = F.pad(x, (0, 0, 0, right, 0, down)).view(b, rows // 3, 3, columns // 3, 3, c)
    windows = padded.transpose(2, 3).reshape(-1, 3, 3, c) * 2
    batch = windows.shape[0] // (rows * columns // 3 // 3)
    image = windows.view(batch, rows // 3, columns // 3, 3, 3, -1).transpose(2, 3)
    return x + image.reshape(batch, rows, columns, -1)[:, :h, :w]


def stretched(x: Tensor, kept: Tensor) -> Tensor:
    return x + x.flatten()[kept][: x.shape[0]].unsqueeze(1)


def test_a_batch_of_1_is_free_where_a_quotient_gives_it_again() -> None:
    example = torch.randn(1, 8, 8, 4)
    with shapevm.compile(torch.jit.trace(windowed, example), (example,), strategy="generic") as exe:
        assert [str(axis.symbol) for axis in exe.machine.outputs[0].axes] == ["0", "1", "2", "3"]
        for shape in ((1, 8, 8, 4), (5, 7, 3, 2), (2, 9, 1, 1)):
            x = torch.randn(shape)
            torch.testing.assert_close(exe(x), windowed(x))


def test_a_size_of_1_may_be_that_of_data() -> None:
    """Which of two sizes is broadcast is decided at every call, where one is not the inputs'."""
    example = torch.randn(1, 4), torch.tensor([True, False, False, False])
    with shapevm.compile(torch.jit.trace(stretched, example), example, strategy="generic") as exe:
        for rows in (1, 3):
            args = torch.randn(rows, 4), torch.arange(4 * rows) % 2 == 0
            torch.testing.assert_close(exe(*args), stretched(*args))
