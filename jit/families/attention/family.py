"""The row of Attention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ....vm.program import KernelKey
from ...decode import refuse
from ...dependence import COUNTED, Launch, joined
from ...evaluation import Array, Evaluation, convert
from ...spec import BufferAccess, body_accesses
from ...spec_check import BodyCheck, check_buffer
from ..family import Example, Family
from .attention import emit
from .problem import TILES
from .reference import segment_bounds
from .spec import Attention, accesses, offsets_access


def _accesses(spec: Attention) -> Iterable[BufferAccess]:
    yield from accesses(spec)
    if spec.is_segmented:
        yield offsets_access(spec)
    yield from body_accesses(spec.softmax.body, spec.positions)


def _evaluate(run: Evaluation, spec: Attention) -> None:
    if not spec.is_segmented:
        lines = [np.arange(run.size(size)) for size in spec.positions]
        _attend(run, spec, lines, lines)
        return
    extents, layout = spec.extents, spec.layout
    tokens, longest = run.size(spec.segments.tokens), run.size(extents.q_len)
    run.store(layout.out, layout.out_index, run.loops(accesses(spec).out.loops), {}, np.float32(0))
    heads = [np.arange(run.size(size)) for size in extents.batch[1:]]
    bounds = segment_bounds(run.arrays[spec.segments.offsets], tokens, longest)
    for segment, (first, length) in enumerate(bounds):
        outer, within = [np.array([segment]), *heads], np.arange(length)
        _attend(run, spec, [*outer, first + within, first + within], [*outer, within, within])


def _attend(run: Evaluation, spec: Attention, rows: Sequence[Array], positions: Sequence[Array]) -> None:
    """Evaluate at the values `rows` of loops batch.., i, j; `positions`: theirs in the body."""
    extents, layout, softmax = spec.extents, spec.layout, spec.softmax
    loops = list(np.ix_(*rows, np.arange(run.size(extents.head_dim))))
    q = run.load(layout.q, layout.q_index, loops, {}).astype(np.float64)  # [batch.., i, 1, d]
    k = run.load(layout.k, layout.k_index, loops, {}).astype(np.float64)  # [batch.., 1, j, d]
    score = (np.squeeze(q, -2) @ np.swapaxes(np.squeeze(k, -3), -1, -2) * softmax.scale).astype(np.float32)
    if softmax.body:
        score = run.body(softmax.body, list(np.ix_(*positions)), score)[len(softmax.body) - 1]
    weights = _softmax(np.broadcast_to(score, [line.size for line in positions]), softmax.safe_softmax)
    v_loops = list(np.ix_(*rows, np.arange(run.size(extents.v_dim))))
    v = np.squeeze(run.load(layout.v, layout.v_index, v_loops, {}), -3).astype(np.float64)  # [batch.., j, d]
    out = np.expand_dims(weights @ v, -2)  # [batch.., i, 1, d]
    run.store(layout.out, layout.out_index, v_loops, {}, convert(out, "f64", spec.buffers[layout.out].dtype))


def _softmax(score: Array, safe: bool) -> Array:
    """Return softmax over the last axis in f64; rows all -inf are NaN, or 0 if `safe`."""
    score = score.astype(np.float64)
    with np.errstate(invalid="ignore"):
        top = np.max(score, axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(score - top)
        total = np.sum(weights, axis=-1, keepdims=True)
        result = weights / total
    return np.where(np.isneginf(top), 0.0, result) if safe else result


def _check(spec: Attention) -> None:
    n_loops = len(spec.extents.batch) + 3
    for name in ("q", "k", "v", "out"):
        rank, index = check_buffer(spec, name), f"{name}_index"
        BodyCheck(spec, name, n_loops).check_index(getattr(spec.layout, index), rank, index)
    BodyCheck(spec, "body", n_loops - 1).check(spec.softmax.body, has_acc=True, has_stores=False)
    if spec.is_segmented:
        _check_segments(spec)


def _check_segments(spec: Attention) -> None:
    extents = spec.extents
    if check_buffer(spec, "offsets") != 1:
        raise refuse("offsets", spec.segments.offsets, "a buffer of one axis")
    if not extents.batch:
        raise refuse("batch", [], "the loop over segments, then those over heads")
    if extents.q_len != extents.k_len:
        raise refuse("q_len", str(extents.q_len), "k_len, since queries and keys are the same tokens")


def _follow(launch: Launch, spec: Attention) -> None:
    extents, layout = spec.extents, spec.layout
    launch.loops = launch.numbers(*accesses(spec).q.loops)
    i, j, d = range(len(extents.batch), len(extents.batch) + 3)
    q, k = launch.read(layout.q, layout.q_index), launch.read(layout.k, layout.k_index)
    score = launch.reduced("sum", joined([q, k]), d)
    if spec.is_segmented:  # which tokens see each other depends on the offsets, and on the longest length
        score = joined([score, launch.read(spec.segments.offsets, offsets_access(spec).index)])
        score = score.but(COUNTED) if launch.number(extents.q_len).varies else score
    rows, launch.loops[i : j + 1] = launch.loops[i : j + 1], launch.numbers(extents.q_len, extents.k_len)
    weight = (launch.run(spec.softmax.body, score) or [score])[-1]
    launch.loops[i : j + 1] = rows
    launch.loops[d] = launch.numbers(extents.v_dim)[0]
    value = launch.read(layout.v, layout.v_index)
    out = launch.reduced("softmax", launch.reduced("sum", joined([weight, value]), j), j)
    launch.write(layout.out, layout.out_index, out.along(i, d))


def _schedules(spec: Attention, dims: KernelKey, target: str) -> tuple[str, ...]:
    return tuple(TILES)


EXAMPLES = (
    Example(
        """attention n_dims=4 batch=[n0,n1] q_len=n2 k_len=n3 head_dim=16 v_dim=16 q=0 k=1 v=2 out=3 \
q_index=[i0,i2,i1,i4] k_index=[i0,i3,i1,i4] v_index=[i0,i3,i1,i4] out_index=[i0,i2,i1,i4] scale=0.3 \
safe_softmax=true
  b0 f32[n0,n2,n1,16]
  b1 f32[n0,n3,n1,16]
  b2 f32[n0,n3,n1,16]
  b3 f32[n0,n2,n1,16] output""",
        (2, 3, 11, 37),
    ),
    Example(
        """attention n_dims=5 batch=[n0,n1] q_len=n2 k_len=n2 head_dim=16 v_dim=16 q=0 k=1 v=2 out=3 \
q_index=[i2,i1,i4] k_index=[i3,i1,i4] v_index=[i3,i1,i4] out_index=[i2,i1,i4] scale=0.3 safe_softmax=true \
offsets=4 tokens=n3
  b0 f32[n3,n1,16]
  b1 f32[n3,n1,16]
  b2 f32[n3,n1,16]
  b3 f32[n3,n1,16] output
  b4 i64[n4]
  b5 f32[n1,n2,n2]
  v0 = acc f32
  v1 = load f32 b5[i1,i2,i3]
  v2 = add f32 v0 v1""",
        (6, 3, 4, 37, 7),
    ),
)

FAMILY = Family(Attention, emit, _accesses, _evaluate, _check, _follow, EXAMPLES, schedules=_schedules)
