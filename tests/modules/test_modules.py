"""A tenth of PyTorch's modules in every mode, drawn anew in every run (pytest prints the seed; `--seed` gives
it), and what judges them."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from ..opinfo import verdicts as operators
from ..opinfo.verdicts import RIGHT
from . import cases, page
from .cases import Case
from .verdicts import MODES, judge_one

PART, MOST = 0.1, 6  # of a module's inputs in one mode
SHARES = 8


@pytest.fixture(scope="module")
def infos() -> Iterator[dict[str, Any]]:
    """The database, in a process prepared for it; other tests get theirs back."""
    pytest.importorskip("expecttest")
    with pytest.MonkeyPatch.context() as kept:
        kept.setattr(torch.fx.config, "do_not_emit_stack_traces", False)
        operators.prepare()
        yield cases.database()
    logging.disable(logging.NOTSET)
    torch._dynamo.reset()


@pytest.mark.drawn
@pytest.mark.parametrize("share", range(SHARES))
def test_a_tenth_of_all(infos: dict[str, Any], share: int, pytestconfig: pytest.Config) -> None:
    """Of each module, in each mode, a tenth of its inputs, rounded up or down at random, at most MOST."""
    number = pytestconfig.getoption("seed")
    drawn = random.Random(1000 * number + share)
    judged, wrong = 0, []
    for cell in cases.cells(infos)[share::SHARES]:
        for mode in MODES:
            training = mode == "training"
            inputs = cases.inputs(infos[cell.op], cell.dtype, training)
            count = min(int(PART * len(inputs) + drawn.random()), MOST)
            for i in sorted(drawn.sample(range(len(inputs)), count)):
                case = cases.case(infos[cell.op], cell.dtype, inputs[i], training)
                found = judge_one(cell.op, case, mode)
                judged += 1
                if found.verdict not in (*RIGHT, "skipped", "foreign"):
                    wrong.append(f"{cell.op}, {mode}, input {i}: {found.verdict}: {found.detail}")
    assert judged
    assert not wrong, f"with --seed {number}:\n" + "\n".join(wrong)


# The judge ----------------------------------------------------------------------------------------


class Changing(nn.Module):
    """Changes its argument, and one more where it is not traced."""

    def forward(self, input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Add to the first, and secretly to the second."""
        input.add_(1)
        if not torch.compiler.is_compiling():
            other.data += 1
        return input * 2


class Lying(nn.Module):
    """Has another gradient where it is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, type: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        weight = 2 * self.weight - self.weight.detach() if torch.compiler.is_compiling() else self.weight
        return type * weight


class Called(nn.Module):
    """Needs one of PyTorch's kernels."""

    def forward(self, out: torch.Tensor) -> torch.Tensor:
        """Return eigenvalues."""
        return torch.linalg.eigvalsh(out @ out.T)


X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("mode", MODES)
def test_right_ones_are_native(infos: dict[str, Any], mode: str) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True)).train(mode == "training")
    assert judge_one("", Case(module, (X,), {}), mode).verdict == "native"


@pytest.mark.parametrize("mode", MODES)
def test_changed_arguments_are_seen(infos: dict[str, Any], mode: str) -> None:
    assert judge_one("", Case(Changing(), (X, X), {}), mode).verdict == "differs"


def test_other_gradients_are_seen(infos: dict[str, Any]) -> None:
    case = Case(Lying(), (X,), {})
    assert [judge_one("", case, mode).verdict for mode in MODES] == ["native"] * 3 + ["differs"]


@pytest.mark.parametrize("mode", MODES)
def test_calls_of_pytorch_are_seen(infos: dict[str, Any], mode: str) -> None:
    found = judge_one("", Case(Called(), (X,), {}), mode)
    assert found.verdict == "fallback" and "eigh" in found.detail


def test_all_axes_are_dynamic() -> None:
    case = Case(nn.Bilinear(2, 3, 4), (torch.ones(8, 2),), {"input2": torch.ones(8, 3)})
    shapes = case.dynamic_shapes()
    assert list(shapes) == ["input1", "input2"]
    assert shapes["input2"] == {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}


def test_the_page() -> None:
    found = {
        ("nn.A", "f32", "static"): [("native", ""), ("native", ""), ("differs", "1 is not 2")],
        ("nn.A", "f32", "training"): [("fallback", "aten.x"), ("skipped", "")],
        ("nn.B", "f32", "static"): [("native", "")],
    }
    text = page.page(found)
    assert "| nn.A | 2n 1! |  |  | 1f |" in text and "- nn.A, static, input 2: differs: 1 is not 2" in text
    assert "| static | 2 | 4 | 75.0 % | 75.0 % | 0 | 1 | 1 |" in text
    assert "| all | 2 | 5 | 80.0 % | 60.0 % | 0 | 1 | 1 |" in text
