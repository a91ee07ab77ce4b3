"""The row of Search: where values would go in sorted rows."""

from __future__ import annotations

from ...dependence import Launch
from ...evaluation import Evaluation
from ...spec_check import check_ranks
from ..family import Example, Family
from .reference import search
from .search import emit
from .spec import Search, accesses


def _evaluate(run: Evaluation, spec: Search) -> None:
    rows, values = run.inputs()
    run.set_outputs(search(rows, values, spec.right))


def _check(spec: Search) -> None:
    check_ranks(spec, 2, 2, 2)


def _follow(launch: Launch, spec: Search) -> None:
    launch.along((spec.rows, spec.length), 1, "searches among rows")


EXAMPLES = (
    Example(
        """search n_dims=3 rows=n0 length=n1 count=n2 right=false
  b0 f32[1,n1]
  b1 f32[n0,n2]
  b2 i64[n0,n2] output""",
        (2, 30, 17),
    ),
)

FAMILY = Family(Search, emit, accesses, _evaluate, _check, _follow, EXAMPLES)
