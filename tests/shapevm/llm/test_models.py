"""Every architecture against transformers in f32; equal bits alone, together and in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shapevm
from shapevm import nn
from shapevm.llm.artifact import INPUTS
from shapevm.llm.folder import read_decoder
from shapevm.llm.opening import Calls
from shapevm.llm.pages import room_of
from shapevm.llm.scheduler import Sequence, inputs_of

from .folders import MODELS, write_model

RNG = np.random.default_rng(7)
IDS = [int(each) for each in RNG.integers(3, 96, 23)]
OTHER = [int(each) for each in RNG.integers(3, 96, 19)]


def _opened(folder: Path, name: str, cache: str = "f32") -> tuple[Any, shapevm.Executable]:
    reference = write_model(folder, name)
    return reference, nn.compile(read_decoder(folder, room_of(128, cache)), INPUTS)


def _logits(exe: shapevm.Executable, chunk: int, others: list[list[int]]) -> np.ndarray[Any, Any]:
    """Return the logits after each `chunk` tokens of `IDS`, computed beside the tokens of others."""
    compute, made = Calls(exe).compute, []
    rows = [
        Sequence(0, IDS, pages=[5, 2]),
        *(Sequence(i, t, pages=[7 - i, i]) for i, t in enumerate(others, 3)),
    ]
    while rows[0].n_left:
        plan = [(each, min(each.n_left, chunk if each is rows[0] else 4)) for each in rows if each.n_left]
        made.append(compute(inputs_of(plan))[0][0])
        for each, n in plan:
            each.n_done += n
    return np.array(made)


@pytest.mark.parametrize(
    ("name", "cache", "error"),
    [*((name, "f32", 1e-4) for name in MODELS), ("llama", "bf16", 0.01), ("gemma3", "int8", 0.02)],
)
def test_logits_are_those_of_transformers_in_all_ways(
    tmp_path: Path, name: str, cache: str, error: float
) -> None:
    reference, exe = _opened(tmp_path, name, cache)
    with torch.no_grad():
        wanted = reference(torch.tensor([IDS])).logits[0].numpy()
    alone = _logits(exe, 1, [])
    np.testing.assert_allclose(alone, wanted, rtol=error, atol=error * np.abs(wanted).max())
    for chunk in range(2, len(IDS) + 1):
        ends = [*range(chunk - 1, len(IDS) - 1, chunk), len(IDS) - 1]
        for others in ([], [OTHER]):
            np.testing.assert_array_equal(_logits(exe, chunk, others), alone[ends], strict=True)
