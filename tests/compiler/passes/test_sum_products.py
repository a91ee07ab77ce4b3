"""Products of a matrix that the call gives by a vector are sums along its rows, whatever way it lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from shapevm.compiler.passes.sum_products import sum_products
from shapevm.jit.families.matmul.spec import Matmul
from shapevm.jit.spec import Nest
from shapevm.jit.spec_reader import from_json
from torch import Tensor

import shapevm

SIZES = ((0, 5), (5, 0), (1, 1), (1, 17), (17, 1), (31, 63), (13, 1031), (1031, 13))
M, K = (torch.export.Dim(name, min=0, max=4096) for name in "mk")
#: A product of a matrix and a vector, and the axes of both: sizes, or letters of those that calls give.
FORMS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str, str]] = {
    "mv": (torch.mv, "mk", "k"),
    "vector behind": (lambda a, x: a @ x, "mk", "k"),
    "column": (lambda a, x: a @ x[:, None], "mk", "k"),
    "vector before": (lambda a, x: x @ a, "km", "k"),
    "row": (lambda a, x: x @ a, "km", "1k"),
    "linear": (lambda a, x: F.linear(x, a), "mk", "1k"),
    "linear of a vector": (lambda a, x: F.linear(x, a), "mk", "k"),
    "transposed": (lambda a, x: a.T @ x, "km", "k"),
    "bmm, a column": (torch.bmm, "2mk", "2k1"),
    "bmm, a row": (lambda a, x: torch.bmm(x, a), "2km", "21k"),
    "shared matrix": (lambda a, x: torch.matmul(x, a), "km", "31k"),
    "shared vector": (torch.matmul, "2mk", "k"),
    "followed by others": (lambda a, x: torch.relu(a @ x + 1.0), "mk", "k"),
    "dot": (lambda a, x: torch.dot(a, x), "k", "k"),
}


class Product(torch.nn.Module):
    def __init__(self, form: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.form = form

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        return self.form(a, x)


def given(axes: str, m: int, k: int) -> Tensor:
    """Return numbers with `axes`, each a size or a letter."""
    sizes = {"m": m, "k": k}
    return torch.randn([sizes[axis] if axis in sizes else int(axis) for axis in axes])


def compiled(form: str) -> shapevm.Executable:
    """Return the program of a form, at any sizes."""
    f, *operands = FORMS[form]
    dims = tuple({i: {"m": M, "k": K}[x] for i, x in enumerate(axes) if x in "mk"} for axes in operands)
    return shapevm.compile(Product(f), tuple(given(axes, 7, 19) for axes in operands), dynamic_shapes=dims)


@pytest.mark.parametrize("form", FORMS)
def test_one_kernel_sums_along_rows_with_the_same_bits_on_every_tier(form: str, tmp_path: Path) -> None:
    exe, path = compiled(form), tmp_path / "product.svm"
    (kernel,) = exe.machine.kernels
    assert isinstance(from_json(kernel.spec), Nest)
    exe.save(path)
    tiers = [shapevm.load(path, strategy=strategy) for strategy in ("generic", "jit")]
    f, *operands = FORMS[form]
    for m, k in SIZES:
        torch.manual_seed(m)
        inputs = [given(axes, m, k) for axes in operands]
        wanted, found = f(*inputs), [tier(*inputs) for tier in tiers]
        torch.testing.assert_close(found[0], wanted, rtol=1e-5, atol=1e-5 * max(k, 1) ** 0.5)
        assert torch.equal(found[0], found[1])


@pytest.mark.parametrize("k", [3, 15, 16, 40])
def test_few_steps_stay_a_product(k: int) -> None:
    a, x = torch.randn(9, k, k), torch.randn(9, k, 1)
    exe = shapevm.compile(Product(torch.matmul), (a, x), dynamic_shapes=({0: M}, {0: M}))
    (kernel,) = exe.machine.kernels
    assert isinstance(from_json(kernel.spec), Matmul if k < 16 else Nest)
    torch.testing.assert_close(exe(a, x), a @ x, rtol=1e-5, atol=1e-5)


def test_a_weight_keeps_its_panels() -> None:
    exe = shapevm.compile(torch.nn.Linear(64, 48), (torch.randn(1, 64),))
    assert isinstance(from_json(exe.machine.kernels[0].spec), Matmul)


def test_both_operands_are_read_as_they_lie(rewrite: Callable[..., None]) -> None:
    rewrite(
        sum_products,
        """graph "g"
  symbol k min=1 max=64 multiple_of=1
  input %x: f32[1, k]
  input %y: f32[k, 40]
  %v0: f32[1, 40] = matmul(%x, %y)
  output %v0""",
        """graph "g"
  %v1: f32[40, k] = permute(%y) {axes=[1, 0]}
  %v2: f32[40, k] = expand(%x) {shape=[40, k]}
  %v3: f32[40, k] = mul(%v2, %v1)
  %v4: f32[40, 1] = reduce_sum(%v3)
  %v5: f32[1, 40] = reshape(%v4) {shape=[1, 40]}
  output %v5 as "v0"
""",
    )
