"""Products of f32 rows that integers represent, in limbs or in i16: the sums of the definition on every
target and tier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.family import check
from shapevm.jit.families.matmul.grouped import BYTE, unpacked
from shapevm.jit.families.matmul.layouts import DIGITS_LAYOUT, LAYOUTS, SHORTS_LAYOUT, Layout
from shapevm.jit.families.matmul.schedules import SCHEDULES, WITHOUT_ASKING
from shapevm.jit.families.matmul.spec import Matmul
from shapevm.jit.families.matmul.sums import digit_products, short_products
from shapevm.jit.llvm.target import bases, runs_here
from shapevm.jit.reference import evaluate

from .test_grouped import RANGES, product, weight

NAMES = ("x86-64-v4-vnni", "x86-64-v4", "x86-64-v3-vnni", "x86-64-v3", *bases("aarch64-i8mm"))
TARGETS = [name for name in NAMES if runs_here(name)]
SHAPES = [(33, 64, 32), (200, 128, 64), (40, 48, 16), (224, 2176, 32), (64, 384, 128)]


@dataclass(frozen=True)
class Kind:
    """A layout whose rows of A integers represent, and the definition of its products."""

    layout: Layout
    products: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

    def spec(self, n: int, k: int, shape: tuple[int, ...], is_computed: bool = False) -> Matmul:
        """out[m, n] = a[m, k] @ b, or `is_computed`: (a + 1) @ b."""
        return product(n, k, shape, is_computed).with_product(b_layout=self.layout.name)

    def packed(self, integers: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Return them as kernels read them."""
        return self.layout.pack(integers, scales)


DIGITS = Kind(LAYOUTS[DIGITS_LAYOUT], digit_products)
SHORTS = Kind(LAYOUTS[SHORTS_LAYOUT], short_products)
of_kinds = pytest.mark.parametrize("kind", [DIGITS, SHORTS], ids=lambda kind: kind.layout.name)


@of_kinds
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(("n", "k", "steps"), SHAPES)
def test_packing_keeps_integers_and_scales(kind: Kind, dtype: str, n: int, k: int, steps: int) -> None:
    given = weight(dtype, n, k, steps)
    found = unpacked(kind.packed(*given), k, n, kind.layout.beside, kind.layout.planes)
    for x, wanted in zip(found, given, strict=True):
        np.testing.assert_array_equal(x, wanted)


@of_kinds
@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(("n", "k", "steps"), SHAPES)
def test_sums_are_those_of_the_definition(
    kind: Kind, n: int, k: int, steps: int, dtype: str, is_computed: bool
) -> None:
    integers, scales = weight(dtype, n, k, steps)
    b = kind.packed(integers, scales)
    spec = kind.spec(n, k, b.shape, is_computed)
    check(spec)
    rng = np.random.default_rng(3)
    for target in TARGETS:
        generic = Kernel(compile_kernel(spec, None, target))
        for m in (0, 1, 5, 8, 300):
            a = rng.standard_normal((m, k)).astype(np.float32)
            wanted = kind.products(a + np.float32(is_computed), integers, scales)
            for kernel in (generic, Kernel(compile_kernel(spec, (m,), target))):
                out = np.full((m, n), np.nan, np.float32)
                kernel.run([a, b, out], (m,), [(t, t + 1) for t in range(kernel.n_tiles((m,)))])
                np.testing.assert_array_equal(out, wanted)


@of_kinds
@pytest.mark.parametrize("schedule", (*SCHEDULES, WITHOUT_ASKING))
def test_every_schedule_has_the_same_bits(kind: Kind, schedule: str) -> None:
    for dtype in RANGES:
        integers, scales = weight(dtype, 296, 96, 32)
        b = kind.packed(integers, scales)
        for target in TARGETS[:1]:
            kernel = Kernel(compile_kernel(kind.spec(296, 96, b.shape), None, target, schedule=schedule))
            for m in (1, 3, 61):
                a = np.random.default_rng(0).standard_normal((m, 96)).astype(np.float32)
                out = np.full((m, 296), np.nan, np.float32)
                kernel.run([a, b, out], (m,))
                np.testing.assert_array_equal(out, kind.products(a, integers, scales))


@of_kinds
def test_the_reference_evaluates_them(kind: Kind) -> None:
    integers, scales = weight(BYTE, 40, 64, 32)
    a, b = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32), kind.packed(integers, scales)
    out = np.zeros((5, 40), np.float32)
    evaluate(kind.spec(40, 64, b.shape), (5,), [a, b, out])
    np.testing.assert_allclose(out, kind.products(a, integers, scales), rtol=1e-5, atol=1e-3)
