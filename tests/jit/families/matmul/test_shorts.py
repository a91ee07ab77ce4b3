"""Products of f32 in i16 by small integers: rows of any numbers; `test_lhs` has the usual ones."""

from __future__ import annotations

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.sums import short_products

from .test_grouped import RANGES, weight
from .test_lhs import SHORTS, TARGETS


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
    b = SHORTS.packed(integers.astype(np.int8), scales)
    spec = SHORTS.spec(n, k, b.shape)
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
    spec, b = SHORTS.spec(n, k, SHORTS.packed(integers, scales).shape), SHORTS.packed(integers, scales)
    for target in TARGETS:
        generic = Kernel(compile_kernel(spec, None, target))
        for rows in (slice(0, 11), slice(6, 9), slice(7, 8)):
            part = np.ascontiguousarray(a[rows])
            for kernel in (generic, Kernel(compile_kernel(spec, (len(part),), target))):
                out = np.zeros((len(part), n), np.float32)
                kernel.run([part, b, out], (len(part),))
                np.testing.assert_array_equal(out, wanted[rows])
