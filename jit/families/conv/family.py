"""The row of Conv: a product whose rows are patches of an image."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from ....vm.program import KernelKey
from ...decode import refuse
from ...dependence import REGROUPED, Alike, Launch, Rows, Scalar
from ...evaluation import Evaluation, convert, from_memory
from ...spec import BufferAccess, whole
from ..family import Example, Family
from ..matmul import family as product
from ..matmul.layouts import layout_of
from ..matmul.matmul import dtypes_of_a
from ..matmul.schedules import SCHEDULES
from .conv import emit
from .depthwise import IMAGE_DTYPES, is_depthwise
from .reference import group_columns, patches
from .rows import channels_of, counts_of, known_count
from .spec import Conv

#: The sizes that `counts_of` compares, by field.
COUNTED = {
    "m": "rows, with its batch, as many as the images' outputs",
    "k": "steps of all groups, all taps of the channels",
}


def _accesses(spec: Conv) -> Iterable[BufferAccess]:
    yield whole(spec, spec.product.a, IMAGE_DTYPES if is_depthwise(spec) else dtypes_of_a(spec))
    yield from product.accesses(spec, reads_a=False, groups=spec.window.groups)


def _evaluate(run: Evaluation, spec: Conv) -> None:
    given = spec.product
    groups, n = spec.window.groups, run.size(given.n)
    image, weights = (from_memory(run.arrays[i], spec.buffers[i].dtype) for i in (given.a, given.b))
    image = np.moveaxis(image, 1, -1) if spec.planes else image
    columns = group_columns(weights, layout_of(spec), groups, run.size(given.k), n // groups)
    rows = patches(spec.window, [run.size(size) for size in spec.window.out], image)
    acc = np.moveaxis(rows.astype(np.float64) @ columns.astype(np.float64), 0, 1)
    acc = acc.reshape([*(run.size(size) for size in (*given.batch, given.m)), n])
    sums = convert(acc, "f64", layout_of(spec).sums)
    run.body(given.epilogue, run.loops((*given.batch, given.m, given.n)), sums)


def _check(spec: Conv) -> None:
    product.check(spec, is_patch=True)
    window, n_axes = spec.window, len(spec.window.out)
    for name in ("kernel", "stride", "dilation", "expansion", "low"):
        found = getattr(window, name)
        is_signed = name in ("low", "dilation")  # a transposed convolution goes backwards
        if len(found) != n_axes or any(abs(x) >= 1 << 31 or (x < 1 and not is_signed) for x in found):
            raise refuse(f"window.{name}", list(found), f"{n_axes} numbers, positive and below 2**31")
    if window.groups < 1 or not n_axes:
        raise refuse("window.groups", window.groups, "at least 1")
    given, image = spec.product, spec.buffers[spec.product.a].shape
    if len(image) != n_axes + 2:
        raise refuse("a", image, f"a buffer of {n_axes + 2} axes")
    for name, count in (("channels", channels_of(spec)), ("n", given.n)):
        if isinstance(count, int) and count % window.groups:
            raise refuse(name, count, f"a multiple of {window.groups}, the number of groups")
    for counts, (name, what) in zip(counts_of(spec), COUNTED.items(), strict=True):
        wanted, found = map(known_count, counts)
        if wanted is not None and found is not None and wanted != found:
            raise refuse(name, found, f"{wanted} {what}")


def _follow(launch: Launch, spec: Conv) -> None:
    given = spec.product
    launch.loops = launch.numbers(*given.batch, given.m, given.n, given.k)
    product.follow_product(launch, spec, _patches(launch, spec))


def _patches(launch: Launch, spec: Conv) -> Scalar:
    """Return the dependences of an element of A: its image."""
    tensor, n_rows = launch.tensors[spec.product.a], len(spec.product.batch) + 1
    layout = tensor.layout
    if not isinstance(layout, (Rows, Alike)):
        return launch.constant(spec.product.a, "an image")
    inner = layout.inner * (layout.count // launch.batch) if isinstance(layout, Alike) else layout.inner
    at = tensor.row_axis(inner, launch.batch)
    pixels = prod(launch.number(s).value for s in spec.window.out)
    if at is None or at[0] != 0 or any(map(launch.is_odd, tensor.sizes)):
        return Scalar().but("slides a window over rows")
    step = 1
    for loop in reversed(range(n_rows)):
        size, along = launch.loops[loop].value, at[1] * pixels
        if along % step == 0 and size % (launch.batch * (along // step)) == 0:
            return Scalar(frozenset({(loop, along // step)}), frozenset(range(n_rows)))
        step *= size
    return Scalar().but(REGROUPED)


def _schedules(spec: Conv, dims: KernelKey, target: str) -> tuple[str, ...]:
    if is_depthwise(spec):
        return ()
    return tuple(SCHEDULES) if spec.planes else product.schedules(spec, dims, target)


def _extensions(spec: Conv) -> tuple[str, ...]:
    return product.extensions(spec) if not spec.planes else ()


EXAMPLES = (
    Example(
        """conv n_dims=4 batch=[] m=n3 n=37 k=144 a=0 a_index=[] b=1 b_index=[] b_layout="panels" \
window=[n2,7];[3,3];[1,1];[1,1];[1,1];[1,1];1
  b0 f32[n0,n1,7,16]
  b1 f32[2,144,32]
  b2 f32[37]
  b3 f32[n3,37] output
  v0 = acc f32
  v1 = load f32 b2[i1]
  v2 = add f32 v0 v1
  v3 = const f32 value=0.0
  v4 = maximum f32 v2 v3
  v5 = store f32 v4 b3[i0,i1]""",
        (2, 9, 9, 126),
    ),
)

FAMILY = Family(
    Conv, emit, _accesses, _evaluate, _check, _follow, EXAMPLES, schedules=_schedules, extensions=_extensions
)
