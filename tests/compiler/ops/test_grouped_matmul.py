"""Products of groups of rows, columns and inner positions, as mixtures of experts use them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from shapevm.vm.errors import GuardError
from torch.export import Dim

import shapevm

pytest.importorskip("transformers.integrations.moe")  # it registers the second operator
GROUPED, FALLBACK = torch.ops.aten._grouped_mm, torch.ops.transformers.grouped_mm_fallback
N = 4  # groups


class Model(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor], weight: torch.Tensor | None) -> None:
        super().__init__()
        self.function = function
        self.weight = None if weight is None else torch.nn.Parameter(weight, requires_grad=False)

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return self.function(x, *(rest if self.weight is None else (self.weight, *rest)))


def compiled(model: Model, args: tuple[torch.Tensor, ...], *shapes: Any) -> shapevm.Executable:
    """Compile where nothing may be left to PyTorch."""
    dynamic = {"x": shapes[0], "rest": shapes[1:]} if shapes else None
    program = torch.export.export(model, args, dynamic_shapes=dynamic)
    made = shapevm.compile(program, options=shapevm.Options(fallback="error"))
    assert not shapevm.program.executable.torch_operators(made.machine)
    return made


def R(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def offsets(*ends: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(ends, dtype=dtype)


ROWS = [
    (10, (2, 2, 7, 10)), (10, (0, 0, 0, 10)), (7, (7, 7, 7, 7)), (13, (0, 1, 12, 13)), (64, (16, 32, 48, 64)),
    (1, (0, 0, 1, 1)), (0, (0, 0, 0, 0)),
]  # fmt: skip


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    rounding = 2e-2 if expected.dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(found, expected, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize(
    ("function", "dtype", "of_offsets"),
    [(GROUPED, torch.bfloat16, torch.int32), (FALLBACK, torch.float32, torch.int64)],
    ids=["aten", "transformers"],
)
def test_rows_by_the_matrix_of_their_group(
    function: Any, dtype: torch.dtype, of_offsets: torch.dtype, transposed: bool, tmp_path: Path
) -> None:
    weight = R(N, 24, 16, dtype=dtype).transpose(1, 2) if transposed else R(N, 16, 24, dtype=dtype)
    model = Model(function, weight)
    example = R(10, 16, dtype=dtype), offsets(2, 2, 7, 10, dtype=of_offsets)
    made = compiled(model, example, {0: Dim("rows", min=0, max=1000)}, None)
    made.save(tmp_path / "m.svm")
    loaded = shapevm.load(tmp_path / "m.svm")
    for n, ends in ROWS:
        args = R(n, 16, dtype=dtype), offsets(*ends, dtype=of_offsets)
        found = made(*args)
        assert_close(found, model(*args))
        assert torch.equal(loaded(*args), found)


def test_rows_behind_the_last_group_are_zero() -> None:
    weight = R(N, 16, 24)
    model = Model(FALLBACK, weight)
    made = compiled(model, (R(10, 16), offsets(2, 2, 7, 10)))
    found = made(R(10, 16), offsets(1, 3, 3, 6))
    assert_close(found, model(R(10, 16), offsets(1, 3, 3, 6)))
    assert not found[6:].any()


@pytest.mark.parametrize(
    ("ends", "words"),
    [((3, 2, 7, 10), "offset 1 must be at least offset 0"), ((-1, 2, 7, 10), "offset 0 must be at least 0")],
)
def test_offsets_that_do_not_ascend_are_refused(ends: tuple[int, ...], words: str) -> None:
    made = compiled(Model(FALLBACK, R(N, 16, 24)), (R(10, 16), offsets(2, 2, 7, 10)))
    with pytest.raises(GuardError, match=words):
        made(R(10, 16), offsets(*ends))


@pytest.mark.parametrize("ends", [(8, 8, 24, 32), (0, 0, 0, 32), (8, 16, 24, 32), (32, 32, 32, 32)])
@pytest.mark.parametrize("form", ["columns", "inner", "batch"])
def test_other_forms(form: str, ends: tuple[int, ...]) -> None:
    half = torch.bfloat16
    x, y = {
        "columns": (R(N, 16, 24, dtype=half), R(32, 24, dtype=half).t()),
        "inner": (R(16, 32, dtype=half), R(24, 32, dtype=half).t()),
        "batch": (R(N, 16, 24, dtype=half), R(N, 24, 8, dtype=half)),
    }[form]
    model = Model(GROUPED, None)
    rest = () if form == "batch" else (offsets(8, 16, 24, 32),)
    made = compiled(model, (x, y, *rest))
    given = () if form == "batch" else (offsets(*ends),)
    assert_close(made(x, y, *given), model(x, y, *given))
