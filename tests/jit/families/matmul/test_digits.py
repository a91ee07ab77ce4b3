"""Products of f32 in digits by small integers: rows of any numbers, and where digits pay; `test_lhs` has the
usual ones."""

from __future__ import annotations

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.digits import fit, is_slower, pays
from shapevm.jit.families.matmul.grouped import NIBBLE
from shapevm.jit.families.matmul.sums import digit_products

from .test_grouped import RANGES, weight
from .test_lhs import DIGITS, TARGETS


def test_products_are_as_exact_as_those_of_f32() -> None:
    integers, scales = weight(NIBBLE, 64, 2176, 32)
    a = np.random.default_rng(1).standard_normal((9, 2176)).astype(np.float32)
    wide = integers.astype(np.float64) * np.repeat(scales.astype(np.float64), 32, axis=0)
    error = np.abs(digit_products(a, integers, scales) - a.astype(np.float64) @ wide)
    in_f32 = np.abs(a @ wide.astype(np.float32) - a.astype(np.float64) @ wide)
    assert np.sqrt((error**2).mean()) < 1.5 * np.sqrt((in_f32**2).mean())


@pytest.mark.parametrize("dtype", RANGES)
def test_rows_of_any_size_of_numbers(dtype: str) -> None:
    """Zeros, subnormal numbers, the greatest ones, integers, infinities and NaN."""
    n, k = 72, 64
    integers, scales = weight(dtype, n, k, 32)
    integers[5, :9] = 0  # which an infinity makes NaN
    a = np.random.default_rng(2).standard_normal((12, k)).astype(np.float32)
    a[1], a[2], a[3] = 0, -0.0, np.rint(a[3] * 10)
    a[4] *= np.float32(1e-44)
    a[5] = np.clip(a[5], -1, 1) * np.finfo(np.float32).max
    a[6, 5], a[7, 3], a[8, (1, 2, 5)] = np.inf, np.nan, (np.inf, -np.inf, np.inf)
    a[9] *= np.float32(1e-36)
    a[10, 0] = np.nextafter(np.float32(2), np.float32(0))
    wanted = digit_products(a, integers, scales)
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ (integers.astype(np.float64) * np.repeat(scales, 32, axis=0))
    assert np.array_equal(np.isnan(wanted), np.isnan(exact)) and np.isinf(wanted[6]).any()
    usual = [0, 1, 2, 3, 9, 10, 11]
    np.testing.assert_allclose(wanted[usual], exact[usual], rtol=1e-4, atol=1e-5 * np.abs(exact[usual]).max())
    spec, b = DIGITS.spec(n, k, DIGITS.packed(integers, scales).shape), DIGITS.packed(integers, scales)
    for target in TARGETS:
        generic = Kernel(compile_kernel(spec, None, target))
        for rows in (slice(0, 12), slice(6, 9), slice(7, 8)):
            part = np.ascontiguousarray(a[rows])
            for kernel in (generic, Kernel(compile_kernel(spec, (len(part),), target))):
                out = np.zeros((len(part), n), np.float32)
                kernel.run([part, b, out], (len(part),))
                np.testing.assert_array_equal(out, wanted[rows])


@pytest.mark.parametrize("dtype", RANGES)
def test_one_great_number_takes_no_bits_of_the_others(dtype: str) -> None:
    """A number whose weight is 0 is as harmless as in f32; a row of one number and zeros has digits."""
    n, k = 40, 128
    integers, scales = weight(dtype, n, k, 32)
    integers[7] = 0
    a = np.random.default_rng(4).standard_normal((6, k)).astype(np.float32)
    a[:3, 7] = 1e4, 1e9, -1e30
    a[3, 8:], a[4] = 0, 0
    a[4, 7] = 1e30
    a[5] = np.exp(a[5] * 2)
    found = digit_products(a, integers, scales)
    exact = a.astype(np.float64) @ (integers.astype(np.float64) * np.repeat(scales, 32, axis=0))
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5 * np.abs(exact[:3]).max())
    b = DIGITS.packed(integers, scales)
    spec = DIGITS.spec(n, k, b.shape)
    for target in TARGETS:
        for kernel in (Kernel(compile_kernel(spec, dims, target)) for dims in (None, (len(a),))):
            out = np.zeros((len(a), n), np.float32)
            kernel.run([a, b, out], (len(a),))
            np.testing.assert_array_equal(out, found)


VNNI = ["x86-64-v4-vnni"]


@pytest.mark.parametrize(
    ("k", "n", "group", "targets", "wanted"),
    [
        (256, 128, 32, VNNI, True),
        (256, 128, 32, ["x86-64-v4-bf16", "x86-64-v3-vnni"], True),
        (256, 128, 32, ["aarch64-dotprod"], True),
        (256, 128, 32, [], False),
        (256, 128, 32, ["x86-64-v4-vnni", "x86-64-v3"], False),
        (256, 128, 32, ["x86-64-v4-amx"], False),
        (256, 128, 16, VNNI, False),
        (256, 64, 128, VNNI, True),
        (256, 48, 128, VNNI, False),
        (256, 65, 128, VNNI, False),
        (256, 96, 128, VNNI, True),
        (64, 128, 64, VNNI, True),
        (64, 128, 32, VNNI, False),
        (32, 4096, 32, VNNI, False),
        (0, 128, 0, VNNI, False),
        (256, 0, 32, VNNI, False),
    ],
)
def test_digits_pay_where_bytes_are_multiplied_faster_than_floats(
    k: int, n: int, group: int, targets: list[str], wanted: bool
) -> None:
    assert pays(k, n, group, targets) == wanted


@pytest.mark.parametrize(
    ("k", "n", "rows", "targets", "wanted"),
    [
        (256, 128, 1, VNNI, False),
        (256, 48, 1, VNNI, True),
        (256, 48, 1, ["x86-64-v4"], False),
        (256, 48, 1, ["x86-64-v4-amx"], False),
        (1 << 15, 8, 8, VNNI, False),
        (1 << 15, 8, 9, VNNI, True),
    ],
)
def test_small_weights_are_slower_than_in_f32_where_digits_do_not_pay(
    k: int, n: int, rows: int, targets: list[str], wanted: bool
) -> None:
    assert is_slower(k, n, 128, rows, targets) == wanted


def test_scales_that_may_overflow_and_short_groups_are_multiplied_otherwise() -> None:
    assert fit(32, np.array([[0.0, 1e-9, -3.0]], np.float32))
    assert not fit(16, np.array([[0.0, 1e-9, -3.0]], np.float32))
    for scale in (1e20, 1e-20):
        assert not fit(32, np.array([[1.0, scale]], np.float32))
