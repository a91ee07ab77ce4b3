"""The Matmul family against numpy in float64: equal bits from every tier, tile split and target."""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import replace

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import bounds, compile_kernel, kernel_text
from shapevm.jit.evaluation import bf16_to_f32, f32_to_bf16
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.layouts import pack_panels
from shapevm.jit.families.matmul.product import SHORT
from shapevm.jit.families.matmul.schedules import PANEL, SCHEDULES
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.jit.families.matmul.sums import products
from shapevm.jit.llvm.target import host_target, runs_here
from shapevm.jit.loops.bodies import LANES
from shapevm.jit.reference import evaluate
from shapevm.jit.spec_reader import from_json
from shapevm.jit.text import format_spec, parse_spec
from shapevm.jit.tuning import schedules_of

M = s.Dim(0)
TARGETS = ("x86-64-v3", "x86-64-v4") if runs_here("x86-64-v4") else (None,)
LOOPS = tuple(s.Index(loop=i) for i in range(5))


def dense(m: s.Size, n: int, k: int, epilogue: str = "", layout: str = "panels", n_dims: int = 1) -> Matmul:
    """out[m, n] = a[m, k] @ b (+ bias[n], relu or tanh, + residual[m, n] as `epilogue` says)."""
    shape = (-(-n // PANEL), k, PANEL) if layout == "panels" else (k, n)
    buffers = [s.Buffer("f32", (m, k)), s.Buffer("f32", shape), s.Buffer("f32", (m, n), is_output=True)]
    at = (LOOPS[0], LOOPS[1])
    body = [s.Instr("acc", "f32")]
    if "bias" in epilogue:
        buffers.append(s.Buffer("f32", (n,)))
        body.append(s.Instr("load", "f32", buffer=len(buffers) - 1, index=(LOOPS[1],)))
        body.append(s.Instr("add", "f32", (0, 1)))
    if "relu" in epilogue:
        body.append(s.Instr("const", "f32", value=0.0))
        body.append(s.Instr("maximum", "f32", (len(body) - 2, len(body) - 1)))
    if "tanh" in epilogue:
        body.append(s.Instr("tanh", "f32", (len(body) - 1,)))
    if "residual" in epilogue:
        buffers.append(s.Buffer("f32", (m, n)))
        body.append(s.Instr("load", "f32", buffer=len(buffers) - 1, index=at))
        body.append(s.Instr("add", "f32", (len(body) - 2, len(body) - 1)))
    body.append(s.Instr("store", "f32", (len(body) - 1,), buffer=2, index=at))
    b_index = () if layout == "panels" else (LOOPS[2], LOOPS[1])
    return Matmul(
        n_dims,
        tuple(buffers),
        MatrixProduct((), m, n, k, 0, (LOOPS[0], LOOPS[2]), 1, b_index, layout, tuple(body)),
    )


def arrays(spec: Matmul, m: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the buffers of a `dense` spec with random contents, and b as [K, N]."""
    rng = np.random.default_rng(seed)
    buffers = [
        rng.standard_normal([m if size == M else size for size in b.shape]).astype(np.float32)
        for b in spec.buffers
    ]
    b = rng.standard_normal((spec.product.k, spec.product.n)).astype(np.float32)
    buffers[1] = pack_panels(b) if spec.product.b_layout == "panels" else b
    buffers[2][...] = np.nan
    return buffers, b


def expected(buffers: list[np.ndarray], b: np.ndarray, epilogue: str) -> np.ndarray:
    result = buffers[0].astype(np.float64) @ b.astype(np.float64)
    rest = iter(buffers[3:])
    if "bias" in epilogue:
        result = result + next(rest)
    if "relu" in epilogue:
        result = np.maximum(result, 0)
    if "tanh" in epilogue:
        result = np.tanh(result)
    return result + next(rest) if "residual" in epilogue else result


@pytest.mark.parametrize("k, n", [(3, 40), (0, 40), (1000, 3001), (2_100_000, 1)])
def test_pack_panels_pads_with_zeros(k: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where several threads pack."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    weight = np.arange(k * n, dtype=np.float32).reshape(k, n)
    panels = pack_panels(weight)
    assert panels.shape == (-(-n // PANEL), k, PANEL)
    assert np.array_equal(np.concatenate(list(panels), axis=1)[:, :n], weight)
    assert not panels[-1, :, n % PANEL :].any()


@pytest.mark.parametrize("layout", ["panels", "rows"])
@pytest.mark.parametrize(
    "n, k", [(64, 33), (1, 5), (37, 16), (16, 1), (48, 0), (96, 130), (71, 7), (99, 600)]
)
def test_generic_and_exact_agree_with_float64_and_each_other(n: int, k: int, layout: str) -> None:
    for epilogue in ("", "bias relu residual"):
        spec = dense(M, n, k, epilogue, layout)
        generic = Kernel(compile_kernel(spec, None))
        for m in (0, 1, 2, 7, 13, 14, 15, 29, 97, 241):
            buffers, b = arrays(spec, m)
            generic.run(buffers, (m,))
            got = buffers[2].copy()
            np.testing.assert_allclose(got, expected(buffers, b, epilogue), rtol=1e-5, atol=1e-5 * (k + 1))
            if m in (1, 13, 14, 29, 241):
                buffers[2][...] = np.nan
                Kernel(compile_kernel(spec, (m,))).run(buffers, (m,))
                assert np.array_equal(got, buffers[2])


@pytest.mark.parametrize("epilogue", ["", "bias relu", "bias relu residual", "bias tanh"])
@pytest.mark.parametrize("n, k", [(256, 64), (71, 128), (64, 1), (200, 129), (40, 24), (24, 33), (96, 16)])
@pytest.mark.parametrize("m", [1, 16, 37, 300])
def test_an_epilogue_in_registers_has_the_bits_of_one_in_scratch(
    m: int, n: int, k: int, epilogue: str
) -> None:
    """Few steps and a simple epilogue, all columns or the last ones: exact code alone has it in registers."""
    spec = dense(M, n, k, epilogue)
    buffers, b = arrays(spec, m)
    exact, results = compile_kernel(spec, (m,), keep_ir=True), []
    for made in (exact, compile_kernel(spec, (m,), "x86-64-v4", keep_ir=True)):
        is_whole = LANES * SCHEDULES[made.schedule_name].vectors >= PANEL
        assert ("_ended" in made.llvm_ir) == (k <= SHORT and "tanh" not in epilogue and is_whole)
    assert is_whole
    for code in (exact, compile_kernel(spec, None)):
        buffers[2][...] = np.nan
        Kernel(code).run(buffers, (m,))
        results.append(buffers[2].copy())
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], expected(buffers, b, epilogue), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("layout", ["panels", "rows"])
@pytest.mark.parametrize("n, k", [(40, 50), (70, 383), (33, 384), (100, 1000), (40, 8192), (70, 8321)])
def test_sums_have_the_order_of_the_definition(n: int, k: int, layout: str) -> None:
    """One chain, blocks, groups of blocks; rows of one tile, of a tall one, of several."""
    spec = dense(M, n, k, layout=layout)
    for target in TARGETS:
        for m in (1, 5, 13, 14, 31):
            buffers, b = arrays(spec, m)
            wanted = products(buffers[0], b)
            for dims in (None, (m,)):
                buffers[2][...] = np.nan
                Kernel(compile_kernel(spec, dims, target)).run(buffers, (m,))
                assert np.array_equal(wanted, buffers[2]), (target, m, dims)


@pytest.mark.parametrize("chain", [16, 32])
@pytest.mark.parametrize("layout", ["panels", "rows"])
@pytest.mark.parametrize("n, k", [(5, 2), (10, 17), (70, 16), (64, 33), (70, 64), (70, 382), (40, 400)])
def test_short_sums_have_the_order_of_the_definition(n: int, k: int, layout: str, chain: int) -> None:
    spec = dense(M, n, k, layout=layout).with_product(chain=chain)
    for target in TARGETS:
        for m in (1, 13, 31):
            buffers, b = arrays(spec, m)
            wanted = products(buffers[0], b, chain=chain)
            for dims in (None, (m,)):
                buffers[2][...] = np.nan
                Kernel(compile_kernel(spec, dims, target)).run(buffers, (m,))
                assert np.array_equal(wanted, buffers[2]), (target, m, dims)


@pytest.mark.parametrize("chain", [0, 16, 32])
@pytest.mark.parametrize("k", [0, 7, 17, 40, 383, 384, 600, 8193])
def test_steps_known_at_run_time_have_the_order_of_the_definition(k: int, chain: int) -> None:
    sizes = (M, 70, s.Dim(1))
    buffers = tuple(
        s.Buffer("f32", (sizes[i], sizes[j]), is_output=at == 2)
        for at, (i, j) in enumerate(((0, 2), (2, 1), (0, 1)))
    )
    body = dense(1, 1, 1, layout="rows").product.epilogue
    spec = dense(M, 70, 1, layout="rows", n_dims=2)
    spec = dataclasses.replace(spec, buffers=buffers).with_product(k=s.Dim(1), epilogue=body, chain=chain)
    for target in TARGETS:
        generic = compile_kernel(spec, None, target)
        for m in (1, 6, 20):
            found, b = arrays(dense(m, 70, k, layout="rows"), m)
            wanted = products(found[0], b, chain=chain)
            for code in (generic, compile_kernel(spec, (m, k), target)):
                found[2][...] = np.nan
                Kernel(code).run(found, (m, k))
                assert np.array_equal(wanted, found[2]), (target, m)


@pytest.mark.parametrize("dims", [None, (300,)])
def test_every_split_of_the_tiles_gives_the_same_bits(dims: tuple[int, ...] | None) -> None:
    spec = dense(M, 171, 40, "bias residual")
    kernel = Kernel(compile_kernel(spec, dims))
    buffers, _ = arrays(spec, 300)
    kernel.run(buffers, (300,))
    whole = buffers[2].copy()
    n = kernel.n_tiles((300,))
    assert n >= 6
    for ranges in ([(t, t + 1) for t in reversed(range(n))], [(n // 2, n), (0, n // 2)]):
        buffers[2][...] = np.nan
        kernel.run(buffers, (300,), ranges)
        assert np.array_equal(whole, buffers[2])


def test_two_threads_get_about_half_each_from_16_rows_on() -> None:
    for m in (16, 37, 128, 512):
        for dims in (None, (m,)):
            n = Kernel(compile_kernel(dense(M, 384, 8), dims)).n_tiles((m,))
            assert n >= 12 or n % 2 == 0


@pytest.mark.parametrize("n", [3, 8, 20, 24, 40, 64, 71, 72, 100, 124, 128])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_and_targets_give_the_same_bits(schedule: str, n: int) -> None:
    spec = dense(M, n, 40, "bias relu")
    buffers, _ = arrays(spec, 31)
    Kernel(compile_kernel(spec, None)).run(buffers, (31,))
    wanted = buffers[2].copy()
    for target in {"x86-64-v3", host_target()} if host_target().startswith("x86") else {host_target()}:
        if schedule not in schedules_of(spec, (31,), target):
            continue
        buffers[2][...] = np.nan
        Kernel(compile_kernel(spec, (31,), target, schedule=schedule)).run(buffers, (31,))
        assert np.array_equal(wanted, buffers[2])


@pytest.mark.parametrize(
    ("n", "k", "tiles"),
    [
        (48, 96, ["8x3"]), (40, 400, ["8x3_half"]), (41, 400, ["8x3"]), (72, 64, ["6x4", "12x1_half"]),
        (80, 64, ["6x4", "12x1"]), (96, 64, ["6x4", "12x2"]), (64, 64, ["6x4"]),
    ],
)  # fmt: skip
def test_the_last_columns_have_taller_row_tiles(n: int, k: int, tiles: list[str]) -> None:
    """Registers hold as many sums of few columns as of many; half a vector has half as many lanes."""
    spec, m = dense(M, n, k, "bias relu"), 96
    text, _ = kernel_text(spec, (m,), "x86-64-v4")
    assert set(re.findall(r"define .*@(?:micro|chunk)\w*_(\d+x\d(?:_half)?)_\d\(", text)) == set(tiles)
    buffers, b = arrays(spec, m)
    results = []
    for dims in (None, (m,)):
        for target in TARGETS:
            buffers[2][...] = np.nan
            Kernel(compile_kernel(spec, dims, target, schedule="6x64")).run(buffers, (m,))
            results.append(buffers[2].copy())
    assert all(np.array_equal(results[0], other) for other in results)
    np.testing.assert_allclose(results[0], expected(buffers, b, "bias relu"), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("n", "called"), [(8, 1), (16, 1), (24, 2), (33, 3), (40, 3), (64, 2)])
def test_micro_kernels_of_a_vector_are_called_for_columns_that_there_are(n: int, called: int) -> None:
    """Panels of 32 columns take two calls, but where their last columns are zeros that only pad them."""
    text, _ = kernel_text(dense(M, n, 64), (12,), "x86-64-v3", schedule="6x16")
    assert len(re.findall(r"call void @micro\w*\(", text)) == called
    assert ("_half" in text) == (0 < n % 16 <= 8)


@pytest.mark.parametrize("epilogue", ["bias relu", "bias residual"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(25, 70, 400), (12, 33, 768), (1, 16, 385), (40, 64, 8300), (3, 0, 384)]
)
def test_totals_in_registers_are_those_of_scratch(m: int, n: int, k: int, epilogue: str) -> None:
    """12x16 adds blocks of its sums up in registers; not where there are groups of blocks."""
    spec = dense(M, n, k, epilogue)
    results = []
    buffers, _ = arrays(spec, m)
    for schedule, dims in (("6x64", None), ("12x16", None), ("12x16", (m,))):
        for target in TARGETS:
            buffers[2][...] = np.nan
            Kernel(compile_kernel(spec, dims, target, schedule=schedule)).run(buffers, (m,))
            results.append(buffers[2].copy())
    assert all(np.array_equal(results[0], other) for other in results)
    text, _ = kernel_text(spec, (m,), "x86-64-v4", schedule="12x16")
    assert ("chunk" in text) == (k > 64 * 128 and n > 0)


def test_register_tiles_by_target_rows_and_columns() -> None:
    """AMX tiles take one panel at a time; fewer rows than they pay for are left to FMAs of any tile."""
    spec = replace(dense(M, 384, 384), bf16x6=True)
    for target, name in (("x86-64-v4-amx", "12x32"), ("x86-64-v4", "6x64"), ("x86-64-v3", "6x16")):
        named = {m: kernel_text(spec, (m,), target)[1].schedule for m in (14, 16, 300)}
        assert named == {14: "6x16" if name == "6x16" else "14x32", 16: name, 300: name}
        assert kernel_text(spec, None, target)[1].schedule == name
    narrow = dense(M, 32, 384)
    assert [kernel_text(narrow, (m,), "x86-64-v4")[1].schedule for m in (14, 64)] == ["14x32", "12x32"]
    of_rows = {m: schedules_of(spec, (m,), "x86-64-v4-amx") for m in (95, 96)}
    assert "6x64" in of_rows[95] and "6x64" not in of_rows[96]
    with pytest.raises(ValueError, match="schedule '6x64' is unknown"):
        compile_kernel(spec, (96,), "x86-64-v4-amx", schedule="6x64")


def batched(n_dims: int, sizes: tuple[s.Size, ...]) -> Matmul:
    """out[b, h, i, j] = sum over k of q[b, i, h, k] * kt[b, h, k, j]: A with its batch axes out of order."""
    b, h, m, n, k = sizes
    buffers = (
        s.Buffer("f32", (b, m, h, k)),
        s.Buffer("f32", (b, h, k, n)),
        s.Buffer("f32", (b, h, m, n), is_output=True),
    )
    body = (s.Instr("acc", "f32"), s.Instr("store", "f32", (0,), buffer=2, index=LOOPS[:4]))
    a_index = (LOOPS[0], LOOPS[2], LOOPS[1], LOOPS[4])
    b_index = (LOOPS[0], LOOPS[1], LOOPS[4], LOOPS[3])
    return Matmul(n_dims, buffers, MatrixProduct((b, h), m, n, k, 0, a_index, 1, b_index, "rows", body))


@pytest.mark.parametrize(
    "dims", [(2, 3, 17, 33, 9), (1, 1, 1, 1, 1), (3, 2, 40, 64, 24), (0, 2, 4, 4, 4), (2, 2, 5, 6, 0)]
)
def test_batched_rows_of_any_sizes(dims: tuple[int, ...]) -> None:
    spec = batched(5, tuple(s.Dim(i) for i in range(5)))
    b, h, m, n, k = dims
    rng = np.random.default_rng(1)
    q = rng.standard_normal((b, m, h, k)).astype(np.float32)
    kt = rng.standard_normal((b, h, k, n)).astype(np.float32)
    out = np.full((b, h, m, n), np.nan, np.float32)
    Kernel(compile_kernel(spec, None)).run([q, kt, out], dims)
    wanted = np.einsum("bmhk,bhkn->bhmn", q.astype(np.float64), kt.astype(np.float64))
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5 * (k + 1))
    again = np.full_like(out, np.nan)
    Kernel(compile_kernel(spec, dims)).run([q, kt, again], dims)
    assert np.array_equal(out, again)


def with_prologue(layout: str = "panels", n: int = 71) -> Matmul:
    """out[h, i, j] = sum over k of ((f32(q[h, i, k]) - zero[i]) * scale[k] + 2) * b[k, j]; q is u8."""
    heads, m, k = s.Dim(0), s.Dim(1), s.Dim(2)
    shape = (-(-n // PANEL), k, PANEL) if layout == "panels" else (heads, k, n)
    buffers = (
        s.Buffer("u8", (heads, m, k)),
        s.Buffer("f32", shape),
        s.Buffer("f32", (heads, m, n), is_output=True),
        s.Buffer("f16", (m,)),
        s.Buffer("f32", (k,)),
    )
    prologue = (
        s.Instr("load", "u8", buffer=0, index=(LOOPS[0], LOOPS[1], LOOPS[3])),
        s.Instr("cast", "f32", (0,)),
        s.Instr("load", "f16", buffer=3, index=(LOOPS[1],)),
        s.Instr("cast", "f32", (2,)),
        s.Instr("sub", "f32", (1, 3)),
        s.Instr("load", "f32", buffer=4, index=(LOOPS[3],)),
        s.Instr("mul", "f32", (4, 5)),
        s.Instr("const", "f32", value=2.0),
        s.Instr("add", "f32", (6, 7)),
    )
    body = (s.Instr("acc", "f32"), s.Instr("store", "f32", (0,), buffer=2, index=LOOPS[:3]))
    b_index = () if layout == "panels" else (LOOPS[0], LOOPS[3], LOOPS[2])
    return Matmul(3, buffers, MatrixProduct((heads,), m, n, k, -1, (), 1, b_index, layout, body, prologue))


def prologue_arrays(spec: Matmul, dims: tuple[int, int, int]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the buffers of a `with_prologue` spec, and A as the unfused chain gives it in f32."""
    heads, m, k = dims
    rng = np.random.default_rng(2)
    q = rng.integers(0, 256, (heads, m, k), np.uint8)
    b_shape = (k, spec.product.n) if spec.product.b_layout == "panels" else (heads, k, spec.product.n)
    b = rng.standard_normal(b_shape).astype(np.float32)
    zero = rng.integers(100, 140, m).astype(np.float16)
    scale = rng.uniform(0.01, 0.02, k).astype(np.float32)
    out = np.full((heads, m, spec.product.n), np.nan, np.float32)
    a = (q.astype(np.float32) - zero.astype(np.float32)[:, None]) * scale + np.float32(2)
    return [q, pack_panels(b) if spec.product.b_layout == "panels" else b, out, zero, scale], a


@pytest.mark.parametrize("layout", ["panels", "rows"])
@pytest.mark.parametrize(
    "dims", [(1, 1, 1), (2, 5, 16), (3, 31, 33), (1, 300, 40), (2, 14, 15), (0, 3, 4), (2, 0, 4), (2, 3, 0)]
)
def test_a_prologue_gives_the_bits_of_its_chain_in_memory(dims: tuple[int, int, int], layout: str) -> None:
    spec = with_prologue(layout)
    buffers, a = prologue_arrays(spec, dims)
    plain_index = (LOOPS[0], LOOPS[1], LOOPS[3])
    in_memory = (s.Buffer("f32", spec.buffers[0].shape), *spec.buffers[1:])
    plain = dataclasses.replace(spec, buffers=in_memory).with_product(a=0, a_index=plain_index, prologue=())
    for target in ("x86-64-v3", None) if host_target().startswith("x86") else (None,):
        Kernel(compile_kernel(plain, None, target)).run([a, *buffers[1:]], dims)
        wanted = buffers[2].copy()
        for known in (None, dims):
            kernel = Kernel(compile_kernel(spec, known, target))
            n = kernel.n_tiles(dims)
            for ranges in ([(0, n)], [(t, t + 1) for t in reversed(range(n))], [(n // 3, n), (0, n // 3)]):
                buffers[2][...] = np.nan
                kernel.run(buffers, dims, ranges)
                assert np.array_equal(wanted, buffers[2])


@pytest.mark.parametrize("layout", ["panels", "rows"])
def test_the_reference_runs_prologues(layout: str) -> None:
    spec, dims = with_prologue(layout), (2, 9, 20)
    buffers, a = prologue_arrays(spec, dims)
    Kernel(compile_kernel(spec, None)).run(buffers, dims)
    got = buffers[2].copy()
    evaluate(spec, dims, buffers)
    np.testing.assert_allclose(got, buffers[2], rtol=1e-5, atol=1e-4)


def test_a_prologue_that_does_not_vary_along_k_or_m() -> None:
    spec = with_prologue()
    body = (s.Instr("load", "f16", buffer=3, index=(LOOPS[1],)), s.Instr("cast", "f32", (0,)))
    for prologue in (body, (s.Instr("const", "f32", value=0.5),)):
        changed = spec.with_product(prologue=prologue)
        buffers, _ = prologue_arrays(changed, (2, 17, 21))
        Kernel(compile_kernel(changed, None)).run(buffers, (2, 17, 21))
        got = buffers[2].copy()
        evaluate(changed, (2, 17, 21), buffers)
        np.testing.assert_allclose(got, buffers[2], rtol=1e-5, atol=1e-4)


def test_a_gather_in_a_prologue_is_checked() -> None:
    """out = table[ids] @ b: rows of a table, chosen by ids."""
    buffers = (
        s.Buffer("i64", (M,)),
        s.Buffer("f32", (1, 20, PANEL)),
        s.Buffer("f32", (M, 8), is_output=True),
        s.Buffer("bf16", (7, 20)),
    )
    prologue = (
        s.Instr("load", "i64", buffer=0, index=(LOOPS[0],)),
        s.Instr("load", "bf16", buffer=3, index=(s.Index(value=0), LOOPS[2])),
        s.Instr("cast", "f32", (1,)),
    )
    body = (s.Instr("acc", "f32"), s.Instr("store", "f32", (0,), buffer=2, index=LOOPS[:2]))
    spec = Matmul(1, buffers, MatrixProduct((), M, 8, 20, -1, (), 1, (), "panels", body, prologue))
    assert parse_spec(format_spec(spec)) == spec and from_json(s.to_json(spec)) == spec
    rng = np.random.default_rng(0)
    table = f32_to_bf16(rng.standard_normal((7, 20)).astype(np.float32))
    b = rng.standard_normal((20, 8)).astype(np.float32)
    ids, out = np.array([3, 0, 6, 6, 1]), np.empty((5, 8), np.float32)
    kernel = Kernel(compile_kernel(spec, None))
    kernel.run([ids, pack_panels(b), out, table], (5,))
    np.testing.assert_allclose(out, bf16_to_f32(table)[ids] @ b, rtol=1e-5, atol=1e-5)
    ids[2] = 7
    with pytest.raises(IndexError, match="index 7 is out of range for a dimension of size 7"):
        kernel.run([ids, pack_panels(b), out, table], (5,))


@pytest.mark.parametrize(
    ("instr", "message"),
    [
        (s.Instr("cast", "f64", (8,)), "prologue gives f64; it must give f32"),
        (s.Instr("reduce.sum", "f32", (8,)), "instruction 9 of the prologue is 'reduce.sum'"),
        (s.Instr("load", "f32", buffer=4, index=(LOOPS[2],)), "instruction 9 .* depends on the n loop"),
    ],
)
def test_what_a_prologue_may_not_hold(instr: s.Instr, message: str) -> None:
    spec = with_prologue()
    with pytest.raises(ValueError, match=message):
        compile_kernel(spec.with_product(prologue=(*spec.product.prologue, instr)), None)


def test_bounds_of_a_prologue_are_checked() -> None:
    spec = with_prologue()
    far = s.Instr("load", "u8", buffer=0, index=(LOOPS[0], LOOPS[1], s.Index(loop=3, offset=1)))
    far = spec.with_product(prologue=(far, *spec.product.prologue[1:]))
    assert bounds(spec) == () and bounds(far) == ((s.Dim(2), 1, 1, s.Dim(2)),)
    with pytest.raises(ValueError, match="buffer 0 is read or written at 4 along axis 2 of size 4"):
        compile_kernel(far, (1, 2, 4))


def test_refusals_name_the_fix() -> None:
    known = "6x64, 14x32, 12x32, 12x16, 6x16"
    with pytest.raises(ValueError, match=f"schedule '1x1' is unknown; known are {known}"):
        compile_kernel(dense(M, 4, 4), None, "x86-64-v4", schedule="1x1")
    wrong = dense(M, 4, 4)
    wrong = Matmul(
        1,
        (s.Buffer("f64", (M, 4)), *wrong.buffers[1:]),
        MatrixProduct((), M, 4, 4, 0, wrong.product.a_index, 1, (), "panels", wrong.product.epilogue),
    )
    with pytest.raises(ValueError, match=r"buffers\[0\].dtype is 'f64'; it must be f32"):
        compile_kernel(wrong, None)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("n, k", [(200, 40), (71, 600), (5, 1)])
def test_a_narrow_weight_gives_the_bits_of_its_values_in_f32(n: int, k: int, dtype: str) -> None:
    wide = dense(M, n, k, "bias")
    panels = dataclasses.replace(wide.buffers[1], dtype=dtype)
    spec = dataclasses.replace(wide, buffers=(wide.buffers[0], panels, *wide.buffers[2:]))
    targets = ("x86-64-v3", None) if host_target().startswith("x86") else (None,)
    plain, kernels = Kernel(compile_kernel(wide, None)), [compile_kernel(spec, None, t) for t in targets]
    for m in (1, 4, 31):
        buffers, b = arrays(wide, m)
        narrow = f32_to_bf16(b) if dtype == "bf16" else b.astype(np.float16)
        buffers[1] = pack_panels(bf16_to_f32(narrow) if dtype == "bf16" else narrow.astype(np.float32))
        plain.run(buffers, (m,))
        wanted = buffers[2].copy()
        buffers[1] = pack_panels(narrow)
        for code in (*kernels, compile_kernel(spec, (m,))):
            buffers[2][...] = np.nan
            Kernel(code).run(buffers, (m,))
            assert np.array_equal(wanted, buffers[2])
        evaluate(spec, (m,), buffers)
        np.testing.assert_allclose(buffers[2], wanted, rtol=1e-5, atol=1e-5 * (k + 1))


def test_a_wide_schedule_is_refused_where_tiles_are_one_panel_wide() -> None:
    spec = replace(dense(M, 64, 64), bf16x6=True)
    with pytest.raises(ValueError, match="matmul kernel: schedule '6x64' is unknown"):
        compile_kernel(spec, (300,), "x86-64-v4-amx", schedule="6x64")


PLAIN = """matmul n_dims=1 batch=[] m=n0 n=64 k={k} a=0 a_index=[i0,i2] b=1 b_index=[] \
b_layout="panels" chain=32
  b0 f32[n0,{k}]
  b1 f32[2,{k},32]
  b2 f32[n0,64] output
  v0 = acc f32
  v1 = store f32 v0 b2[i0,i1]"""


def micro_kernels(k: int, target: str) -> dict[str, str]:
    """Return the text of a generic kernel's micro-kernels by name."""
    text, _ = kernel_text(parse_spec(PLAIN.format(k=k)), None, target)
    parts = re.findall(r"^define void @((?:micro|chunk|streams)\w*)(.*?)^}", text, re.MULTILINE | re.DOTALL)
    return dict(parts)


@pytest.mark.parametrize("target", ["x86-64-v4", "x86-64-v3"])
@pytest.mark.parametrize("lengths", [(64, 128), (384, 768, 3072)])
def test_sums_of_other_lengths_have_the_same_micro_kernels(lengths: tuple[int, ...], target: str) -> None:
    first, *others = (micro_kernels(k, target) for k in lengths)
    assert len(first) > 12
    for other in others:
        assert {name for name in first.keys() | other.keys() if first.get(name) != other.get(name)} == set()


@pytest.mark.parametrize("m", [1, 2, 5, 6, 13, 14, 37])
@pytest.mark.parametrize("k", [4, 36, 64, 96, 100, 352, 384, 516])
def test_lengths_that_are_arguments_give_the_sums_of_any(k: int, m: int) -> None:
    spec, rng = parse_spec(PLAIN.format(k=k)), np.random.default_rng(k + m)
    a, w = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, 64)))
    wanted, results = products(a, w, chain=32), []
    for dims in (None, (m,)):
        out = np.full((m, 64), np.nan, np.float32)
        Kernel(compile_kernel(spec, dims)).run([a, pack_panels(w), out], (m,))
        results.append(out)
    np.testing.assert_array_equal(results[0].view(np.uint32), results[1].view(np.uint32))
    np.testing.assert_array_equal(results[0], wanted)
