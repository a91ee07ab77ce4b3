"""The Matmul family against numpy in float64: equal bits from every tier, tile split and target."""

from __future__ import annotations

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.matmul import PANEL, pack_panels
from shapevm.jit.target import host_target

M = s.Dim(0)
LOOPS = tuple(s.Index(loop=i) for i in range(5))


def dense(m: s.Size, n: int, k: int, epilogue: str = "", layout: str = "panels", n_dims: int = 1) -> s.Matmul:
    """out[m, n] = a[m, k] @ b (+ bias[n], gelu'd, + residual[m, n] as `epilogue` says)."""
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
    if "residual" in epilogue:
        buffers.append(s.Buffer("f32", (m, n)))
        body.append(s.Instr("load", "f32", buffer=len(buffers) - 1, index=at))
        body.append(s.Instr("add", "f32", (len(body) - 2, len(body) - 1)))
    body.append(s.Instr("store", "f32", (len(body) - 1,), buffer=2, index=at))
    b_index = () if layout == "panels" else (LOOPS[2], LOOPS[1])
    return s.Matmul(
        n_dims, tuple(buffers), (), m, n, k, 0, (LOOPS[0], LOOPS[2]), 1, b_index, layout, tuple(body)
    )


def arrays(spec: s.Matmul, m: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the buffers of a `dense` spec with random contents, and b as [K, N]."""
    rng = np.random.default_rng(seed)
    buffers = [
        rng.standard_normal([m if size == M else size for size in b.shape]).astype(np.float32)
        for b in spec.buffers
    ]
    b = rng.standard_normal((spec.k, spec.n)).astype(np.float32)
    buffers[1] = pack_panels(b) if spec.b_layout == "panels" else b
    buffers[2][...] = np.nan
    return buffers, b


def expected(buffers: list[np.ndarray], b: np.ndarray, epilogue: str) -> np.ndarray:
    result = buffers[0].astype(np.float64) @ b.astype(np.float64)
    rest = iter(buffers[3:])
    if "bias" in epilogue:
        result = result + next(rest)
    if "relu" in epilogue:
        result = np.maximum(result, 0)
    return result + next(rest) if "residual" in epilogue else result


def test_pack_panels_pads_with_zeros() -> None:
    weight = np.arange(3 * 40, dtype=np.float32).reshape(3, 40)
    panels = pack_panels(weight)
    assert panels.shape == (2, 3, PANEL)
    assert np.array_equal(np.concatenate(list(panels), axis=1)[:, :40], weight)
    assert not panels[1, :, 40 - PANEL :].any()


@pytest.mark.parametrize("layout", ["panels", "rows"])
@pytest.mark.parametrize("n, k", [(64, 33), (1, 5), (37, 16), (16, 1), (48, 0), (96, 130), (71, 7)])
def test_generic_and_exact_agree_with_float64_and_each_other(n: int, k: int, layout: str) -> None:
    for epilogue in ("", "bias relu residual"):
        spec = dense(M, n, k, epilogue, layout)
        generic = Kernel(compile_kernel(spec, None))
        for m in (0, 1, 2, 7, 13, 14, 15, 29, 97, 241):
            buffers, b = arrays(spec, m)
            generic.run(buffers, (m,))
            got = buffers[2].copy()
            np.testing.assert_allclose(got, expected(buffers, b, epilogue), rtol=1e-5, atol=1e-5 * (k + 1))
            if m in (1, 29, 241):
                buffers[2][...] = np.nan
                Kernel(compile_kernel(spec, (m,))).run(buffers, (m,))
                assert np.array_equal(got, buffers[2])


def test_sum_is_fused_multiply_adds_in_ascending_order_of_k() -> None:
    spec = dense(M, 40, 50)
    buffers, b = arrays(spec, 9)
    Kernel(compile_kernel(spec, None)).run(buffers, (9,))
    sums = np.zeros((9, 40), np.float32)
    for k in range(
        50
    ):  # a product of two f32 is exact in f64: rounding it with the sum is off in rare ties only
        sums = (buffers[0][:, k, None].astype(np.float64) * b[k] + sums).astype(np.float32)
    assert np.array_equal(sums, buffers[2])


@pytest.mark.parametrize("dims", [None, (300,)])
def test_every_split_of_the_tiles_gives_the_same_bits(dims: tuple[int, ...] | None) -> None:
    spec = dense(M, 71, 40, "bias residual")
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
            assert Kernel(compile_kernel(dense(M, 384, 8), dims)).n_tiles((m,)) >= 12


@pytest.mark.parametrize("schedule", ["6x16", "14x32"])
def test_schedules_and_targets_give_the_same_bits(schedule: str) -> None:
    spec = dense(M, 71, 40, "bias relu")
    buffers, _ = arrays(spec, 31)
    Kernel(compile_kernel(spec, None)).run(buffers, (31,))
    wanted = buffers[2].copy()
    for target in {"x86-64-v3", host_target()} if host_target().startswith("x86") else {host_target()}:
        buffers[2][...] = np.nan
        Kernel(compile_kernel(spec, (31,), target, schedule=schedule)).run(buffers, (31,))
        assert np.array_equal(wanted, buffers[2])


def batched(n_dims: int, sizes: tuple[s.Size, ...]) -> s.Matmul:
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
    return s.Matmul(n_dims, buffers, (b, h), m, n, k, 0, a_index, 1, b_index, "rows", body)


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


def test_refusals_name_the_fix() -> None:
    with pytest.raises(ValueError, match="schedule '1x1' is unknown; known are 14x32, 6x16"):
        compile_kernel(dense(M, 4, 4), None, schedule="1x1")
    wrong = dense(M, 4, 4)
    wrong = s.Matmul(
        1,
        (s.Buffer("f64", (M, 4)), *wrong.buffers[1:]),
        (),
        M,
        4,
        4,
        0,
        wrong.a_index,
        1,
        (),
        "panels",
        wrong.epilogue,
    )
    with pytest.raises(ValueError, match="a is f64; it must be f32"):
        compile_kernel(wrong, None)
