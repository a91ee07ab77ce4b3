"""The row of Nms: non-maximum suppression of boxes."""

from __future__ import annotations

from ...dependence import Launch
from ...evaluation import Evaluation
from ...spec_check import check_ranks
from ..family import Example, Family
from .nms import emit
from .reference import nms
from .spec import Nms, accesses


def _evaluate(run: Evaluation, spec: Nms) -> None:
    corners, threshold = run.inputs()
    run.set_outputs(nms(corners, float(threshold[0])))


def _check(spec: Nms) -> None:
    check_ranks(spec, 2, 1, 1)


def _follow(launch: Launch, spec: Nms) -> None:
    launch.altogether("compares boxes")


EXAMPLES = tuple(
    Example(
        f"""nms n_dims=1 count=n0
  b0 {dtype}[4,n0]
  b1 f64[1]
  b2 bool[n0] output""",
        (count,),
    )
    for dtype, count in (("f32", 37), ("f64", 16))
)

FAMILY = Family(Nms, emit, accesses, _evaluate, _check, _follow, EXAMPLES)
