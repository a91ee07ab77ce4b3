"""Few rows against several panels at once: the bits of any other tile, for every split of the tiles."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel, kernel_text
from shapevm.jit.evaluation import f32_to_bf16
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.gemv import GEMV_PANELS, MAX_ROWS
from shapevm.jit.families.matmul.layouts import pack_panels
from shapevm.jit.families.matmul.schedules import PANEL, WITHOUT_ASKING
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.jit.families.matmul.sums import products
from shapevm.jit.llvm.target import host_target
from shapevm.jit.measure.objects import made_up
from shapevm.jit.text import parse_spec
from shapevm.jit.tuning import schedules_of

TARGETS = ("x86-64-v3", None) if host_target().startswith("x86") else (None,)
ROWS, WIDE = s.Dim(0), GEMV_PANELS * PANEL


def linear(n: int, k: int, is_computed: bool) -> Matmul:
    """out = (a + 1 where computed) @ panels + bias."""
    m, i, j, kk = ROWS, *(s.Index(loop=loop) for loop in range(3))
    shapes: list[tuple[s.Size, ...]] = [(m, k), (-(-n // PANEL), k, PANEL), (m, n), (n,)]
    buffers = tuple(s.Buffer("f32", shape, is_output=b == 2) for b, shape in enumerate(shapes))
    body = (
        s.Instr("acc", "f32"),
        s.Instr("load", "f32", buffer=3, index=(j,)),
        s.Instr("add", "f32", (0, 1)),
        s.Instr("store", "f32", (2,), buffer=2, index=(i, j)),
    )
    spec = Matmul(1, buffers, MatrixProduct((), m, n, k, 0, (i, kk), 1, (), "panels", body))
    if not is_computed:
        return spec
    prologue = (
        s.Instr("load", "f32", buffer=0, index=(i, kk)),
        s.Instr("const", "f32", value=1.0),
        s.Instr("add", "f32", (0, 1)),
    )
    return spec.with_product(a=-1, a_index=(), prologue=prologue)


@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("schedule", [None, WITHOUT_ASKING])
@pytest.mark.parametrize(
    "n, k, chain",
    [
        (WIDE, 32, 0),
        (2 * WIDE + 71, 37, 0),
        (3 * WIDE - 1, 96, 0),
        (WIDE - 1, 40, 0),
        (WIDE + 33, 389, 0),
        (WIDE, 8900, 0),
        (WIDE + 33, 37, 16),
        (WIDE, 128, 32),
    ],
)
def test_few_rows_give_sums_in_the_order_of_the_definition(
    n: int, k: int, chain: int, schedule: str | None, is_computed: bool
) -> None:
    rng = np.random.default_rng(3)
    spec = linear(n, k, is_computed).with_product(chain=chain)
    b, bias = rng.standard_normal((k, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    for target in TARGETS:
        generic = Kernel(compile_kernel(spec, None, target, schedule=schedule))
        for m in (1, 3, 7, MAX_ROWS, MAX_ROWS + 1):
            a = rng.standard_normal((m, k)).astype(np.float32)
            wanted = products(a + np.float32(is_computed), b, chain=chain) + bias
            exact = compile_kernel(spec, (m,), target, schedule=schedule if m <= MAX_ROWS else None)
            for kernel in (generic, Kernel(exact)):
                tiles = kernel.n_tiles((m,))
                for ranges in (
                    None,
                    [(t, t + 1) for t in range(tiles)],
                    [(tiles // 3, tiles), (0, tiles // 3)],
                ):
                    out = np.full((m, n), np.nan, np.float32)
                    kernel.run([a, pack_panels(b), out, bias], (m,), ranges)
                    assert np.array_equal(out, wanted)


def test_only_code_that_asks_prefetches() -> None:
    """Processors that read ahead by themselves are slower when they are asked to; the code says so."""
    spec = linear(WIDE, 768, False)
    for dims in ((1,), (4,), (8,)):
        texts = [kernel_text(spec, dims, "x86-64-v4", schedule)[0] for schedule in (None, WITHOUT_ASKING)]
        asked, unasked = (text.count("call void @llvm.prefetch") for text in texts)
        assert asked > unasked


@pytest.mark.parametrize(("dtype", "vectors"), [("f32", 2), ("bf16", 2), ("i8", 8)])
def test_panels_are_one_stream_where_a_step_reads_a_line(dtype: str, vectors: int) -> None:
    spec = linear(WIDE, 768, False)
    a, b, *others = spec.buffers
    spec = replace(spec, buffers=(a, replace(b, dtype=dtype), *others))
    text, _ = kernel_text(spec, (1,), "x86-64-v4", WITHOUT_ASKING)
    assert set(re.findall(r"define \w+ @streams\w*_1x(\d+)_", text)) == {str(vectors)}


@pytest.mark.parametrize(
    ("dtype", "k", "asks"), [("i8", 768, True), ("i8", 2048, False), ("f32", 768, False)]
)
def test_the_next_short_panels_are_asked_for_where_a_step_reads_less(dtype: str, k: int, asks: bool) -> None:
    spec = linear(WIDE, k, False)
    a, b, *others = spec.buffers
    spec = replace(spec, buffers=(a, replace(b, dtype=dtype), *others))
    text, _ = kernel_text(spec, (1,), "x86-64-v4", WITHOUT_ASKING)
    (streams,) = (part for part in text.split("\n}\n") if re.search(r"define \w+ @streams", part))
    assert ("call void @llvm.prefetch" in streams) == asks


def test_schedules_of_few_rows_are_among_those_that_are_tried() -> None:
    spec = linear(WIDE, 768, False)
    found = {dims: schedules_of(spec, dims, "x86-64-v4") for dims in ((4,), (MAX_ROWS + 1,), None)}
    assert "14x32-unasked" in found[4,]
    assert not any(name.endswith(WITHOUT_ASKING) for dims in ((MAX_ROWS + 1,), None) for name in found[dims])
    made = compile_kernel(spec, (4,), schedule="14x32-unasked")
    assert (made.schedule_name, made.variants) == ("14x32-unasked", compile_kernel(spec, (4,)).variants)
    with pytest.raises(ValueError, match="schedule '5x5' is unknown"):
        compile_kernel(spec, (4,), schedule="5x5-unasked")


@pytest.mark.parametrize("m", [1, 3, MAX_ROWS])
@pytest.mark.parametrize(
    "layout, a, b",
    [
        ("panels", "f32", "bf16[7,416,32]"),
        ("panels", "f32", "i8[7,416,32]"),
        ("quads", "u8", "i8[7,104,32,4]"),
        ("pairs", "bf16", "bf16[7,208,32,2]"),
        ("grouped_floats", "f32", "u8[7,13,640]"),
        ("grouped_quads", "u8", "u8[7,13,640]"),
    ],
)
def test_narrow_weights_give_the_same_bits_however_they_are_read(m: int, layout: str, a: str, b: str) -> None:
    spec = parse_spec(
        f"""matmul n_dims=1 batch=[] m=n0 n=200 k=416 a=0 a_index=[i0,i2] b=1 b_index=[] b_layout="{layout}"
  b0 {a}[n0,416]
  b1 {b}
  b2 f32[n0,200] output
  v0 = acc {"i32" if layout == "quads" else "f32"}
  v1 = cast f32 v0
  v2 = store f32 v1 b2[i0,i1]"""
    )
    results = []
    for dims in (None, (m,)):
        for schedule in (None, WITHOUT_ASKING):
            kernel = Kernel(compile_kernel(spec, dims, schedule=schedule))
            buffers = [np.copy(x) for x in made_up(kernel, (m,))]
            rng = np.random.default_rng(7)
            for x in buffers[:2]:
                floats = rng.standard_normal(x.shape, np.float32)
                small = {"f": floats, "u": rng.integers(0, 100, x.shape), "i": rng.integers(-9, 9, x.shape)}
                x[...] = f32_to_bf16(floats) if x.dtype == np.uint16 else small[x.dtype.kind]
            if layout.startswith("grouped"):  # the scales of a group lie behind its integers
                scales = rng.random((7, 13, 32), np.float32)
                buffers[1][..., 512:] = scales.view(np.uint8)
            kernel.run(buffers, (m,))
            results.append(buffers[2].tobytes())
    assert len(set(results)) == 1
    assert np.isfinite(buffers[2]).all() and buffers[2].any()
