"""The row of RoiAlign: regions of images, sampled to one size."""

from __future__ import annotations

import math

from ...decode import refuse
from ...dependence import Launch
from ...evaluation import Evaluation
from ...spec_check import check_ranks
from ..family import Example, Family
from .reference import MAX_SAMPLES, roi_align
from .roi_align import BINS, emit
from .spec import RoiAlign, accesses


def _evaluate(run: Evaluation, spec: RoiAlign) -> None:
    images, regions = run.inputs()
    rows, columns = (run.size(size) for size in spec.buffers[BINS].shape[1:3])
    run.set_outputs(roi_align(images, regions, (rows, columns), spec.scale, spec.samples, spec.aligned))


def _check(spec: RoiAlign) -> None:
    check_ranks(spec, 4, 2, 4)
    images, regions, bins = (buffer.shape for buffer in spec.buffers)
    if regions[1] != 5 or bins[0] != regions[0] or bins[3] != images[3]:
        shapes = [list(buffer.shape) for buffer in spec.buffers]
        raise refuse(
            "buffers",
            shapes,
            "[batch, height, width, channels], [count, 5], [count, rows, columns, channels]",
        )
    if not 0 <= spec.samples <= MAX_SAMPLES:
        raise refuse("samples", spec.samples, f"from 0 to {MAX_SAMPLES}")
    if not math.isfinite(spec.scale):
        raise refuse("scale", spec.scale, "a finite number")


def _follow(launch: Launch, spec: RoiAlign) -> None:
    launch.altogether("takes regions of images by number")


EXAMPLES = tuple(
    Example(
        f"""roi_align n_dims=5 scale={scale} samples={samples} aligned={str(aligned).lower()}
  b0 {dtype}[n0,n1,n2,n3]
  b1 {dtype}[n4,5]
  b2 {dtype}[n4,2,3,n3] output""",
        (3, 6, 5, 19, 4),
    )
    for dtype, scale, samples, aligned in (
        ("f32", 0.5, 2, False),
        ("f32", 2.5, 0, True),
        ("f64", 1.0, 0, False),
    )
)

FAMILY = Family(RoiAlign, emit, accesses, _evaluate, _check, _follow, EXAMPLES)
