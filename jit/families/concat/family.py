"""The row of Concat: several nests that fill one output."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from ...decode import refuse
from ...dependence import Launch
from ...evaluation import Evaluation
from ...spec import BufferAccess, body_accesses
from ...spec_check import BodyCheck
from ..family import Example, Family
from .concat import emit
from .spec import Concat


def _accesses(spec: Concat) -> Iterable[BufferAccess]:
    return chain.from_iterable(body_accesses(piece.body, piece.domain) for piece in spec.pieces)


def _evaluate(run: Evaluation, spec: Concat) -> None:
    for piece in spec.pieces:
        run.body(piece.body, run.loops(piece.domain))


def _check(spec: Concat) -> None:
    n_outputs = sum(buffer.is_output for buffer in spec.buffers)
    if n_outputs != 1:
        raise refuse("buffers", n_outputs, "one output, beside the inputs")
    for i, piece in enumerate(spec.pieces):
        BodyCheck(spec, f"pieces[{i}].body", len(piece.domain)).check(piece.body)
        n_stores = sum(instr.op == "store" for instr in piece.body)
        if n_stores != 1:
            raise refuse(f"pieces[{i}].body", n_stores, "a body of one store")


def _follow(launch: Launch, spec: Concat) -> None:
    for piece in spec.pieces:
        launch.nest(piece.domain, piece.body)


EXAMPLES = (
    Example(
        """concat n_dims=3
  b0 f32[n0,5]
  b1 f32[n1,5]
  b2 f32[n2,5] output
  piece [n0,5]
  v0 = load f32 b0[i0,i1]
  v1 = store f32 v0 b2[i0,i1]
  piece [n1,5]
  v0 = load f32 b1[i0,i1]
  v1 = store f32 v0 b2[i0+n0,i1]""",
        (3, 4, 7),
    ),
)

FAMILY = Family(Concat, emit, _accesses, _evaluate, _check, _follow, EXAMPLES)
