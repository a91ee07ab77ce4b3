"""The row of Nest: loops around a body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....vm.program import KernelKey
from ...dependence import Launch
from ...evaluation import Evaluation
from ...spec import BufferAccess, Nest, body_accesses
from ...spec_check import BodyCheck
from ..family import Example, Family
from .asking import LAYOUTS, VECTORS, WITHOUT_ASKING, changes_layout
from .nest import emit


def _schedules(spec: Nest, dims: KernelKey, target: str) -> tuple[str, ...]:
    return (VECTORS, WITHOUT_ASKING) if changes_layout(spec) else ()


def _preferred(spec: Nest, dims: KernelKey, target: str, tiles: Mapping[str, str]) -> str | None:
    return WITHOUT_ASKING if LAYOUTS in tiles and changes_layout(spec) else None


def _accesses(spec: Nest) -> Iterable[BufferAccess]:
    return body_accesses(spec.body, spec.domain)


def _evaluate(run: Evaluation, spec: Nest) -> None:
    run.body(spec.body, run.loops(spec.domain))


def _check(spec: Nest) -> None:
    BodyCheck(spec, "body", len(spec.domain)).check(spec.body)


def _follow(launch: Launch, spec: Nest) -> None:
    launch.nest(spec.domain, spec.body)


EXAMPLES = (
    Example(
        """nest n_dims=2 domain=[n0,n1]
  b0 f32[n0,n1]
  b1 f32[n1]
  b2 f32[n0,n1] output
  v0 = load f32 b0[i0,i1]
  v1 = load f32 b1[i1]
  v2 = add f32 v0 v1
  v3 = store f32 v2 b2[i0,i1]""",
        (3, 37),
    ),
    Example(
        """nest n_dims=2 domain=[n0,n1]
  b0 f32[n0,n1]
  b1 f32[n0] output
  v0 = load f32 b0[i0,i1]
  v1 = reduce.sum f32 v0
  v2 = store f32 v1 b1[i0]""",
        (5, 131),
    ),
    Example(
        """nest n_dims=3 domain=[n0,n1]
  b0 i64[n0]
  b1 f32[n2,n1]
  b2 f32[n0,n1] output
  v0 = load i64 b0[i0]
  v1 = load f32 b1[v0,i1]
  v2 = store f32 v1 b2[i0,i1]""",
        (4, 19, 7),
    ),
    Example(  # rows of a table in a product's panels (`compiler.lower.tying`)
        """nest n_dims=2 domain=[n0,n1]
  b0 i32[n0]
  b1 f32[2,n1,32]
  b2 f32[n0,n1] output
  v0 = load i32 b0[i0]
  v1 = checked i64 v0 v0 size=37
  v2 = const i64 value=5
  v3 = const i64 value=31
  v4 = shr i64 v1 v2
  v5 = and i64 v1 v3
  v6 = load f32 b1[v4,i1,v5]
  v7 = store f32 v6 b2[i0,i1]""",
        (5, 19),
    ),
)

FAMILY = Family(
    Nest, emit, _accesses, _evaluate, _check, _follow, EXAMPLES, schedules=_schedules, preferred=_preferred
)
