"""The row of Concat: several nests that fill one output."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from ...dependence import Launch
from ...evaluation import Evaluation
from ...spec_check import BodyCheck
from ..family import BufferAccess, Example, Family, body_accesses
from .concat import emit
from .spec import Concat


def _accesses(spec: Concat) -> Iterable[BufferAccess]:
    return chain.from_iterable(body_accesses(piece.body, piece.domain) for piece in spec.pieces)


def _evaluate(run: Evaluation, spec: Concat) -> None:
    for piece in spec.pieces:
        run.body(piece.body, run.loops(piece.domain))


def _check(spec: Concat) -> None:
    for i, piece in enumerate(spec.pieces):
        BodyCheck(spec, f"pieces[{i}].body", len(piece.domain)).check(piece.body)


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
