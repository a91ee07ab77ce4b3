"""Few rows of zeros do not read a weight whose spec says that they may come; every other row does."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.family import check
from shapevm.jit.families.matmul.gemv import MAX_ROWS
from shapevm.jit.families.matmul.layouts import pack_panels
from shapevm.jit.families.matmul.sums import products
from shapevm.jit.llvm.target import host_target
from shapevm.jit.spec_check import SpecError

from .test_gemv import linear
from .test_matmul import dense

TARGETS = ("x86-64-v3", None) if host_target().startswith("x86") else (None,)
ROWS = (1, MAX_ROWS, MAX_ROWS + 1)
SIZES = [(192, 32), (263, 37), (71, 389)]


@cache
def kernels(n: int, k: int) -> list[tuple[Kernel, int]]:
    """Return generic and exact kernels, each with a number of rows."""
    spec = replace(linear(n, k, False).with_product(chain=32), skips_zeros=True)
    found = []
    for target in TARGETS:
        generic = Kernel(compile_kernel(spec, None, target))
        for m in ROWS:
            found += [(generic, m), (Kernel(compile_kernel(spec, (m,), target)), m)]
    return found


def run(kernel: Kernel, a: np.ndarray, b: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the results, the tiles in two parts, the second one first."""
    out, dims = np.full((len(a), len(bias)), 7, np.float32), (len(a),)
    tiles = kernel.n_tiles(dims)
    kernel.run([a, pack_panels(b), out, bias], dims, [(tiles // 2, tiles), (0, tiles // 2)])
    return out


@pytest.mark.parametrize("n, k", SIZES)
def test_zeros_do_not_read_the_weight(n: int, k: int) -> None:
    bias = np.random.default_rng(1).standard_normal(n).astype(np.float32)
    nan = np.full((k, n), np.nan, np.float32)
    for kernel, m in kernels(n, k):
        a = np.zeros((m, k), np.float32)
        a[:, ::3] = -0.0
        found = run(kernel, a, nan, bias)
        assert np.array_equal(found, np.broadcast_to(bias, (m, n))) == (m <= MAX_ROWS)


@pytest.mark.parametrize("n, k", SIZES)
def test_zeros_give_positive_zeros(n: int, k: int) -> None:
    """As by fused multiply-adds: bias -0 would show a -0."""
    rng = np.random.default_rng(2)
    bias, b = np.full(n, -0.0, np.float32), rng.standard_normal((k, n)).astype(np.float32)
    for kernel, m in kernels(n, k):
        a = np.full((m, k), -0.0, np.float32)
        found = run(kernel, a, b, bias)
        assert np.array_equal(found.view(np.uint32), np.zeros((m, n), np.uint32))


@pytest.mark.parametrize("n, k", SIZES)
@pytest.mark.parametrize("number", [1e-45, np.nan, -3.0])
def test_a_single_element_counts(n: int, k: int, number: float) -> None:
    rng = np.random.default_rng(3)
    b, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((k, n), n))
    for kernel, m in kernels(n, k):
        for place in (0, k // 2, k - 1):
            a = np.zeros((m, k), np.float32)
            a[m - 1, place] = number
            wanted = products(a, b, chain=32) + bias
            assert np.array_equal(run(kernel, a, b, bias), wanted, equal_nan=True)


def test_an_infinite_weight_is_read_by_other_specs() -> None:
    inf, bias = np.full((40, 192), np.inf, np.float32), np.zeros(192, np.float32)
    kernel = Kernel(compile_kernel(linear(192, 40, False), (1,), None))
    assert np.isnan(run(kernel, np.zeros((1, 40), np.float32), inf, bias)).all()


def test_only_weights_in_panels_have_the_flag() -> None:
    with pytest.raises(SpecError, match="skips_zeros is True; it must be false but for a weight"):
        check(replace(dense(4, 40, 64, layout="rows", n_dims=0), skips_zeros=True))
