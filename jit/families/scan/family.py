"""The row of Scan: running sums, products, extrema."""

from __future__ import annotations

from collections.abc import Iterable

from ...decode import refuse
from ...dependence import Launch
from ...evaluation import Evaluation
from ...spec import BufferAccess, body_accesses, whole
from ..family import Example, Family
from .reference import scan
from .scan import PLACES, RULES, body_of, emit
from .spec import Scan


def _accesses(spec: Scan) -> Iterable[BufferAccess]:
    yield from body_accesses(body_of(spec), (spec.rows, spec.length, spec.columns))
    yield from (whole(spec, places, ("i64",), is_written=True) for places in range(PLACES, len(spec.buffers)))


def _evaluate(run: Evaluation, spec: Scan) -> None:
    (x,) = run.inputs()
    run.set_outputs(*scan(x, spec.op))


def _check(spec: Scan) -> None:
    if spec.op not in RULES:
        raise refuse("op", spec.op, f"one of {', '.join(RULES)}")
    counts = (2, 3) if RULES[spec.op].has_places else (2,)
    if len(spec.buffers) not in counts or any(len(buffer.shape) != 3 for buffer in spec.buffers):
        raise refuse("buffers", len(spec.buffers), f"{' or '.join(map(str, counts))} of rank 3")


def _follow(launch: Launch, spec: Scan) -> None:
    launch.along((spec.rows, spec.length, spec.columns), 1, f"running {spec.op} over rows")


EXAMPLES = (
    Example(
        """scan n_dims=2 rows=n0 length=n1 columns=1 op="sum"
  b0 f32[n0,n1,1]
  b1 f32[n0,n1,1] output""",
        (3, 50),
    ),
    Example(
        """scan n_dims=2 rows=2 length=n0 columns=n1 op="max"
  b0 f32[2,n0,n1]
  b1 f32[2,n0,n1] output
  b2 i64[2,n0,n1] output""",
        (9, 21),
    ),
)

FAMILY = Family(Scan, emit, _accesses, _evaluate, _check, _follow, EXAMPLES)
