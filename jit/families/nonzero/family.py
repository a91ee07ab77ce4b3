"""The row of Nonzero: the indices where a mask holds."""

from __future__ import annotations

from ...dependence import Launch
from ...evaluation import Evaluation
from ...spec_check import check_ranks
from ..family import Example, Family
from .nonzero import emit
from .reference import nonzero
from .spec import Nonzero, accesses


def _evaluate(run: Evaluation, spec: Nonzero) -> None:
    (mask,) = run.inputs()
    run.set_outputs(nonzero(mask, run.size(spec.count)))


def _check(spec: Nonzero) -> None:
    check_ranks(spec, 1, 1)


def _follow(launch: Launch, spec: Nonzero) -> None:
    launch.along((spec.length,), 0, "numbers the rows where a mask holds")


EXAMPLES = (
    Example(
        """nonzero n_dims=2 length=n0 count=n1
  b0 bool[n0]
  b1 i64[n1] output""",
        (40, 25),
    ),
)

FAMILY = Family(Nonzero, emit, accesses, _evaluate, _check, _follow, EXAMPLES)
