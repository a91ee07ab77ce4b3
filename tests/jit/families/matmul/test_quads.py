"""Products of bytes: the integers of numpy on every target, tier and tile split."""

from __future__ import annotations

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel, kernel_text, target_for
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.arithmetic import QUADS
from shapevm.jit.families.matmul.layouts import LAYOUTS
from shapevm.jit.families.matmul.schedules import PANEL, SCHEDULES
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.jit.llvm.target import bases, runs_here
from shapevm.jit.reference import evaluate
from shapevm.jit.tuning import schedules_of

M = s.Dim(0)
ROW, COLUMN, STEP = (s.Index(loop=i) for i in range(3))
TARGETS = [name for name in bases("x86-64-v4-amx") + bases("x86-64-v3-vnni") if runs_here(name)]


def product(n: int, k: int, scaled: bool = False) -> Matmul:
    """out[m, n] = a[m, k] @ b in i32, or `scaled`: times scale[n] in f32."""
    out = "f32" if scaled else "i32"
    buffers = [
        s.Buffer("u8", (M, k)),
        s.Buffer("i8", (-(-n // PANEL), k // 4, PANEL, 4)),
        s.Buffer(out, (M, n), is_output=True),
    ]
    body = [s.Instr("acc", "i32")]
    if scaled:
        buffers.append(s.Buffer("f32", (n,)))
        body += [
            s.Instr("cast", "f32", (0,)),
            s.Instr("load", "f32", buffer=3, index=(COLUMN,)),
            s.Instr("mul", "f32", (1, 2)),
        ]
    body.append(s.Instr("store", out, (len(body) - 1,), buffer=2, index=(ROW, COLUMN)))
    return Matmul(1, tuple(buffers), MatrixProduct((), M, n, k, 0, (ROW, STEP), 1, (), "quads", tuple(body)))


def arrays(spec: Matmul, m: int, extreme: bool = False) -> tuple[list[np.ndarray], np.ndarray]:
    """Return buffers with random contents, and the product in i64."""
    rng = np.random.default_rng(m)
    a = rng.integers(0, 256, (m, spec.product.k)).astype(np.uint8)
    b = rng.integers(-128, 128, (spec.product.k, spec.product.n)).astype(np.int8)
    if extreme:
        a[...], b[...] = 255, -128
    scale = [rng.random(spec.product.n).astype(np.float32)] if len(spec.buffers) > 3 else []
    out = np.full((m, spec.product.n), 77, np.float32 if scale else np.int32)
    return [a, LAYOUTS["quads"].pack(b), out, *scale], a.astype(np.int64) @ b.astype(np.int64)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n, k", [(1, 4), (16, 8), (40, 64), (64, 36), (71, 132), (200, 520), (33, 4100)])
def test_integers_are_exact(n: int, k: int, target: str) -> None:
    spec = product(n, k)
    for dims in (None, (7,)):
        kernel = Kernel(compile_kernel(spec, dims, target))
        for m in (0, 1, 2, 5, 7, 13, 14, 30) if dims is None else dims:
            buffers, wanted = arrays(spec, m)
            kernel.run(buffers, (m,))
            np.testing.assert_array_equal(buffers[2], wanted)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_and_tile_split(schedule: str, target: str) -> None:
    spec, m = product(100, 600, scaled=True), 61
    if schedule not in schedules_of(spec, None, target):
        with pytest.raises(ValueError, match=schedule):
            compile_kernel(spec, None, target, schedule=schedule)
        return
    buffers, wanted = arrays(spec, m)
    wanted = wanted.astype(np.float32) * buffers[3]
    for dims in (None, (m,)):
        code = compile_kernel(spec, dims, target, schedule=schedule)
        kernel = Kernel(code)
        n_tiles = kernel.n_tiles((m,))
        for cuts in ([0, n_tiles], list(range(n_tiles + 1))):
            buffers[2][...] = np.nan
            kernel.run(buffers, (m,), list(zip(cuts, cuts[1:], strict=False)))
            np.testing.assert_array_equal(buffers[2], wanted)


@pytest.mark.parametrize("target", TARGETS)
def test_extremes_do_not_saturate(target: str) -> None:
    spec = product(32, 1000)
    for m in (1, 20):
        buffers, wanted = arrays(spec, m, extreme=True)
        Kernel(compile_kernel(spec, None, target)).run(buffers, (m,))
        assert wanted[0, 0] == -255 * 128 * 1000
        np.testing.assert_array_equal(buffers[2], wanted)


def test_the_definition_agrees() -> None:
    spec = product(40, 36, scaled=True)
    buffers, _ = arrays(spec, 9)
    Kernel(compile_kernel(spec, None)).run(buffers, (9,))
    found = [buffer.copy() for buffer in buffers]
    evaluate(spec, (9,), found)
    np.testing.assert_array_equal(found[2], buffers[2])


def test_vnni_is_used_where_the_target_has_it() -> None:
    spec = product(64, 64)
    assert target_for(spec, "x86-64-v4-vnni") == "x86-64-v4-vnni"
    assert "vpdpbusd" in kernel_text(spec, None, "x86-64-v4-vnni")[0]
    assert "vpdpbusd" not in kernel_text(spec, None, "x86-64-v4")[0]
    assert target_for(spec, "x86-64-v3-vnni") == "x86-64-v3-vnni"
    assert "vpdpbusd.256" in kernel_text(spec, None, "x86-64-v3-vnni")[0]
    assert "usdot" in kernel_text(spec, None, "aarch64-i8mm")[0]
    assert ".sdot" in kernel_text(spec, None, "aarch64-dotprod")[0]
    assert "neon" not in kernel_text(spec, None, "aarch64")[0]
    for rows in (1, 16):
        assert compile_kernel(spec, (rows,), "x86-64-v4-vnni").variants[-1:] == ("panels",)
    assert QUADS in kernel_text(spec, None, "x86-64-v4-vnni")[0]


def test_amx_tiles_are_used_where_rows_and_steps_are_enough() -> None:
    target = "x86-64-v4-amx"
    assert target_for(product(64, 64), target) == target
    assert target_for(product(64, 60), target) == "x86-64-v4-vnni"
    for rows, wanted in ((8, set()), (9, {"amx-bytes"})):
        code = compile_kernel(product(64, 256), (rows,), target)
        assert set(code.variants) & {"amx-bytes"} == wanted
    text = kernel_text(product(64, 256), None, target)[0]
    assert "tdpbusd" in text and "vpdpbusd" in text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("k", [64, 100, 256, 260, 320, 512, 516, 576, 1100])
def test_every_number_of_rows(k: int, target: str) -> None:
    """Tiles have 32 rows, or the upper half of them; steps that do not divide overlap with those before."""
    spec = product(45, k)
    kernel = Kernel(compile_kernel(spec, None, target))
    for m in (9, 15, 16, 17, 31, 32, 33, 48, 49, 65, 256, 257, 300):
        buffers, wanted = arrays(spec, m)
        kernel.run(buffers, (m,))
        np.testing.assert_array_equal(buffers[2], wanted)
        if m % 16 == 1:
            buffers[2][...] = 77
            Kernel(compile_kernel(spec, (m,), target)).run(buffers, (m,))
        np.testing.assert_array_equal(buffers[2], wanted)


def test_other_operands_are_refused() -> None:
    with pytest.raises(ValueError, match="k is 6 in layout 'quads'; it must be a multiple of 4"):
        compile_kernel(product(8, 6), None)
