"""AMX matmuls: as exact as f32 FMAs, equal bits from every tier and split, PyTorch's infinities and NaNs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel, kernel_text, target_for
from shapevm.jit.evaluation import bf16_to_f32, f32_to_bf16
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul import amx
from shapevm.jit.families.matmul.layouts import pack_panels
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.jit.llvm.target import bases, runs_here

AMX, FMA = "x86-64-v4-amx", "x86-64-v4"
needs_amx = pytest.mark.skipif(
    not runs_here(AMX), reason="this CPU has no AMX tiles, or Linux does not grant them"
)
M = s.Dim(0)
LOOPS = tuple(s.Index(loop=i) for i in range(3))


def product(k: int, n: int, bias: bool = False) -> Matmul:
    """out[m, n] = a[m, k] @ b (+ bias[n], then the absolute value)."""
    shape = pack_panels(np.zeros((k, n), np.float32)).shape
    buffers = [s.Buffer("f32", (M, k)), s.Buffer("f32", shape), s.Buffer("f32", (M, n), is_output=True)]
    body = [s.Instr("acc", "f32")]
    if bias:
        buffers.append(s.Buffer("f32", (n,)))
        body.append(s.Instr("load", "f32", buffer=3, index=(LOOPS[1],)))
        body += [s.Instr("add", "f32", (0, 1)), s.Instr("abs", "f32", (2,))]
    body.append(s.Instr("store", "f32", (len(body) - 1,), buffer=2, index=LOOPS[:2]))
    index = (LOOPS[0], LOOPS[2])
    product = MatrixProduct((), M, n, k, 0, index, 1, (), "panels", tuple(body))
    return Matmul(1, tuple(buffers), product, bf16x6=True)


def run(spec, a, b, dims=None, target=AMX, ranges=None, rest=()):
    """Return a @ b by the kernel compiled for `dims` (None: generic)."""
    out = np.full((len(a), spec.product.n), np.nan, np.float32)
    kernel = Kernel(compile_kernel(spec, dims, target))
    kernel.run(
        [a, pack_panels(b), out, *rest], (len(a),), ranges(kernel.n_tiles((len(a),))) if ranges else None
    )
    return out


def matrices(m, k, n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)


def errors(found, a, b):
    """Return the errors relative to |a| @ |b|."""
    wide, tall = a.astype(np.float64), b.astype(np.float64)
    return np.abs(found - wide @ tall) / (np.abs(wide) @ np.abs(tall))


@needs_amx
@pytest.mark.parametrize("k", [64, 384, 1536, 4096])
def test_as_exact_as_fmas(k):
    a, b = matrices(128, k, 96)
    spec = product(k, 96)
    tiles, fmas = (errors(run(spec, a, b, target=target), a, b) for target in (AMX, FMA))
    assert tiles.max() < 1.2 * fmas.max() and np.sqrt((tiles**2).mean()) < np.sqrt((fmas**2).mean())


@needs_amx
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 70, 33), (95, 64, 32), (96, 64, 32), (97, 65, 31), (128, 384, 384), (130, 127, 1), (257, 100, 71),
     (300, 1000, 40), (512, 63, 64), (100, 0, 5), (200, 1, 5)],
)  # fmt: skip
def test_sizes_and_tiers(m, k, n):
    a, b = matrices(m, k, n)
    spec = product(k, n)
    generic = run(spec, a, b)
    assert np.array_equal(generic, run(spec, a, b, (m,)))
    np.testing.assert_allclose(generic, a.astype(np.float64) @ b, rtol=0, atol=1e-4)
    uses_tiles = m >= amx.MIN_ROWS and k >= amx.MIN_K
    assert uses_tiles or np.array_equal(generic, run(spec, a, b, target=FMA))


@needs_amx
@pytest.mark.parametrize("dims", [None, (300,)])
def test_every_split_of_the_tiles_gives_the_same_bits(dims):
    a, b = matrices(300, 200, 150)
    spec = product(200, 150)
    whole = run(spec, a, b, dims)
    one_by_one = run(spec, a, b, dims, ranges=lambda n: [(i, i + 1) for i in reversed(range(n))])
    uneven = run(spec, a, b, dims, ranges=lambda n: [(n // 3, n), (0, n // 3)])
    assert np.array_equal(whole, one_by_one) and np.array_equal(whole, uneven)


LONG_ROWS = [(100, 3072, 70), (200, 3000, 33), (257, 1500, 64)]  # a block has fewer rows than could be


@needs_amx
@pytest.mark.parametrize(("m", "k", "n"), LONG_ROWS)
def test_blocks_of_long_rows_go_slab_by_slab(m, k, n):
    """Whole blocks at the beginning of a run, with the bits of all other runs."""
    a, b = matrices(m, k, n)
    a[m // 2, 7] = np.inf
    spec = product(k, n)
    assert "amx-slabs" in compile_kernel(spec, (m,), AMX).variants
    assert "amx-slabs" not in compile_kernel(product(384, n), (m,), AMX).variants
    generic, n_panels = run(spec, a, b), -(-n // 32)
    for ranges in (
        None,
        lambda n: [(i, i + 1) for i in range(n)],
        lambda n: [(2 * n_panels + 1, n), (0, 2 * n_panels + 1)] if n > 2 * n_panels else [(1, n), (0, 1)],
        lambda n: [(0, n_panels), (n_panels, n)],
    ):
        assert np.array_equal(generic, run(spec, a, b, (m,), ranges=ranges), equal_nan=True)
    finite = np.arange(m) != m // 2
    np.testing.assert_allclose(generic[finite], (a.astype(np.float64) @ b)[finite], rtol=0, atol=2e-4)


@needs_amx
@pytest.mark.parametrize("where", ["a", "b"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_where_it_belongs(where, value):
    a, b = matrices(200, 100, 70)
    b[3, 5], a[7, 3] = 1.0, 2.0
    (a if where == "a" else b)[(7, 3) if where == "a" else (3, 5)] = value
    found = run(product(100, 70), a, b)
    with np.errstate(invalid="ignore"):
        wanted = a @ b
    assert np.array_equal(np.isnan(found), np.isnan(wanted)) and np.array_equal(
        np.isinf(found), np.isinf(wanted)
    )
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(found[finite], wanted[finite], atol=1e-4)
    assert np.array_equal(found[~finite], wanted[~finite], equal_nan=True)


@needs_amx
@pytest.mark.parametrize("row", [0, 100, 200, 299])
def test_an_infinite_row_changes_no_other_row_in_any_tier(row):
    spec, rng = product(200, 71), np.random.default_rng(2)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((300, 200), (200, 71)))
    others, finite = np.arange(300) != row, run(spec, a, b)
    a[row, 7] = np.inf
    generic = run(spec, a, b)
    assert np.array_equal(generic, run(spec, a, b, (300,)), equal_nan=True)
    assert np.array_equal(generic[others], finite[others])


@needs_amx
@pytest.mark.parametrize("k", [100, 1000])
def test_tiny_values_keep_their_digits(k):
    """Tiles count denormals, and what is left of numbers near them, as 0."""
    for scale in (1e-30, 1e-33, 1e-36, 1e-38):
        a, b = matrices(128, k, 70)
        a *= np.float32(scale)
        a[5] = 0
        found = run(product(k, 70), a, b)
        exact = a.astype(np.float64) @ b
        assert np.abs(found - exact).max() < 1e-6 * np.abs(exact).max() and not found[5].any()
        assert np.array_equal(found, run(product(k, 70), a, b, (128,)))


@needs_amx
def test_huge_values_do_not_overflow_on_the_way():
    a, b = matrices(128, 64, 32)
    a, b = (a * np.float32(1e30)).astype(np.float32), (b * np.float32(1e7)).astype(np.float32)
    top = np.float32(3.4028235e38)
    a[0, :], b[:, 0] = 0, 0
    a[0, 0], b[0, 0] = top, 1
    found = run(product(64, 32), a, b)
    assert found[0, 0] == top
    assert np.isfinite(found[1:, 1:]).all() and errors(found[1:, 1:], a[1:], b[:, 1:]).max() < 1e-6


@needs_amx
def test_integers_are_exact():
    rng = np.random.default_rng(1)
    a = rng.integers(-1000, 1000, (128, 256)).astype(np.float32)
    b = rng.integers(-7, 8, (256, 64)).astype(np.float32)
    assert np.array_equal(
        run(product(256, 64), a, b), (a.astype(np.int64) @ b.astype(np.int64)).astype(np.float32)
    )


@needs_amx
def test_the_epilogue_follows():
    a, b = matrices(150, 96, 45)
    bias = np.linspace(-3, 3, 45, dtype=np.float32)
    found = run(product(96, 45, bias=True), a, b, rest=(bias,))
    np.testing.assert_allclose(found, np.abs(a @ b + bias), atol=1e-4)


def test_only_matmuls_of_panels_are_compiled_for_tiles():
    buffers = (
        s.Buffer("f32", (M, 64)),
        s.Buffer("f32", (64, 32)),
        s.Buffer("f32", (M, 32), is_output=True),
    )
    body = s.Instr("acc", "f32"), s.Instr("store", "f32", (0,), buffer=2, index=LOOPS[:2])
    a_index, b_index = (LOOPS[0], LOOPS[2]), (LOOPS[2], LOOPS[1])
    rows = Matmul(1, buffers, MatrixProduct((), M, 32, 64, 0, a_index, 1, b_index, "rows", body))
    assert target_for(product(64, 32), AMX) == AMX and target_for(rows, AMX) == bases(AMX)[-1] == FMA
    assert target_for(product(64, 32), FMA) == FMA
    assert len(compile_kernel(product(64, 32), None, AMX).code.data) > 0  # on any machine


NARROW = {
    "bf16": lambda b: (f32_to_bf16(b), bf16_to_f32(f32_to_bf16(b))),
    "f16": lambda b: (b.astype(np.float16), b.astype(np.float16).astype(np.float32)),
    "i8": lambda b: (np.clip(np.rint(b * 40), -128, 127).astype(np.int8),) * 2,
}


@needs_amx
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(15, 64, 32), (95, 64, 32), (97, 65, 31), (112, 384, 70), (96, 1000, 40), (130, 127, 1), (300, 71, 64),
     (100, 3072, 40)],
)  # fmt: skip
def test_narrow_weights_on_tiles(dtype, m, k, n):
    a, b = matrices(m, k, n)
    narrow, wide = NARROW[dtype](b)
    plain = product(k, n)
    buffers = (plain.buffers[0], s.Buffer(dtype, plain.buffers[1].shape), *plain.buffers[2:])
    spec = replace(plain, buffers=buffers)
    generic = run(spec, a, narrow)
    one_by_one = run(spec, a, narrow, (m,), ranges=lambda tiles: [(i, i + 1) for i in reversed(range(tiles))])
    assert np.array_equal(generic, one_by_one)
    found, by_fmas = (errors(x, a, wide) for x in (generic, run(spec, a, narrow, target=FMA)))
    assert found.max() < max(1.2 * by_fmas.max(), 1e-7)
    assert np.array_equal(generic, run(spec, a, narrow, target=FMA)) or not amx.ENOUGH.few(m, k)


@needs_amx
@pytest.mark.parametrize("dtype", NARROW)
def test_rows_beside_narrow_weights_that_are_tiny_or_not_finite(dtype):
    a, b = matrices(100, 500, 33)
    a[3] *= np.float32(1e-36)
    a[7, 5], a[20] = np.inf, 0
    narrow, wide = NARROW[dtype](b)
    plain = product(500, 33)
    buffers = (plain.buffers[0], s.Buffer(dtype, plain.buffers[1].shape), *plain.buffers[2:])
    spec = replace(plain, buffers=buffers)
    with np.errstate(invalid="ignore"):
        found, wanted = run(spec, a, narrow), run(spec, a, narrow, target=FMA)
    for row in (3, 7, 20):
        assert np.array_equal(found[row], wanted[row], equal_nan=True)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_rows_of_f32_take_no_tiles_unless_the_spec_says_so(dtype):
    """Without that, code for AMX is the base's: any number of rows has the same bits."""
    a, b, *rest = product(384, 96).buffers
    plain = replace(product(384, 96), buffers=(a, replace(b, dtype=dtype), *rest), bf16x6=False)
    assert target_for(plain, AMX) == FMA
    for dims in (None, (300,)):
        text, _ = kernel_text(plain, dims, AMX)
        assert "llvm.x86.t" not in text
        assert "llvm.x86.tdpbf16ps" in kernel_text(product(384, 96), dims, AMX)[0]
