"""Weights in groups with scales: the sums of the definition on every target, tier and tile split."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel, kernel_text
from shapevm.jit.decode import SpecError
from shapevm.jit.execute import Kernel
from shapevm.jit.families.family import Variant
from shapevm.jit.families.matmul.family import check
from shapevm.jit.families.matmul.grouped import (
    BYTE,
    FOUR,
    NIBBLE,
    SIZES,
    Groups,
    GroupSums,
    dtype_for,
    groups_of,
    pack_grouped,
    unpacked,
)
from shapevm.jit.families.matmul.layouts import GROUPED
from shapevm.jit.families.matmul.schedules import SCHEDULES, WITHOUT_ASKING
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.jit.families.matmul.sums import grouped_products
from shapevm.jit.families.matmul.variants import TILES
from shapevm.jit.llvm.function import Function
from shapevm.jit.llvm.target import bases, runs_here
from shapevm.jit.reference import evaluate

M = s.Dim(0)
ROW, COLUMN, STEP = (s.Index(loop=i) for i in range(3))
TARGETS = [name for name in (*bases("x86-64-v4"), "x86-64-v3") if runs_here(name)]
AMX = "x86-64-v4-amx"
needs_amx = pytest.mark.skipif(not runs_here(AMX), reason="this CPU has no AMX tiles")
RANGES = {NIBBLE: (-8, 8), BYTE: (-128, 128)}


def product(n: int, k: int, shape: tuple[int, ...], is_computed: bool = False) -> Matmul:
    """out[m, n] = a[m, k] @ b, or `is_computed`: (a + 1) @ b."""
    buffers = s.Buffer("f32", (M, k)), s.Buffer("u8", shape), s.Buffer("f32", (M, n), is_output=True)
    body = s.Instr("acc", "f32"), s.Instr("store", "f32", (0,), buffer=2, index=(ROW, COLUMN))
    operand = {"a": 0, "a_index": (ROW, STEP)}
    if is_computed:
        one = s.Instr("const", "f32", value=1.0)
        prologue = s.Instr("load", "f32", buffer=0, index=(ROW, STEP)), one, s.Instr("add", "f32", (0, 1))
        operand = {"a": -1, "a_index": (), "prologue": prologue}
    return Matmul(
        1, buffers, MatrixProduct((), M, n, k, b=1, b_index=(), b_layout=GROUPED, epilogue=body, **operand)
    )


def of_bytes(n: int, k: int, shape: tuple[int, ...]) -> Matmul:
    """The same with a in u8."""
    plain = product(n, k, shape)
    buffers = (s.Buffer("u8", (M, k)), *plain.buffers[1:])
    return replace(plain, buffers=buffers).with_product(b_layout="grouped_quads")


def weight(dtype: str, n: int, k: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random integers and scales, which reach all values."""
    rng = np.random.default_rng(n + k)
    integers = rng.integers(*RANGES[dtype], (k, n)).astype(np.int8)
    integers[0, 0] = RANGES[dtype][0]
    return integers, rng.standard_normal((k // steps, n)).astype(np.float32)


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(("n", "k", "steps"), [(40, 64, 32), (1, 128, 128), (200, 320, 64), (0, 32, 32)])
def test_packing_keeps_integers_and_scales(dtype: str, n: int, k: int, steps: int) -> None:
    integers, scales = (x[:, :n] for x in weight(dtype, max(n, 1), k, steps))
    packed = pack_grouped(integers, scales)
    groups = groups_of(k, *packed.shape[1:])
    assert groups is not None and groups.steps == steps and (n == 0 or groups.dtype == dtype)
    for found, wanted in zip(unpacked(packed, k, n), (integers, scales), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_bytes_are_widened_where_none_are_multiplied_together() -> None:
    found = {(dtype, n): Groups(dtype, 32, 1, n).is_widened for dtype in (BYTE, NIBBLE) for n in (1, FOUR)}
    assert found == {(BYTE, 1): True, (BYTE, FOUR): False, (NIBBLE, 1): True, (NIBBLE, FOUR): True}


def test_each_line_of_integers_of_four_bits_is_asked_for_once() -> None:
    f, panels = Function("kernel", [("ptr", "a"), ("ptr", "b"), ("ptr", "c")]), 6
    a, b, c = f.params[:3]
    sums = GroupSums(f, Groups(NIBBLE, 32, 2), panels, 32 * panels)
    sums.kernels("few", 64, 2 * panels).call(1, a, b, c, b, near=True)
    (part,) = f.parts.values()
    assert part.text().count("call void @llvm.prefetch") == panels  # in a trip of four steps of 16 bytes


def test_many_rows_read_copies_of_several_groups_at_a_time() -> None:
    copied = {steps: Groups(NIBBLE, steps, 12).copied for steps in SIZES}
    assert copied == {16: 8, 32: 4, 64: 2, 128: 1}
    assert [Groups(BYTE, 32, 12, FOUR).copied, Groups(BYTE, 32, 3).copied] == [12, 3]


@pytest.mark.parametrize(("k", "asks"), [(768, True), (2048, False)])
def test_lines_of_the_next_short_panels_are_asked_for_once(k: int, asks: bool) -> None:
    panels = 4
    packed = pack_grouped(*weight(NIBBLE, 32 * panels, k, 32))
    text, _ = kernel_text(product(32 * panels, k, packed.shape), (1,), "x86-64-v4", WITHOUT_ASKING)
    (few,) = (part for part in text.split("\n}\n") if re.search(r"define \w+ @grouped_few", part))
    n_trips, n_lines = 32 // 4, packed.nbytes // (k // 32) // 64  # of a group
    assert few.count("call void @llvm.prefetch") * n_trips == (n_lines if asks else 0)


def test_integers_are_held_in_as_few_bits_as_they_need() -> None:
    assert dtype_for(np.array([-8, 7], np.int8)) == NIBBLE
    assert dtype_for(np.array([8], np.int8)) == dtype_for(np.array([-9], np.int8)) == BYTE


def test_scales_that_would_lose_bits_keep_them_beside_bytes() -> None:
    integers, scales = weight(NIBBLE, 40, 64, 32)
    for size, dtype in ((1e-25, NIBBLE), (1e-32, BYTE), (1e35, NIBBLE)):
        packed = pack_grouped(integers, scales * np.float32(size))
        groups = groups_of(64, *packed.shape[1:])
        assert groups is not None and groups.dtype == dtype
        np.testing.assert_array_equal(unpacked(packed, 64, 40)[1], scales * np.float32(size))


@pytest.mark.parametrize("size", [1e-38, 1e-30, 1e28])
def test_rows_of_small_and_of_great_numbers(size: float) -> None:
    integers, scales = weight(NIBBLE, 40, 64, 32)
    packed = pack_grouped(integers, scales)
    a = np.random.default_rng(5).standard_normal((9, 64)).astype(np.float32) * np.float32(size)
    for target in TARGETS:
        for rows in (1, 9):
            out = np.zeros((rows, 40), np.float32)
            kernel = Kernel(compile_kernel(product(40, 64, packed.shape), None, target))
            kernel.run([a[:rows], packed, out], (rows,))
            np.testing.assert_array_equal(out, grouped_products(a[:rows], integers, scales))


@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(
    ("n", "k", "steps"),
    [(40, 64, 32), (200, 128, 64), (33, 32, 32), (40, 48, 16), (224, 2176, 32), (64, 256, 128)],
)
def test_sums_are_those_of_the_definition(n: int, k: int, steps: int, dtype: str, is_computed: bool) -> None:
    integers, scales = weight(dtype, n, k, steps)
    packed = pack_grouped(integers, scales)
    spec = product(n, k, packed.shape, is_computed)
    check(spec)
    rng = np.random.default_rng(3)
    for target in TARGETS:
        generic = Kernel(compile_kernel(spec, None, target))
        for m in (0, 1, 5, 7, 8, 40, 300):
            a = rng.standard_normal((m, k)).astype(np.float32)
            wanted = grouped_products(a + np.float32(is_computed), integers, scales)
            for kernel in (generic, Kernel(compile_kernel(spec, (m,), target))):
                tiles = kernel.n_tiles((m,))
                for ranges in (None, [(t, t + 1) for t in range(tiles)]):
                    out = np.full((m, n), np.nan, np.float32)
                    kernel.run([a, packed, out], (m,), ranges)
                    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(
    ("n", "k", "steps"),
    [(40, 64, 32), (200, 128, 64), (33, 32, 32), (40, 48, 16), (224, 2176, 32), (64, 256, 128)],
)
def test_sums_of_bytes_are_exact_in_every_group(n: int, k: int, steps: int, dtype: str) -> None:
    integers, scales = weight(dtype, n, k, steps)
    packed = pack_grouped(integers, scales, together=4)
    for found, wanted in zip(unpacked(packed, k, n, together=4), (integers, scales), strict=True):
        np.testing.assert_array_equal(found, wanted)
    spec = of_bytes(n, k, packed.shape)
    check(spec)
    rng = np.random.default_rng(3)
    for target in TARGETS:
        generic = Kernel(compile_kernel(spec, None, target))
        for m in (0, 1, 5, 7, 8, 40, 300):
            a = rng.integers(0, 256, (m, k)).astype(np.uint8)
            wanted = grouped_products(a.astype(np.float32), integers, scales)
            for kernel in (generic, Kernel(compile_kernel(spec, (m,), target))):
                out = np.full((m, n), np.nan, np.float32)
                kernel.run([a, packed, out], (m,))
                np.testing.assert_array_equal(out, wanted)


@needs_amx
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(
    ("n", "k", "steps"),
    [(40, 64, 32), (33, 32, 32), (40, 96, 32), (224, 2208, 32), (64, 192, 64), (64, 256, 128)],
)
def test_bytes_on_tiles_have_the_same_bits(n: int, k: int, steps: int, dtype: str) -> None:
    integers, scales = weight(dtype, n, k, steps)
    packed = pack_grouped(integers, scales, together=4)
    spec = of_bytes(n, k, packed.shape)
    rng = np.random.default_rng(3)
    for m in (16, 17, 33, 100, 300):
        a = rng.integers(0, 256, (m, k)).astype(np.uint8)
        results = []
        for target, dims in ((AMX, None), (AMX, (m,)), (TARGETS[0], None)):
            out = np.full((m, n), np.nan, np.float32)
            Kernel(compile_kernel(spec, dims, target)).run([a, packed, out], (m,))
            results.append(out)
        assert all(np.array_equal(results[0], result) for result in results)


@needs_amx
@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(
    ("n", "k", "steps"), [(40, 64, 32), (33, 96, 32), (224, 2176, 32), (64, 192, 64), (64, 256, 128)]
)
def test_floats_on_tiles_are_as_exact_as_by_fmas(
    n: int, k: int, steps: int, dtype: str, is_computed: bool
) -> None:
    integers, scales = weight(dtype, n, k, steps)
    packed = pack_grouped(integers, scales)
    spec = replace(product(n, k, packed.shape, is_computed), bf16x6=True)
    generic, rng = Kernel(compile_kernel(spec, None, AMX)), np.random.default_rng(3)
    wide = integers.astype(np.float64) * np.repeat(scales.astype(np.float64), steps, axis=0)
    for m in (96, 100, 300):
        a = rng.standard_normal((m, k)).astype(np.float32)
        exact = (a + np.float32(is_computed)).astype(np.float64) @ wide
        size = np.abs(a + np.float32(is_computed)).astype(np.float64) @ np.abs(wide)
        errors = []
        for kernel in (
            generic,
            Kernel(compile_kernel(spec, (m,), AMX)),
            Kernel(compile_kernel(spec, None, TARGETS[0])),
        ):
            out = np.full((m, n), np.nan, np.float32)
            tiles = kernel.n_tiles((m,))
            kernel.run([a, packed, out], (m,), [(t, t + 1) for t in reversed(range(tiles))])
            whole = np.full((m, n), np.nan, np.float32)
            kernel.run([a, packed, whole], (m,))
            np.testing.assert_array_equal(out, whole)
            errors.append((np.abs(out - exact) / size).max())
        assert errors[0] == errors[1] and errors[0] < max(1.2 * errors[2], 1e-7)


@needs_amx
def test_rows_that_are_tiny_or_not_finite_are_those_of_the_definition() -> None:
    integers, scales = weight(NIBBLE, 40, 2176, 32)
    packed = pack_grouped(integers, scales)
    a = np.random.default_rng(3).standard_normal((100, 2176)).astype(np.float32)
    a[3] *= np.float32(1e-36)
    a[7, 5], a[20] = np.inf, 0
    out = np.full((100, 40), np.nan, np.float32)
    spec = replace(product(40, 2176, packed.shape), bf16x6=True)
    Kernel(compile_kernel(spec, None, AMX)).run([a, packed, out], (100,))
    rows = [3, 7, 20]
    with np.errstate(invalid="ignore"):
        wanted = grouped_products(a[rows], integers, scales)
    np.testing.assert_array_equal(out[rows], wanted)
    assert np.isfinite(np.delete(out, 7, 0)).all()


@pytest.mark.parametrize("schedule", (*SCHEDULES, WITHOUT_ASKING))
def test_every_schedule_has_the_same_bits(schedule: str) -> None:
    integers, scales = weight(NIBBLE, 104, 96, 32)
    packed = pack_grouped(integers, scales)
    spec = product(104, 96, packed.shape)
    a = np.random.default_rng(0).standard_normal((61, 96)).astype(np.float32)
    for target in TARGETS:
        out = np.full((61, 104), np.nan, np.float32)
        Kernel(compile_kernel(spec, None, target, schedule=schedule)).run([a, packed, out], (61,))
        np.testing.assert_array_equal(out, grouped_products(a, integers, scales))


def test_the_reference_evaluates_groups() -> None:
    integers, scales = weight(NIBBLE, 40, 64, 32)
    packed = pack_grouped(integers, scales)
    a = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    out = np.zeros((5, 40), np.float32)
    evaluate(product(40, 64, packed.shape), (5,), [a, packed, out])
    np.testing.assert_allclose(out, grouped_products(a, integers, scales), rtol=1e-5, atol=1e-4)


def test_few_rows_and_tiles_have_variants_of_their_own() -> None:
    packed = pack_grouped(*weight(NIBBLE, 200, 64, 32))
    code = compile_kernel(product(200, 64, packed.shape), None, TARGETS[0])
    assert {"gemv", "grouped"} <= set(code.variants) and isinstance(TILES[0], Variant)
    assert "widened" not in code.variants


@pytest.mark.parametrize(
    ("n", "shape"),
    [(40, (2, 2, 639)), (40, (1, 2, 640)), (40, (2, 0, 640)), (40, (2, 3, 640)), (40, (1280,))],
)
def test_a_weight_of_another_shape_is_refused(n: int, shape: tuple[int, ...]) -> None:
    check(product(40, 64, (2, 2, 640)))
    with pytest.raises(SpecError, match=r"b .*it must be u8\[ceil\(n / 32\), groups, bytes of a group\]"):
        check(product(n, 64, shape))
