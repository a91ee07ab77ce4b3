"""Products of bf16: numpy's sums of rounded operands on every target, tier and tile split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel, kernel_text, target_for
from shapevm.jit.evaluation import bf16_to_f32, f32_to_bf16
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.layouts import LAYOUTS
from shapevm.jit.families.matmul.schedules import PANEL, SCHEDULES
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.jit.llvm.target import runs_here
from shapevm.jit.reference import evaluate
from shapevm.jit.text import format_spec, parse_spec
from shapevm.jit.tuning import schedules_of

M = s.Dim(0)
ROW, COLUMN, STEP = (s.Index(loop=i) for i in range(3))
AMX, BF16 = "x86-64-v4-amx", "x86-64-v4-bf16"
TARGETS = [name for name in (AMX, BF16, "x86-64-v4", "x86-64-v3") if runs_here(name)]


def product(n: int, k: int, computed: bool = False) -> Matmul:
    """out[m, n] = a[m, k] @ b in f32; `computed`: of a in f32, which the kernel rounds."""
    buffers = (
        s.Buffer("f32" if computed else "bf16", (M, k)),
        s.Buffer("bf16", (-(-n // PANEL), k // 2, PANEL, 2)),
        s.Buffer("f32", (M, n), is_output=True),
    )
    body = (s.Instr("acc", "f32"), s.Instr("store", "f32", (0,), buffer=2, index=(ROW, COLUMN)))
    index, prologue = (ROW, STEP), ()
    if computed:
        prologue, index = (s.Instr("load", "f32", buffer=0, index=index),), ()
    a = -1 if computed else 0
    return Matmul(1, buffers, MatrixProduct((), M, n, k, a, index, 1, (), "pairs", body, prologue))


def arrays(spec: Matmul, m: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return buffers with random contents, the product of the rounded operands in f64, and the sums of its
    terms' magnitudes."""
    rng = np.random.default_rng(m)
    k, n = int(spec.product.k), int(spec.product.n)
    a = rng.standard_normal((m, k), np.float32)
    b = f32_to_bf16(rng.standard_normal((k, n), np.float32))
    rounded, weight = bf16_to_f32(f32_to_bf16(a)).astype(np.float64), bf16_to_f32(b).astype(np.float64)
    given = a if spec.buffers[0].dtype == "f32" else f32_to_bf16(a)
    out = np.full((m, n), np.nan, np.float32)
    return [given, LAYOUTS["pairs"].pack(b), out], rounded @ weight, np.abs(rounded) @ np.abs(weight)


def check(found: np.ndarray, wanted: np.ndarray, terms: np.ndarray) -> None:
    """Sums in f32 of exact products."""
    np.testing.assert_array_less(np.abs(found - wanted), 4e-7 * terms + 1e-30)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("computed", [False, True], ids=["bf16", "f32"])
@pytest.mark.parametrize(
    "n, k", [(1, 2), (16, 8), (40, 32), (64, 38), (33, 66), (71, 130), (200, 520), (96, 1024), (33, 4100)]
)
def test_sums_are_those_of_rounded_operands(n: int, k: int, computed: bool, target: str) -> None:
    """Generic code, code of a size, and each row alone have the same bits."""
    spec = product(n, k, computed)
    generic = Kernel(compile_kernel(spec, None, target))
    for m in (0, 1, 2, 7, 13, 17, 33, 61):
        buffers, wanted, terms = arrays(spec, m)
        generic.run(buffers, (m,))
        check(buffers[2], wanted, terms)
        if m in (1, 17, 33):
            found = buffers[2].copy()
            buffers[2][...] = np.nan
            Kernel(compile_kernel(spec, (m,), target)).run(buffers, (m,))
            np.testing.assert_array_equal(buffers[2], found)
            alone, row = np.empty_like(found[:1]), buffers[0][m // 2 : m // 2 + 1]
            generic.run([np.ascontiguousarray(row), buffers[1], alone], (1,))
            np.testing.assert_array_equal(alone[0], found[m // 2])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_and_tile_split(schedule: str, target: str) -> None:
    spec, m = product(100, 600), 61
    if schedule not in schedules_of(spec, None, target):
        with pytest.raises(ValueError, match=schedule):
            compile_kernel(spec, None, target, schedule=schedule)
        return
    buffers, wanted, terms = arrays(spec, m)
    found: list[np.ndarray] = []
    for dims in (None, (m,)):
        kernel = Kernel(compile_kernel(spec, dims, target, schedule=schedule))
        n_tiles = kernel.n_tiles((m,))
        for cuts in ([0, n_tiles], list(range(n_tiles + 1))):
            buffers[2][...] = np.nan
            kernel.run(buffers, (m,), list(zip(cuts, cuts[1:], strict=False)))
            check(buffers[2], wanted, terms)
            found.append(buffers[2].copy())
    assert all(np.array_equal(x, found[0]) for x in found)


@pytest.mark.parametrize("target", TARGETS)
def test_infinities_and_nans(target: str) -> None:
    """A row that is not finite leaves others as they are."""
    for k in (12, 40, 100):
        spec = product(40, k, computed=True)
        buffers, wanted, terms = arrays(spec, 5)
        buffers[0][1, k - 1], buffers[0][3, 0] = np.inf, np.nan
        weight = buffers[1].transpose(0, 2, 1, 3).reshape(-1, k)[:40]
        Kernel(compile_kernel(spec, None, target)).run(buffers, (5,))
        check(buffers[2][[0, 2, 4]], wanted[[0, 2, 4]], terms[[0, 2, 4]])
        np.testing.assert_array_equal(buffers[2][1], np.inf * np.sign(bf16_to_f32(weight)[:, k - 1]))
        assert np.isnan(buffers[2][3]).all()


def test_the_definition_agrees() -> None:
    for computed in (False, True):
        spec = product(40, 36, computed)
        assert parse_spec(format_spec(spec)) == spec
        buffers, _, terms = arrays(spec, 9)
        Kernel(compile_kernel(spec, None)).run(buffers, (9,))
        found = [buffer.copy() for buffer in buffers]
        evaluate(spec, (9,), found)
        check(found[2], buffers[2].astype(np.float64), terms)


def instructions(spec: Matmul, dims: Sequence[int] | None, target: str) -> set[str]:
    """Return which instructions for bf16 a kernel's text has."""
    text = kernel_text(spec, None if dims is None else tuple(dims), target)[0]
    return {name for name in ("tdpbf16ps", "dpbf16ps.512", "llvm.fma") if name in text}


def test_the_targets_instructions_are_used() -> None:
    spec = product(64, 64)
    for target, wanted in ((AMX, "tdpbf16ps"), (BF16, "dpbf16ps.512"), ("x86-64-v4", "llvm.fma")):
        assert target_for(spec, target) == target
        for dims in (None, (1,), (128,)):
            assert instructions(spec, dims, target) == {wanted}
    assert target_for(spec, "x86-64-v4-vnni") == "x86-64-v4"


def test_other_operands_are_refused() -> None:
    with pytest.raises(ValueError, match="k is 7 in layout 'pairs'; it must be a multiple of 2"):
        compile_kernel(product(8, 7), None)
