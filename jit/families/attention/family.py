"""The row of Attention."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ....vm.program import KernelKey
from ...dependence import Launch, joined
from ...evaluation import Array, Evaluation, convert
from ...spec_check import BodyCheck, check_buffer
from ..family import BufferAccess, Example, Family, body_accesses
from .attention import emit
from .problem import TILES
from .spec import Attention


def _accesses(spec: Attention) -> Iterable[BufferAccess]:
    extents, layout = spec.extents, spec.layout
    outer = (*extents.batch, extents.q_len, extents.k_len)
    yield layout.q, layout.q_index, (*outer, extents.head_dim)
    yield layout.k, layout.k_index, (*outer, extents.head_dim)
    yield layout.v, layout.v_index, (*outer, extents.v_dim)
    yield layout.out, layout.out_index, (*outer, extents.v_dim)
    yield from body_accesses(spec.softmax.body, outer)


def _evaluate(run: Evaluation, spec: Attention) -> None:
    extents, layout, softmax = spec.extents, spec.layout, spec.softmax
    outer = (*extents.batch, extents.q_len, extents.k_len)
    loops = run.loops((*outer, extents.head_dim))
    q = run.load(layout.q, layout.q_index, loops, {}).astype(np.float64)  # [batch.., i, 1, d]
    k = run.load(layout.k, layout.k_index, loops, {}).astype(np.float64)  # [batch.., 1, j, d]
    score = (np.squeeze(q, -2) @ np.swapaxes(np.squeeze(k, -3), -1, -2) * softmax.scale).astype(np.float32)
    if softmax.body:
        score = run.body(softmax.body, run.loops(outer), score)[len(softmax.body) - 1]
    weights = _softmax(np.broadcast_to(score, [run.size(s) for s in outer]), softmax.safe_softmax)
    v_loops = run.loops((*outer, extents.v_dim))
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


def _follow(launch: Launch, spec: Attention) -> None:
    extents, layout = spec.extents, spec.layout
    launch.loops = launch.numbers(*extents.batch, extents.q_len, extents.k_len, extents.head_dim)
    i, j, d = range(len(extents.batch), len(extents.batch) + 3)
    q, k = launch.read(layout.q, layout.q_index), launch.read(layout.k, layout.k_index)
    score = launch.reduced("sum", joined([q, k]), d)
    weight = (launch.run(spec.softmax.body, score) or [score])[-1]
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
)

FAMILY = Family(Attention, emit, _accesses, _evaluate, _check, _follow, EXAMPLES, schedules=_schedules)
