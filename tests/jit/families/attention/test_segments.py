"""Attention over segments: the bits of each segment alone, whatever the offsets hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.attention.reference import segment_bounds
from shapevm.jit.families.attention.spec import Attention, Extents, Layout, Segments, Softmax
from shapevm.jit.llvm.abi import CodeObject
from shapevm.jit.llvm.target import host_target
from shapevm.jit.reference import evaluate
from shapevm.jit.spec_reader import from_json

from ....guarded import guarded, is_untouched_beside
from ...lies import GuardedKernel
from .test_attention import ACC, attention

N_SEGMENTS, HEADS, LONGEST, TOKENS, OFFSETS = (s.Dim(i) for i in range(5))
LOOPS = tuple(s.Index(loop=i) for i in range(5))
LOW = s.Instr("const", "f32", value="-inf")
MASKS: dict[str, tuple[s.Instr, ...]] = {
    "": (),
    "keep": (
        ACC,
        s.Instr("load", "bool", buffer=5, index=LOOPS[1:4]),
        LOW,
        s.Instr("select", "f32", (1, 0, 2)),
    ),
    "bias": (ACC, s.Instr("load", "f32", buffer=5, index=LOOPS[1:4]), s.Instr("add", "f32", (0, 1))),
}
#: Lengths of segments, and the length of the longest that is declared.
LENGTHS: dict[str, tuple[list[int], int]] = {
    "one": ([13], 13),
    "many": ([1, 0, 7, 31, 2, 16, 17, 1, 0, 5, 61, 3], 64),
    "none has tokens": ([0, 0, 0], 5),
    "blocks of keys": ([313, 0, 1, 523, 1031], 1031),
    "blocks of keys for none": ([313, 40, 511], 2000),
}


def segmented(d: s.Size, dv: s.Size, mask: str = "", swapped: bool = False) -> Attention:
    """q, k and v are slices of one product [tokens, 3, heads, d], or, `swapped`, have the heads first."""
    rows = s.Buffer("f32", (HEADS, TOKENS, d) if swapped else (TOKENS, 3, HEADS, d))
    q, k, v = (
        (LOOPS[1], LOOPS[i], LOOPS[4]) if swapped else (LOOPS[i], s.Index(offset=part), LOOPS[1], LOOPS[4])
        for part, i in enumerate((2, 3, 3))
    )
    out = (LOOPS[1], LOOPS[2], LOOPS[4]) if swapped else (LOOPS[2], LOOPS[1], LOOPS[4])
    shape = (HEADS, TOKENS, dv) if swapped else (TOKENS, HEADS, dv)
    values = rows if dv == d else s.Buffer("f32", (*rows.shape[:-1], dv))
    buffers = [rows, rows, values, s.Buffer("f32", shape, is_output=True), s.Buffer("i64", (OFFSETS,))]
    if mask:
        buffers.append(s.Buffer("bool" if mask == "keep" else "f32", (HEADS, LONGEST, LONGEST)))
    return Attention(
        5,
        tuple(buffers),
        Extents((N_SEGMENTS, HEADS), LONGEST, LONGEST, d, dv),
        Layout(0, 1, 2, 3, q, k, v, out),
        Softmax(0.3, True, MASKS[mask]),
        Segments(4, TOKENS),
    )


def plain(d: s.Size, dv: s.Size, mask: str) -> Attention:
    """The attention of one segment alone, its rows [batch, length, heads, d]."""
    body = tuple(
        i if i.op != "load" else s.Instr("load", i.dtype, buffer=4, index=LOOPS[1:4]) for i in MASKS[mask]
    )
    found = attention(d, dv, "bias")
    dtype = "bool" if mask == "keep" else "f32"
    buffers = (*found.buffers[:4], *([s.Buffer(dtype, found.buffers[4].shape)] if mask else ()))
    return Attention(4, buffers, found.extents, found.layout, Softmax(0.3, True, body))


@cache
def generic(make: Callable[..., Attention], *given: Any) -> CodeObject:
    """Return the generic kernel of a spec."""
    return compile_kernel(make(*given), None)


def arrays(spec: Attention, dims: Sequence[int], offsets: Sequence[int]) -> list[np.ndarray]:
    """Return buffers of these sizes, what is to be written holding NaN."""
    rng = np.random.default_rng(3)
    found = []
    for buffer in spec.buffers:
        shape = [dims[size.index] if isinstance(size, s.Dim) else size for size in buffer.shape]
        random = rng.standard_normal(shape).astype(np.float32)
        found.append(rng.random(shape) < 0.7 if buffer.dtype == "bool" else random)
        if buffer.is_output:
            found[-1][...] = np.nan
    found[4] = np.array(offsets, np.int64)
    return found


def alone(kernel: Kernel, buffers: Sequence[np.ndarray], first: int, n: int) -> np.ndarray:
    """Return the result [n, heads, dv] of a segment of slices by the attention without segments."""
    q, k, v = (x[None, first : first + n, part] for part, x in enumerate(buffers[:3]))
    out = np.full((*q.shape[:-1], v.shape[-1]), np.nan, np.float32)
    given = [*map(np.ascontiguousarray, (q, k, v)), out]
    given += [np.ascontiguousarray(mask[:, :n, :n]) for mask in buffers[5:]]
    kernel.run(given, (1, q.shape[2], n, n))
    return out[0]


@pytest.mark.parametrize("case", LENGTHS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("d", "dv"), [(32, 32), (7, 33)])
def test_a_segment_has_the_bits_of_itself_alone(d: int, dv: int, mask: str, case: str) -> None:
    lengths, longest = LENGTHS[case]
    offsets, heads = np.cumsum([0, *lengths]), 2
    dims = (len(lengths), heads, longest, int(offsets[-1]), len(offsets))
    spec, one = segmented(d, dv, mask), Kernel(generic(plain, d, dv, mask))
    for code in (generic(segmented, d, dv, mask), compile_kernel(spec, dims)):
        buffers = arrays(spec, dims, offsets)
        Kernel(code).run(buffers, dims)
        for first, n in zip(offsets, lengths, strict=False):
            wanted = alone(one, buffers, first, n)
            assert np.array_equal(buffers[3][first : first + n], wanted), (first, n)


@pytest.mark.parametrize("schedule", ["6x16", "14x32", "6x64"])
def test_schedules_targets_and_splits_of_the_tiles_give_the_same_bits(schedule: str) -> None:
    lengths, longest = [3, 0, 600, 64, 1], 700
    offsets = np.cumsum([0, *lengths])
    spec, dims = segmented(40, 24, "bias"), (5, 2, longest, int(offsets[-1]), 6)
    buffers = arrays(spec, dims, offsets)
    Kernel(compile_kernel(spec, None)).run(buffers, dims)
    wanted = buffers[3].copy()
    for target in {"x86-64-v3", host_target()} if host_target().startswith("x86") else {host_target()}:
        kernel = Kernel(compile_kernel(spec, dims, target, schedule=schedule))
        n = kernel.n_tiles(dims)
        assert n == 5 * 2 * 2
        for ranges in ([(0, n)], [(t, t + 1) for t in reversed(range(n))], [(7, n), (0, 7), (3, 3)]):
            buffers[3][...] = np.nan
            kernel.run(buffers, dims, ranges)
            assert np.array_equal(wanted, buffers[3])


HUGE = 1 << 62
HOSTILE: dict[str, list[int]] = {
    "gaps": [5, 9, 20, 31],
    "longer than the longest": [0, 30, 37, 37],
    "descending": [37, 20, 10, 0],
    "up and down": [0, 10, 5, 12, 3, 30, -1, 37],
    "negative": [-5, -1, -HUGE, 3],
    "huge": [0, 7, HUGE, 2 * HUGE - 1],
    "lowest and highest": [-2 * HUGE, 2 * HUGE - 1],
    "behind the tokens": [38, 1000, 2000],
    "the same": [7, 7, 7],
    "one": [4],
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("case", HOSTILE)
def test_offsets_may_hold_anything(case: str, mask: str, swapped: bool) -> None:
    offsets, spec = HOSTILE[case], segmented(8, 24, mask, swapped)
    dims = (max(len(offsets) - 1, 1), 2, 9, 37, len(offsets))
    wanted = arrays(spec, dims, offsets)
    evaluate(spec, dims, wanted)
    found, codes = [], [generic(segmented, 8, 24, mask, swapped)]
    codes += [compile_kernel(spec, dims)] if mask == "keep" else []
    for at_end, code in product((True, False), codes):
        kernel = GuardedKernel(code)
        kernel.at_end = at_end
        pairs = zip(arrays(spec, dims, offsets), spec.buffers, strict=True)
        buffers = [guarded(array, at_end, is_read_only=not buffer.is_output) for array, buffer in pairs]
        kernel.run(buffers, dims)
        assert all(map(is_untouched_beside, buffers))
        np.testing.assert_allclose(buffers[3], wanted[3], rtol=2e-5, atol=2e-6)
        found.append(buffers[3].copy())
        n = kernel.n_tiles(dims)
        buffers[3][...] = np.nan
        kernel.run(buffers, dims, [(t, t + 1) for t in reversed(range(n))])
        found.append(buffers[3])
    assert all(np.array_equal(x, found[0]) for x in found)


def test_tokens_in_no_segment_give_zero() -> None:
    spec, dims = segmented(8, 8), (2, 1, 4, 20, 3)
    buffers = arrays(spec, dims, [3, 9, 12])
    Kernel(compile_kernel(spec, None)).run(buffers, dims)
    inside = [*range(3, 7), *range(9, 12)]
    assert np.all(np.delete(buffers[3], inside, axis=0) == 0) and np.all(buffers[3][inside] != 0)


def test_bounds_ascend_and_stay_within_the_tokens() -> None:
    assert list(segment_bounds(np.array([-3, 5, 2, 50]), 20, 8)) == [(0, 5), (5, 0), (5, 8)]
    assert list(segment_bounds(np.array([4]), 20, 8)) == []


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"offsets":4', '"offsets":9', "offsets is 9; it must be a buffer below 5"),
        ('"offsets":4', '"offsets":0', "offsets is 0; it must be a buffer of one axis"),
        ('"k_len":{"dim":2}', '"k_len":{"dim":1}', "q_len is 'n2'; it must be k_len"),
        ('"dtype":"i64"', '"dtype":"f64"', r"buffers\[4\].dtype is 'f64'; it must be i64"),
    ],
)
def test_specs_that_lie_are_refused(old: str, new: str, reason: str) -> None:
    text = s.to_json(segmented(8, 8))
    assert text.count(old) == 1
    with pytest.raises(ValueError, match=reason):
        compile_kernel(from_json(text.replace(old, new)), None)


def test_there_is_a_loop_over_segments() -> None:
    spec = segmented(8, 8)
    rows = s.Buffer("f32", (TOKENS, 8))
    buffers = (*(rows,) * 3, replace(rows, is_output=True), spec.buffers[4])
    queries, keys = (LOOPS[0], LOOPS[2]), (LOOPS[1], LOOPS[2])
    bare = replace(
        spec,
        buffers=buffers,
        extents=replace(spec.extents, batch=()),
        layout=Layout(0, 1, 2, 3, queries, keys, keys, queries),
    )
    with pytest.raises(ValueError, match=r"batch is \[\]; it must be the loop over segments, then"):
        from_json(s.to_json(bare))


def test_more_segments_than_offsets_are_refused_at_launch() -> None:
    spec = segmented(8, 8)
    kernel = Kernel(compile_kernel(spec, None))
    dims = (4, 1, 4, 20, 3)
    with pytest.raises(ValueError, match="indices 0 to 3 leave an axis of size 3"):
        kernel.run(arrays(spec, dims, [0, 9, 12]), dims)
