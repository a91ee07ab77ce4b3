"""The Attention family against numpy in float64: equal bits from every tier, tile split and target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.attention.problem import choose_schedule
from shapevm.jit.families.attention.spec import Attention, Extents, Layout, Softmax
from shapevm.jit.llvm.function import Function
from shapevm.jit.llvm.target import host_target

B, H, Q, K = (s.Dim(i) for i in range(4))
LOOPS = tuple(s.Index(loop=i) for i in range(5))
ACC = s.Instr("acc", "f32")


def attention(
    d: s.Size,
    dv: s.Size,
    mask: str = "",
    safe: bool = True,
    scale: float = 0.3,
    sizes: tuple[s.Size, ...] = (B, H, Q, K),
) -> Attention:
    """Heads inside rows ([B, L, H, D]); `mask`: "" none, "padding" bool [B, K], "bias" [H, Q, K] ..."""
    b, h, q_len, k_len = sizes
    buffers = [
        s.Buffer("f32", (b, q_len, h, d)),
        s.Buffer("f32", (b, k_len, h, d)),
        s.Buffer("f32", (b, k_len, h, dv)),
        s.Buffer("f32", (b, q_len, h, dv), is_output=True),
    ]
    body: tuple[s.Instr, ...] = ()
    low = s.Instr("const", "f32", value="-inf")
    if mask == "padding":
        buffers.append(s.Buffer("bool", (b, k_len)))
        keep = s.Instr("load", "bool", buffer=4, index=(LOOPS[0], LOOPS[3]))
        body = (ACC, keep, low, s.Instr("select", "f32", (1, 0, 2)))
    if mask == "bias":
        buffers.append(s.Buffer("f32", (h, q_len, k_len)))
        body = (ACC, s.Instr("load", "f32", buffer=4, index=LOOPS[1:4]), s.Instr("add", "f32", (0, 1)))
    if mask == "causal":
        i, j = s.Instr("iota", "i64", loop=2), s.Instr("iota", "i64", loop=3)
        body = (ACC, i, j, s.Instr("le", "bool", (2, 1)), low, s.Instr("select", "f32", (3, 0, 4)))
    rows, keys = (LOOPS[0], LOOPS[2], LOOPS[1], LOOPS[4]), (LOOPS[0], LOOPS[3], LOOPS[1], LOOPS[4])
    extents, layout = Extents((b, h), q_len, k_len, d, dv), Layout(0, 1, 2, 3, rows, keys, keys, rows)
    return Attention(4, tuple(buffers), extents, layout, Softmax(scale, safe, body))


def arrays(dims: tuple[int, ...], d: int, dv: int, mask: str) -> list[np.ndarray]:
    b, h, q_len, k_len = dims
    rng = np.random.default_rng(sum(dims))
    shapes = [(b, q_len, h, d), (b, k_len, h, d), (b, k_len, h, dv), (b, q_len, h, dv)]
    found = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    if mask == "padding":
        found.append(rng.random((b, k_len)) < 0.7)
    if mask == "bias":
        found.append(rng.standard_normal((h, q_len, k_len)).astype(np.float32))
    found[3][...] = np.nan
    return found


def expected(buffers: list[np.ndarray], mask: str, scale: float = 0.3) -> np.ndarray:
    q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in buffers[:3])
    scores = scale * (q @ k.transpose(0, 1, 3, 2))
    if mask == "padding":
        scores = np.where(buffers[4][:, None, None, :], scores, -np.inf)
    if mask == "bias":
        scores = scores + buffers[4]
    if mask == "causal":
        i, j = np.arange(scores.shape[2])[:, None], np.arange(scores.shape[3])
        scores = np.where(j <= i, scores, -np.inf)
    if scores.shape[3]:
        top = scores.max(-1, keepdims=True)
        scores = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = scores.sum(-1, keepdims=True)
    return (scores / np.where(total == 0, 1, total) @ v).transpose(0, 2, 1, 3)


def check(dims: tuple[int, ...], d: int, dv: int, mask: str, kernel: Kernel) -> np.ndarray:
    buffers = arrays(dims, d, dv, mask)
    kernel.run(buffers, dims)
    np.testing.assert_allclose(buffers[3], expected(buffers, mask), rtol=2e-5, atol=2e-6)
    return buffers[3]


@pytest.mark.parametrize("mask", ["", "padding", "bias", "causal"])
@pytest.mark.parametrize("d, dv", [(32, 32), (64, 64), (1, 1), (7, 33), (16, 48), (40, 5)])
def test_generic_and_exact_agree_with_float64_and_each_other(d: int, dv: int, mask: str) -> None:
    spec = attention(d, dv, mask)
    generic = Kernel(compile_kernel(spec, None))
    for dims in (
        (1, 1, 1, 1),
        (2, 3, 17, 5),
        (1, 2, 37, 67),
        (2, 1, 230, 130),
        (0, 2, 3, 3),
        (2, 2, 0, 5),
        (1, 1, 3, 0),
        (1, 1, 31, 1100),
        (1, 2, 2, 600),
    ):
        got = check(dims, d, dv, mask, generic)
        if dims in ((1, 2, 37, 67), (2, 1, 230, 130), (1, 1, 31, 1100), (1, 2, 2, 600)):
            assert np.array_equal(got, check(dims, d, dv, mask, Kernel(compile_kernel(spec, dims))))


def test_head_dimensions_of_any_size_at_run_time() -> None:
    sizes = tuple(s.Dim(i) for i in range(6))
    spec = attention(sizes[4], sizes[5], sizes=sizes[:4])
    spec = replace(spec, n_dims=6)
    kernel = Kernel(compile_kernel(spec, None))
    for d, dv in ((32, 32), (5, 70), (0, 3), (3, 0)):
        buffers = arrays((2, 2, 9, 11), d, dv, "")
        kernel.run(buffers, (2, 2, 9, 11, d, dv))
        np.testing.assert_allclose(buffers[3], expected(buffers, ""), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dims", [None, (1, 1, 3, 20)])
@pytest.mark.parametrize("safe", [True, False])
def test_rows_masked_everywhere(safe: bool, dims: tuple[int, ...] | None) -> None:
    kernel = Kernel(compile_kernel(attention(8, 8, "padding", safe), dims))
    buffers = arrays((1, 1, 3, 20), 8, 8, "padding")
    buffers[4][...] = False
    kernel.run(buffers, (1, 1, 3, 20))
    assert np.all(buffers[3] == 0) if safe else np.all(np.isnan(buffers[3]))


@pytest.mark.parametrize("safe", [True, False])
def test_without_keys_the_result_is_zero(safe: bool) -> None:
    for dims in (None, (1, 1, 3, 0)):
        buffers = arrays((1, 1, 3, 0), 8, 8, "")
        Kernel(compile_kernel(attention(8, 8, "", safe), dims)).run(buffers, (1, 1, 3, 0))
        assert np.all(buffers[3] == 0)


def test_a_nan_score_makes_its_row_nan_and_no_other() -> None:
    buffers = arrays((1, 1, 5, 20), 8, 8, "")
    buffers[0][0, 2, 0, 3] = np.nan
    Kernel(compile_kernel(attention(8, 8), None)).run(buffers, (1, 1, 5, 20))
    assert np.isnan(buffers[3][0, 2]).all() and np.isfinite(np.delete(buffers[3], 2, axis=1)).all()


@pytest.mark.parametrize("dims", [None, (2, 1, 40, 40)])
def test_a_row_that_sees_one_key_is_its_value(dims: tuple[int, ...] | None) -> None:
    buffers = arrays((2, 1, 40, 40), 8, 64, "causal")
    Kernel(compile_kernel(attention(8, 64, "causal"), dims)).run(buffers, (2, 1, 40, 40))
    np.testing.assert_allclose(buffers[3][:, 0], buffers[2][:, 0], rtol=3e-7)


@pytest.mark.parametrize("mask", ["", "causal"])
@pytest.mark.parametrize("k_len", [40, 1100])
def test_rows_of_scores_of_any_size(k_len: int, mask: str) -> None:
    spec, dims = attention(8, 32, mask), (1, 2, 40, k_len)
    buffers = arrays(dims, 8, 32, mask)
    buffers[0] *= 10.0 ** np.linspace(-3, 2.5, 40, dtype=np.float32)[:, None, None]
    results = []
    for known in (None, dims):
        buffers[3][...] = np.nan
        Kernel(compile_kernel(spec, known)).run(buffers, dims)
        results.append(buffers[3].copy())
    assert np.array_equal(*results)
    np.testing.assert_allclose(results[0], expected(buffers, mask), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("k_len", [20, 1100])
def test_the_least_number_added_to_all_scores_of_a_row_gives_keys_equal_weights(k_len: int) -> None:
    dims, least = (1, 1, 4, k_len), np.finfo(np.float32).min
    buffers = arrays(dims, 8, 8, "bias")
    buffers[4][0, 0], buffers[4][0, 1, :-3], buffers[4][0, 2, 3:], buffers[4][0, 3] = (
        least,
        least,
        least,
        -1e4,
    )
    Kernel(compile_kernel(attention(8, 8, "bias"), None)).run(buffers, dims)
    wanted = expected(buffers, "bias")
    wanted[0, 0, 0] = buffers[2][0, :, 0].mean(0)  # f32 drops what is added to the least number
    np.testing.assert_allclose(buffers[3][:, :3], wanted[:, :3], rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(buffers[3][:, 3], wanted[:, 3], atol=2e-3)  # of a score of -1e4: 1e-3


@pytest.mark.parametrize("offset", [20.0, 1e3, -1e5])
@pytest.mark.parametrize("k_len", [40, 1100])
def test_large_numbers_added_to_scores_are_rounded_once(k_len: int, offset: float) -> None:
    dims = (1, 1, 4, k_len)
    buffers = arrays(dims, 8, 8, "bias")
    for operand in buffers[:2]:
        operand[...] = np.round(operand)  # sums and scores are exact
    buffers[4] += np.float32(offset)
    Kernel(compile_kernel(attention(8, 8, "bias", scale=0.25), None)).run(buffers, dims)
    q, k, v = (x.transpose(0, 2, 1, 3) for x in buffers[:3])
    scores = (q @ k.transpose(0, 1, 3, 2) * np.float32(0.25) + buffers[4]).astype(np.float64)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = (weights / weights.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(buffers[3], wanted, rtol=2e-5, atol=2e-6)


def test_a_body_that_does_more_than_add_to_scores() -> None:
    plain = attention(8, 8, "bias")
    body = (*plain.softmax.body, s.Instr("tanh", "f32", (2,)), s.Instr("add", "f32", (3, 1)))
    for dims in ((1, 2, 17, 45), (1, 1, 15, 600)):
        buffers = arrays(dims, 8, 8, "bias")
        Kernel(compile_kernel(replace(plain, softmax=replace(plain.softmax, body=body)), None)).run(
            buffers, dims
        )
        got = buffers[3].copy()
        q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in buffers[:3])
        scores = np.exp(np.tanh(0.3 * (q @ k.transpose(0, 1, 3, 2)) + buffers[4]) + buffers[4])
        wanted = (scores / scores.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)


def test_weights_of_scores_far_below_the_greatest_are_zero() -> None:
    buffers = arrays((1, 1, 4, 20), 1, 16, "bias")
    buffers[4][0, :, 1:] -= np.array([80.0, 95.0, 200.0, 1e30], np.float32)[:, None]
    buffers[4][0, :, 0] = 0
    buffers[0][...] = 0
    buffers[2][0, 1:] = 1e38
    Kernel(compile_kernel(attention(1, 16, "bias"), None)).run(buffers, (1, 1, 4, 20))
    far = np.exp(buffers[4][0, 0, 1:].astype(np.float64)).sum() * 1e38
    np.testing.assert_allclose(buffers[3][0, 0, 0], buffers[2][0, 0, 0] + far, rtol=2e-5)
    assert np.array_equal(buffers[3][0, 1:, 0], np.broadcast_to(buffers[2][0, 0, 0], (3, 16)))


@pytest.mark.parametrize("dims", [None, (1, 2, 600, 40)])
def test_every_split_of_the_tiles_gives_the_same_bits(dims: tuple[int, ...] | None) -> None:
    kernel = Kernel(compile_kernel(attention(32, 32, "causal"), dims))
    buffers = arrays((1, 2, 600, 40), 32, 32, "causal")
    kernel.run(buffers, (1, 2, 600, 40))
    whole = buffers[3].copy()
    n = kernel.n_tiles((1, 2, 600, 40))
    assert n >= 4
    for ranges in ([(t, t + 1) for t in reversed(range(n))], [(n // 2, n), (0, n // 2)]):
        buffers[3][...] = np.nan
        kernel.run(buffers, (1, 2, 600, 40), ranges)
        assert np.array_equal(whole, buffers[3])


@pytest.mark.parametrize("schedule", ["6x16", "14x32", "6x64"])
def test_schedules_and_targets_give_the_same_bits(schedule: str) -> None:
    spec, dims = attention(40, 24, "bias"), (1, 2, 31, 45)
    buffers = arrays(dims, 40, 24, "bias")
    buffers[0][:, ::2] = 0  # scores are biases there, of any size
    buffers[4] *= 10.0 ** np.linspace(-12, 2, 31, dtype=np.float32)[:, None]
    Kernel(compile_kernel(spec, None)).run(buffers, dims)
    wanted = buffers[3].copy()
    for target in {"x86-64-v3", host_target()} if host_target().startswith("x86") else {host_target()}:
        buffers[3][...] = np.nan
        Kernel(compile_kernel(spec, dims, target, schedule=schedule)).run(buffers, dims)
        assert np.array_equal(wanted, buffers[3])


@pytest.mark.parametrize(
    ("v_dim", "wanted"),
    [(32, "14x32"), (33, "6x64"), (64, "6x64"), (96, "14x32"), (97, "6x64"), (Q, "14x32")],
)
def test_values_that_leave_a_panel_free_take_the_narrow_tile(v_dim: s.Size, wanted: str) -> None:
    assert choose_schedule(Function("kernel", [], register_bytes=2048), v_dim) == wanted
    assert choose_schedule(Function("kernel", [], register_bytes=512), v_dim) == "6x16"


def test_refusals_name_the_fix() -> None:
    with pytest.raises(ValueError, match="schedule '1x1' is unknown; known are 6x64, 14x32, 6x16"):
        compile_kernel(attention(8, 8), None, schedule="1x1")
