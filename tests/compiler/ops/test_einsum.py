"""einsum against PyTorch, at the sizes of the example and at others."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import shapevm

#: Equations with the axes of their operands; those of an ellipsis are numbers.
EQUATIONS = [
    ("ij,jk->ik", "ij,jk"), ("ij,jk", "ij,jk"), ("ij,kj->", "ij,kj"), ("i,j->ji", "i,j"), ("ii->i", "ii"),
    ("ii", "ii"), ("ij->ji", "ij"), ("ij->j", "ij"), ("b h i d, b h j d -> b h i j", "bhid,bhjd"),
    ("bij,bjk,bkl->bil", "bij,bjk,bkl"), ("...ij,...jk->...ik", "12ij,2jk"), ("...ij,jk", "1ij,jk"),
    ("i...,i...->...", "i12,i2"), ("bhwc,hkc->bhwk", "bhwc,hkc"), ("iij,j->i", "iij,j"),
    ("ij,ij->ij", "ij,ij"),
    ("ijk,ilm,njm,nlk,abc->", "ijk,ilm,njm,nlk,abc"), ("A,a->aA", "A,a"), ("i,->i", "i,"),
    ("bn,anm,bm->ba", "bn,anm,bm"), ("xy...,yz->xz...", "xy1,yz"),
]  # fmt: skip
SIZES = [2, 3, 4, 5, 6, 7]


def operands(axes: str, step: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return operands whose axes of one name have one size."""
    names = sorted(set(axes) - {","})
    sizes = {name: SIZES[(i + step) % len(SIZES)] * (step != 9) for i, name in enumerate(names)}
    made = [torch.randn([sizes[name] for name in term]) for term in axes.split(",")]
    return [(x * 4).to(dtype) for x in made]


@pytest.mark.parametrize("equation, axes", EQUATIONS)
def test_sizes_are_free(equation: str, axes: str) -> None:
    def contract(*given: Tensor) -> Tensor:
        return torch.einsum(equation, *given)

    example = operands(axes, 0)
    traced = torch.jit.trace(contract, tuple(example), check_trace=False)
    with shapevm.compile(traced, tuple(example), strategy="generic") as exe:
        for step in (0, 1, 4, 9):  # 9: size 0
            given = operands(axes, step)
            wanted = torch.einsum(equation, *(x.double() for x in given))
            torch.testing.assert_close(exe(*given).double(), wanted, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.int32])
@pytest.mark.parametrize("equation, axes", EQUATIONS[:6])
def test_dtypes(equation: str, axes: str, dtype: torch.dtype) -> None:
    given = operands(axes, 0, dtype)
    traced = torch.jit.trace(lambda *x: torch.einsum(equation, *x), tuple(given), check_trace=False)
    with shapevm.compile(traced, tuple(given), strategy="generic") as exe:
        torch.testing.assert_close(exe(*given), torch.einsum(equation, *given))


@pytest.mark.parametrize("equation", ["ij,jk", "ij,jk,kl"])
def test_complex_operands(equation: str) -> None:
    """Up to three factors i, of which two give -1."""

    def contract(*parts: Tensor) -> Tensor:
        return torch.view_as_real(torch.einsum(equation, *(torch.complex(x, x * 2 - 1) for x in parts)))

    def parts(n: int) -> tuple[Tensor, ...]:
        return tuple(torch.randn(n, n) for _ in equation.split(","))

    traced = torch.jit.trace(contract, parts(3), check_trace=False)
    with shapevm.compile(traced, parts(3), strategy="generic") as exe:
        for n in (3, 1, 5):
            given = parts(n)
            torch.testing.assert_close(exe(*given), contract(*given), rtol=1e-4, atol=1e-4)


def test_axes_of_size_1_are_broadcast() -> None:
    given = torch.randn(1, 4), torch.randn(3, 4)
    traced = torch.jit.trace(lambda x, y: torch.einsum("ij,ij->i", x, y), given)
    fixed = ({1: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO})
    with shapevm.compile(traced, given, dynamic_shapes=fixed, strategy="generic") as exe:
        for rows in (3, 5, 1):
            args = torch.randn(1, 4), torch.randn(rows, 4)
            torch.testing.assert_close(exe(*args), torch.einsum("ij,ij->i", *args))


def test_sizes_of_one_name_are_checked() -> None:
    given = torch.randn(3, 4), torch.randn(4, 5)
    traced = torch.jit.trace(lambda x, y: torch.einsum("ij,jk->ik", x, y), given)
    with (
        shapevm.compile(traced, given, strategy="generic") as exe,
        pytest.raises(shapevm.Error, match="s1 is 5"),
    ):
        exe(torch.randn(3, 4), torch.randn(5, 4))


class Attention(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * 0.25
        return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)


@pytest.mark.parametrize("door", ["export", "trace"])
def test_attention_in_einsums_is_one_kernel(door: str) -> None:
    model, dims = Attention(), {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}

    def given(n: int) -> tuple[Tensor, ...]:
        return torch.randn(2, 7, 4, 8), torch.randn(2, n, 4, 8), torch.randn(2, n, 4, 8)

    program = model if door == "export" else torch.jit.trace(model, given(5))
    with shapevm.compile(program, given(5), dynamic_shapes=(dims,) * 3, strategy="generic") as exe:
        assert [kernel.label for kernel in exe.machine.kernels] == ["attention"]
        for n in (5, 1, 33):
            args = given(n)
            torch.testing.assert_close(exe(*args), model(*args))
