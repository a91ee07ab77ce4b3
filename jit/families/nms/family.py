"""The row of Nms: non-maximum suppression of boxes."""

from __future__ import annotations

from collections.abc import Iterable

from ...decode import refuse
from ...dependence import Launch
from ...evaluation import Evaluation
from ...spec_check import check_ranks
from ..family import BufferAccess, Example, Family
from .nms import CORNERS, KEPT, THRESHOLD, emit
from .reference import nms
from .spec import Nms


def _accesses(spec: Nms) -> Iterable[BufferAccess]:
    return ()  # `_check` has the shapes of the buffers


def _evaluate(run: Evaluation, spec: Nms) -> None:
    corners, threshold = run.inputs()
    run.set_outputs(nms(corners, float(threshold[0])))


def _check(spec: Nms) -> None:
    check_ranks(spec, 2, 1, 1)
    shapes = [list(buffer.shape) for buffer in spec.buffers]
    if shapes != [[4, spec.count], [1], [spec.count]]:
        raise refuse("buffers", shapes, "[4, count], [1] and [count]")
    for buffer, dtypes in ((CORNERS, ("f32", "f64")), (THRESHOLD, ("f64",)), (KEPT, ("bool",))):
        if spec.buffers[buffer].dtype not in dtypes:
            raise refuse(f"buffers[{buffer}].dtype", spec.buffers[buffer].dtype, " or ".join(dtypes))


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

FAMILY = Family(Nms, emit, _accesses, _evaluate, _check, _follow, EXAMPLES)
