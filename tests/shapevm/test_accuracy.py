"""A small part of `benchmarks/accuracy.py`, and what `accurate=True` turns off."""

import math
import sys
from pathlib import Path

import pytest
import torch
from shapevm.jit.families.conv.spec import Conv
from shapevm.jit.families.matmul.layouts import WINOGRAD
from shapevm.jit.spec_reader import from_json
from shapevm.vm.reader import read

import shapevm

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from accuracy import OPERATORS, Case, errors, measured

LENGTHS = (65, 5_000)


MEASURED = (
    "mean", "var", "std", "norm", "layer_norm", "softmax", "logsumexp", "product of two inputs",
    "product with a weight", "product of many rows", "convolution of channels", "convolution of two inputs",
    "avg_pool", "index_add", "logcumsumexp", "cumsum, bfloat16", "sum, float16", "layer_norm, bfloat16",
)  # fmt: skip


#: What the error of short products may be as a multiple of eager's, which adds in parts on some machines: a
#: limit that docs/limits.md states.
SHORT_PRODUCTS = {"product of two inputs": 4.0, "product with a weight": 3.0}


@pytest.mark.parametrize("name", MEASURED)
def test_errors_are_eagers_or_small(name):
    cases = list(measured(name, LENGTHS))
    assert len(cases) > len(LENGTHS)
    broken = [case for case in cases if not case.holds and not overflows(case)]
    times = SHORT_PRODUCTS.get(name, 0.0)
    assert [case for case in broken if case.length > 65 or case.ours > times * case.eager] == []


def overflows(case):
    """Whether parts of sums of products near f32's greatest number pass it: that depends on their order."""
    is_of_products = case.operator.startswith(("product", "convolution"))
    return is_of_products and case.scale >= 1e38 and case.ours == math.inf


def test_every_operator_of_the_table_is_known():
    assert len(OPERATORS) > 15


@pytest.mark.parametrize("wrong", [math.inf, -math.inf, math.nan])
def test_a_result_that_is_not_finite_is_lost(wrong):
    """Where eager's is finite; no huge number stands in the table for it."""
    found = errors(OPERATORS["sum"], lambda x: torch.tensor([wrong]), torch.ones(1, 65), ())
    assert found == (0.0, 0.0, 0.0, 1, 0)
    assert Case("sum", 65, 0.0, 1.0, 0.0, 1e-7, 1, 0).row()[-2:] == ["1, 0", "broken"]


class Convolution(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(64, 64, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


def layouts(exe: shapevm.Executable, path: Path) -> set[str]:
    """Return how the weights of an executable's convolutions lie."""
    exe.save(path)
    specs = [from_json(kernel.spec) for kernel in read(path).kernels]
    return {spec.product.b_layout for spec in specs if isinstance(spec, Conv)}


def test_accurate_turns_winograd_off(tmp_path):
    """The root of the mean square of errors: the greatest of so many is one element's luck."""
    torch.manual_seed(0)
    x, model = torch.randn(2, 64, 33, 33), Convolution().eval()
    exact = model.double()(x.double())
    model.float()
    fast, slow = (
        shapevm.compile(model, (x,), options=shapevm.Options(accurate=accurate)) for accurate in (False, True)
    )
    assert [layouts(exe, tmp_path / "m.svm") for exe in (fast, slow)] == [{WINOGRAD}, {"panels"}]
    *errors, eager = ((y.double() - exact).square().mean().sqrt() for y in (fast(x), slow(x), model(x)))
    assert errors[1] < eager < errors[0] <= 4 * eager


def test_winograds_error_does_not_grow_with_the_channels():
    torch.manual_seed(0)
    x, model = torch.randn(1, 512, 20, 20), torch.nn.Conv2d(512, 64, 3, padding=1).eval()
    exact = model.double()(x.double())
    model.float()
    fast = shapevm.compile(model, (x,))
    ours, eager = ((y.double() - exact).square().mean().sqrt() for y in (fast(x), model(x)))
    assert ours <= 4 * eager


def test_torch_compile_takes_accurate():
    torch._dynamo.reset()
    x, model = torch.randn(1, 64, 33, 33), Convolution().eval()
    with torch.no_grad():
        found = [
            torch.compile(model, backend="shapevm", options={"accurate": accurate})(x)
            for accurate in (False, True)
        ]
        torch._dynamo.reset()
    exact = shapevm.compile(model, (x,), options=shapevm.Options(accurate=True))(x)
    assert torch.equal(found[1], exact)
