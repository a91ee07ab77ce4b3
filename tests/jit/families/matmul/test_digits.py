"""Products of f32 in digits by small integers: the sums of the definition on every target and tier."""

from __future__ import annotations

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.digits import fit, is_slower, pays
from shapevm.jit.families.matmul.family import check
from shapevm.jit.families.matmul.grouped import BYTE, NIBBLE, unpacked
from shapevm.jit.families.matmul.layouts import DIGITS_LAYOUT, LAYOUTS
from shapevm.jit.families.matmul.schedules import SCHEDULES, WITHOUT_ASKING
from shapevm.jit.families.matmul.spec import Matmul
from shapevm.jit.families.matmul.sums import digit_products
from shapevm.jit.llvm.target import bases, runs_here
from shapevm.jit.reference import evaluate

from .test_grouped import RANGES, product, weight

NAMES = ("x86-64-v4-vnni", "x86-64-v4", "x86-64-v3-vnni", "x86-64-v3", *bases("aarch64-i8mm"))
TARGETS = [name for name in NAMES if runs_here(name)]
SHAPES = [(33, 64, 32), (200, 128, 64), (40, 48, 16), (224, 2176, 32)]


def in_digits(n: int, k: int, shape: tuple[int, ...], is_computed: bool = False) -> Matmul:
    """out[m, n] = a[m, k] @ b by a's digits, or `is_computed`: (a + 1) @ b."""
    return product(n, k, shape, is_computed).with_product(b_layout=DIGITS_LAYOUT)


def packed(integers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return them as kernels read them."""
    return LAYOUTS[DIGITS_LAYOUT].pack(integers, scales)


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(("n", "k", "steps"), SHAPES)
def test_packing_keeps_integers_and_scales(dtype: str, n: int, k: int, steps: int) -> None:
    given = weight(dtype, n, k, steps)
    found = unpacked(packed(*given), k, n, LAYOUTS[DIGITS_LAYOUT].beside, LAYOUTS[DIGITS_LAYOUT].planes)
    for x, wanted in zip(found, given, strict=True):
        np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(("n", "k", "steps"), SHAPES)
def test_sums_are_those_of_the_definition(n: int, k: int, steps: int, dtype: str, is_computed: bool) -> None:
    integers, scales = weight(dtype, n, k, steps)
    b = packed(integers, scales)
    spec = in_digits(n, k, b.shape, is_computed)
    check(spec)
    rng = np.random.default_rng(3)
    for target in TARGETS:
        generic = Kernel(compile_kernel(spec, None, target))
        for m in (0, 1, 5, 8, 300):
            a = rng.standard_normal((m, k)).astype(np.float32)
            wanted = digit_products(a + np.float32(is_computed), integers, scales)
            for kernel in (generic, Kernel(compile_kernel(spec, (m,), target))):
                out = np.full((m, n), np.nan, np.float32)
                kernel.run([a, b, out], (m,), [(t, t + 1) for t in range(kernel.n_tiles((m,)))])
                np.testing.assert_array_equal(out, wanted)


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
    spec, b = in_digits(n, k, packed(integers, scales).shape), packed(integers, scales)
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
    b = packed(integers, scales)
    spec = in_digits(n, k, b.shape)
    for target in TARGETS:
        for kernel in (Kernel(compile_kernel(spec, dims, target)) for dims in (None, (len(a),))):
            out = np.zeros((len(a), n), np.float32)
            kernel.run([a, b, out], (len(a),))
            np.testing.assert_array_equal(out, found)


@pytest.mark.parametrize("schedule", (*SCHEDULES, WITHOUT_ASKING))
def test_every_schedule_has_the_same_bits(schedule: str) -> None:
    for dtype in RANGES:
        integers, scales = weight(dtype, 296, 96, 32)
        b = packed(integers, scales)
        for target in TARGETS[:1]:
            kernel = Kernel(compile_kernel(in_digits(296, 96, b.shape), None, target, schedule=schedule))
            for m in (1, 3, 61):
                a = np.random.default_rng(0).standard_normal((m, 96)).astype(np.float32)
                out = np.full((m, 296), np.nan, np.float32)
                kernel.run([a, b, out], (m,))
                np.testing.assert_array_equal(out, digit_products(a, integers, scales))


def test_the_reference_evaluates_digits() -> None:
    integers, scales = weight(BYTE, 40, 64, 32)
    a = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    out = np.zeros((5, 40), np.float32)
    evaluate(in_digits(40, 64, packed(integers, scales).shape), (5,), [a, packed(integers, scales), out])
    np.testing.assert_allclose(out, digit_products(a, integers, scales), rtol=1e-5, atol=1e-3)


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
