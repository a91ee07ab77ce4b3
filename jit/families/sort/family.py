"""The row of Sort: the first elements of every row in order."""

from __future__ import annotations

from ...dependence import Launch
from ...evaluation import Evaluation
from ...spec_check import check_ranks
from ..family import Example, Family
from .reference import sort
from .sort import emit
from .spec import Sort, accesses


def _evaluate(run: Evaluation, spec: Sort) -> None:
    (x,) = run.inputs()
    run.set_outputs(*sort(x, run.size(spec.keep), spec.descending))


def _check(spec: Sort) -> None:
    check_ranks(spec, 2, 2, 2)


def _follow(launch: Launch, spec: Sort) -> None:
    launch.along((spec.rows, spec.length), 1, "sorts rows")


EXAMPLES = (
    Example(
        """sort n_dims=2 rows=n0 length=n1 keep=3 descending=true
  b0 f32[n0,n1]
  b1 f32[n0,3] output
  b2 i64[n0,3] output""",
        (4, 19),
    ),
)

FAMILY = Family(Sort, emit, accesses, _evaluate, _check, _follow, EXAMPLES)
