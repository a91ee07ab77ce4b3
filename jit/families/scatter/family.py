"""The row of Scatter: updates at indices, in order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from ...decode import refuse
from ...dependence import CHOSEN, Launch, Scalar, joined
from ...evaluation import Evaluation, round_values
from ...spec import BufferAccess, Index, body_accesses, whole
from ..family import Example, Family
from .reference import scatter
from .scatter import BASE, INDEX, OUT, SOURCE, body_of, copy_of, emit
from .spec import SCATTER_MODES, Scatter


def _accesses(spec: Scatter) -> Iterable[BufferAccess]:
    yield from body_accesses(copy_of(spec), spec.buffers[OUT].shape)
    yield from body_accesses(body_of(spec), spec.updates)
    yield whole(spec, INDEX, ("i64", "i32"))
    yield from (whole(spec, buffer, (spec.buffers[OUT].dtype,)) for buffer in (BASE, SOURCE))


def _evaluate(run: Evaluation, spec: Scatter) -> None:
    base, *rest = run.inputs()
    updates = [run.size(size) for size in spec.updates]
    index, source = (np.broadcast_to(array, updates) for array in rest)
    out = spec.buffers[OUT]
    base = np.broadcast_to(base, [run.size(size) for size in out.shape])
    rounded = partial(round_values, dtype=out.dtype)
    run.set_outputs(scatter(base, index, source, spec.axis, spec.mode, rounded))


def _check(spec: Scatter) -> None:
    rank = len(spec.updates)
    if len(spec.buffers) != 4 or any(len(buffer.shape) != rank for buffer in spec.buffers):
        raise refuse("buffers", len(spec.buffers), f"four of rank {rank}: base, index, source, out")
    if not 0 <= spec.axis < rank:
        raise refuse("axis", spec.axis, f"below {rank}")
    if spec.mode not in SCATTER_MODES:
        raise refuse("mode", spec.mode, f"one of {', '.join(SCATTER_MODES)}")


def _follow(launch: Launch, spec: Scatter) -> None:
    launch.loops = launch.numbers(*spec.buffers[OUT].shape)
    every = tuple(Index(loop=a) for a in range(len(launch.loops)))
    launch.write(OUT, every, launch.read(BASE, launch.spread(BASE)))
    launch.loops = launch.numbers(*spec.updates)
    values = [launch.read(buffer, launch.spread(buffer)) for buffer in (INDEX, SOURCE)]
    if launch.holds_rows(spec.axis) or launch.tensors[OUT].sizes[spec.axis].varies:
        values.append(Scalar().but(CHOSEN))
    launch.write(OUT, every, joined(values).along(spec.axis))


EXAMPLES = (
    Example(
        """scatter n_dims=3 updates=[n1,n2] axis=0 mode="sum"
  b0 f32[n0,n2]
  b1 i64[n1,1]
  b2 f32[n1,n2]
  b3 f32[n0,n2] output""",
        (6, 9, 20),
    ),
)

FAMILY = Family(Scatter, emit, _accesses, _evaluate, _check, _follow, EXAMPLES)
