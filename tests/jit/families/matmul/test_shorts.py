"""Products of f32 in i16 by small integers: the sums of the definition on every target and tier."""

from __future__ import annotations

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.family import check
from shapevm.jit.families.matmul.grouped import BYTE, unpacked
from shapevm.jit.families.matmul.layouts import LAYOUTS, SHORTS_LAYOUT
from shapevm.jit.families.matmul.schedules import SCHEDULES, WITHOUT_ASKING
from shapevm.jit.families.matmul.spec import Matmul
from shapevm.jit.families.matmul.sums import short_products
from shapevm.jit.llvm.target import bases, runs_here
from shapevm.jit.reference import evaluate

from .test_grouped import RANGES, product, weight

NAMES = ("x86-64-v4-vnni", "x86-64-v4", "x86-64-v3-vnni", "x86-64-v3", *bases("aarch64-i8mm"))
TARGETS = [name for name in NAMES if runs_here(name)]
SHAPES = [(33, 64, 32), (200, 128, 64), (40, 48, 16), (224, 2176, 32), (64, 384, 128)]


def in_shorts(n: int, k: int, shape: tuple[int, ...], is_computed: bool = False) -> Matmul:
    """out[m, n] = a[m, k] @ b with a in i16, or `is_computed`: (a + 1) @ b."""
    return product(n, k, shape, is_computed).with_product(b_layout=SHORTS_LAYOUT)


def packed(integers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return them as kernels read them."""
    return LAYOUTS[SHORTS_LAYOUT].pack(integers, scales)


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(("n", "k", "steps"), SHAPES)
def test_packing_keeps_integers_and_scales(dtype: str, n: int, k: int, steps: int) -> None:
    given = weight(dtype, n, k, steps)
    for x, wanted in zip(unpacked(packed(*given), k, n, LAYOUTS[SHORTS_LAYOUT].beside), given, strict=True):
        np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(("n", "k", "steps"), SHAPES)
def test_sums_are_those_of_the_definition(n: int, k: int, steps: int, dtype: str, is_computed: bool) -> None:
    integers, scales = weight(dtype, n, k, steps)
    b = packed(integers, scales)
    spec = in_shorts(n, k, b.shape, is_computed)
    check(spec)
    rng = np.random.default_rng(3)
    for target in TARGETS:
        generic = Kernel(compile_kernel(spec, None, target))
        for m in (0, 1, 5, 8, 300):
            a = rng.standard_normal((m, k)).astype(np.float32)
            wanted = short_products(a + np.float32(is_computed), integers, scales)
            for kernel in (generic, Kernel(compile_kernel(spec, (m,), target))):
                out = np.full((m, n), np.nan, np.float32)
                kernel.run([a, b, out], (m,), [(t, t + 1) for t in range(kernel.n_tiles((m,)))])
                np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("dtype", RANGES)
def test_the_greatest_numbers_are_exact(dtype: str) -> None:
    """Numbers of 15 bits in every group: the sums of the largest products do not overflow."""
    n, k = 40, 256
    lowest, behind = RANGES[dtype]
    integers = np.where(np.arange(n) % 2, lowest, behind - 1) * np.ones((k, 1), np.int8)
    scales = np.ones((2, n), np.float32)
    a = np.full((3, k), 32767, np.float32) * np.array([[1], [-1], [2**-140]], np.float32)
    a[2] = 32767 * 2.0**80
    exact = a.astype(np.float64) @ integers.astype(np.float64)
    b = packed(integers.astype(np.int8), scales)
    spec = in_shorts(n, k, b.shape)
    out = np.zeros((3, n), np.float32)
    Kernel(compile_kernel(spec, None, TARGETS[-1])).run([a, b, out], (3,))
    np.testing.assert_allclose(out, exact, rtol=2.0**-23)


@pytest.mark.parametrize("dtype", RANGES)
def test_rows_of_any_size_of_numbers(dtype: str) -> None:
    """Zeros, subnormal numbers, the greatest ones, those next to powers of two, infinities and NaN."""
    n, k = 72, 64
    integers, scales = weight(dtype, n, k, 32)
    a = np.random.default_rng(2).standard_normal((11, k)).astype(np.float32)
    a[1], a[2], a[3] = 0, -0.0, np.rint(a[3] * 10)
    a[4] *= np.float32(1e-44)
    a[5] = np.clip(a[5], -1, 1) * np.finfo(np.float32).max
    a[6, 5], a[7, 3], a[8, (1, 2, 5)] = np.inf, np.nan, (np.inf, -np.inf, np.inf)
    a[9] *= np.float32(1e-36)
    a[10, :40] = np.nextafter(np.float32(2), np.float32(0)) - np.arange(40) * 2.0**-17
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = short_products(a, integers, scales)
    assert np.isnan(wanted[6:9]).all()
    usual = [0, 1, 2, 3, 9, 10]
    wide = integers.astype(np.float64) * np.repeat(scales, 32, axis=0)
    error = np.abs(wanted[usual] - a[usual].astype(np.float64) @ wide)
    step = np.maximum(2.0**-15 * np.abs(a[usual]).max(-1, keepdims=True), 2.0**-126)
    assert (error <= step * np.abs(wide).sum(0)).all()
    spec, b = in_shorts(n, k, packed(integers, scales).shape), packed(integers, scales)
    for target in TARGETS:
        generic = Kernel(compile_kernel(spec, None, target))
        for rows in (slice(0, 11), slice(6, 9), slice(7, 8)):
            part = np.ascontiguousarray(a[rows])
            for kernel in (generic, Kernel(compile_kernel(spec, (len(part),), target))):
                out = np.zeros((len(part), n), np.float32)
                kernel.run([part, b, out], (len(part),))
                np.testing.assert_array_equal(out, wanted[rows])


@pytest.mark.parametrize("schedule", (*SCHEDULES, WITHOUT_ASKING))
def test_every_schedule_has_the_same_bits(schedule: str) -> None:
    for dtype in RANGES:
        integers, scales = weight(dtype, 296, 96, 32)
        b = packed(integers, scales)
        for target in TARGETS[:1]:
            kernel = Kernel(compile_kernel(in_shorts(296, 96, b.shape), None, target, schedule=schedule))
            for m in (1, 3, 61):
                a = np.random.default_rng(0).standard_normal((m, 96)).astype(np.float32)
                out = np.full((m, 296), np.nan, np.float32)
                kernel.run([a, b, out], (m,))
                np.testing.assert_array_equal(out, short_products(a, integers, scales))


def test_the_reference_evaluates_shorts() -> None:
    integers, scales = weight(BYTE, 40, 64, 32)
    a = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    out = np.zeros((5, 40), np.float32)
    evaluate(in_shorts(40, 64, packed(integers, scales).shape), (5,), [a, packed(integers, scales), out])
    np.testing.assert_allclose(out, short_products(a, integers, scales), rtol=1e-5, atol=1e-3)
