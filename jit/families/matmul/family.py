"""The row of Matmul: a product of matrices with a prologue and an epilogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import numpy as np

from ....vm.program import KernelKey
from ...decode import refuse
from ...dependence import Launch, Scalar, joined
from ...evaluation import Array, Evaluation, convert, from_memory, round_values
from ...llvm.abi import resolve
from ...llvm.dtypes import DTYPES
from ...llvm.function import least, most
from ...llvm.target import find_target
from ...spec import BufferAccess, KernelSpec, Size, at_loops, body_accesses
from ...spec_check import BodyCheck, check_buffer
from ..family import Example, Family
from .gemv import LEAST_STEPS, MAX_ROWS
from .layouts import layout_of
from .matmul import check_steps, dtypes_of_a, emit, extensions, fitting_schedules
from .problem import fits_tiles, grouped_of, is_f32_panels, unread_sizes, widened_dtype
from .schedules import PANEL, TILES_IN_PLACE, WITHOUT_ASKING
from .spec import Matmul, ProductSpec
from .sums import ACCURATE_CHAIN, CHAIN, in_shorts
from .tile_choice import STREAMS, class_of, name_of_class, name_of_weights

LEAST_ROWS = 14  # this few rows are one row tile, or gemv
STREAMED_BYTES = 1 << 20  # of a weight that comes from memory
CHAINS = (0, ACCURATE_CHAIN, CHAIN)


def accesses(spec: ProductSpec, reads_a: bool = True, groups: int = 1) -> Iterable[BufferAccess]:
    """Yield a product's accesses; `reads_a`: A is read by its index. `groups`: of columns, each in separate
    panels."""
    given = spec.product
    loops = (*given.batch, given.m, given.n, given.k)
    if reads_a and not given.prologue:
        yield BufferAccess(given.a, given.a_index, loops, dtypes_of_a(spec))
    yield from body_accesses(given.prologue, loops)
    yield _weights(spec, loops, groups)
    yield from body_accesses(given.epilogue, loops[:-1])


def _weights(spec: ProductSpec, loops: tuple[Size, ...], groups: int) -> BufferAccess:
    """Return a product's accesses to B."""
    check_steps(spec)
    given, shape, layout = spec.product, spec.buffers[spec.product.b].shape, layout_of(spec)
    dtypes = layout.dtypes
    if layout.in_place:
        return BufferAccess(given.b, given.b_index, loops, dtypes)
    if layout.planes:
        return at_loops(given.b, shape, dtypes)  # `_is_grouped` has checked it
    assert isinstance(given.n, int)
    n_panels = groups * -(-(given.n // groups) // PANEL)
    if isinstance(given.k, int):
        what = f"panels of {given.n} columns and {given.k} steps"
        return BufferAccess(given.b, (), (), dtypes, packed=n_panels * PANEL * given.k, what=what)
    return at_loops(given.b, (n_panels, given.k, PANEL), dtypes)


def _evaluate(run: Evaluation, spec: ProductSpec) -> None:
    given, layout = spec.product, layout_of(spec)
    loops = run.loops((*given.batch, given.m, given.n, given.k))
    a = np.squeeze(_lhs(run, spec, loops), -2)  # [batch.., m, k]
    a = round_values(a, layout.a) if layout.a == "bf16" else a
    if (groups := grouped_of(spec)) is not None and groups.in_shorts:
        a = in_shorts(a, groups.steps)
    if layout.in_place:
        b = np.squeeze(run.load(given.b, given.b_index, loops, {}), -3)  # [batch.., n, k]
    else:
        b = layout.unpack(run.arrays[given.b], run.size(given.k), run.size(given.n)).T
        b = b if layout.planes else from_memory(b, spec.buffers[given.b].dtype)
    if layout.sums == "i32":
        acc = a.astype(np.int64) @ b.T.astype(np.int64)
        run.body(given.epilogue, run.loops((*given.batch, given.m, given.n)), convert(acc, "i64", "i32"))
        return
    acc = a.astype(np.float64) @ np.swapaxes(b, -1, -2).astype(np.float64)
    dtype = "f64" if spec.buffers[given.b].dtype == "f64" else "f32"
    run.body(given.epilogue, run.loops((*given.batch, given.m, given.n)), convert(acc, "f64", dtype))


def _lhs(run: Evaluation, spec: ProductSpec, loops: list[Array]) -> Array:
    """Return A [batch.., m, 1, k], read or computed by the prologue."""
    given = spec.product
    if not given.prologue:
        return run.load(given.a, given.a_index, loops, {})
    a = run.body(given.prologue, loops)[len(given.prologue) - 1]
    return np.broadcast_to(a, (*a.shape[:-1], run.size(given.k)))


def check(spec: ProductSpec, is_patch: bool = False) -> None:
    """Check a product; `is_patch`: A has no index, its rows are patches of an image."""
    given, layout = spec.product, layout_of(spec)
    n_loops = len(given.batch) + 3
    if given.chain not in (CHAINS if layout.has_chain and not is_patch else (0,)):
        what = "0, 16 or 32; 0 in a convolution and for weights in quads, pairs or groups"
        raise refuse("chain", given.chain, what)
    if isinstance(spec, Matmul) and spec.skips_zeros and not layout.is_plain:
        raise refuse("skips_zeros", True, "false but for a weight in panels")
    BodyCheck(spec, "epilogue", n_loops - 1).check(given.epilogue, has_acc=True)
    loops = BodyCheck(spec, "prologue", n_loops)
    loops.check(given.prologue, has_stores=False)
    if given.prologue and (given.a, given.a_index) != (-1, ()):
        raise refuse("a", given.a, "-1 beside a prologue")
    if not given.prologue:
        rank = check_buffer(spec, "a")
        loops.check_index(given.a_index, 0 if is_patch else rank, "a_index")
    rank = check_buffer(spec, "b")
    loops.check_index(given.b_index, rank if layout.in_place else 0, "b_index")
    if not layout.in_place and not isinstance(given.n, int):
        raise refuse("b_layout", layout.name, "rows, but for a known number of columns")
    if layout.planes and (is_patch or not _is_grouped(spec)):
        raise refuse(
            "b", spec.buffers[given.b].shape, "u8[ceil(n / 32), groups, bytes of a group] of a matmul"
        )


def _is_grouped(spec: ProductSpec) -> bool:
    """Whether B's shape is that of all columns' groups."""
    shape, n = spec.buffers[spec.product.b].shape, spec.product.n
    has_columns = isinstance(n, int) and len(shape) == 3 and shape[0] == -(-n // PANEL)
    return has_columns and grouped_of(spec) is not None


def _follow(launch: Launch, spec: ProductSpec) -> None:
    given = spec.product
    launch.loops = launch.numbers(*given.batch, given.m, given.n, given.k)
    a = launch.run(given.prologue)[-1] if given.prologue else launch.read(given.a, given.a_index)
    follow_product(launch, spec, a)


def follow_product(launch: Launch, spec: ProductSpec, a: Scalar) -> None:
    """Analyse B, the sums and the epilogue of a product, given the dependences of an element of A."""
    given = spec.product
    is_read = layout_of(spec).in_place
    b = launch.read(given.b, given.b_index) if is_read else launch.constant(given.b, "weights")
    sums = launch.reduced("sum", joined([a, b]), len(launch.loops) - 1)
    launch.loops = launch.loops[:-1]
    launch.run(given.epilogue, sums.along(len(launch.loops) - 1))


def schedules(spec: ProductSpec, dims: KernelKey, target: str) -> tuple[str, ...]:
    """Return the schedules to tune among."""
    m = resolve(spec.product.m, unread_sizes(spec, dims))
    return fitting_schedules(find_target(target).extension == "amx" and fits_tiles(spec, m))


def all_schedules(spec: Matmul, dims: KernelKey, target: str) -> tuple[str, ...]:
    """Return the schedules of a Matmul to tune among."""
    names = schedules(spec, dims, target)
    top = most(resolve(spec.product.m, unread_sizes(spec, dims)))
    if may_be_in_place(spec, dims, target):
        return (*names, *(f"{name}{ending}" for ending in TILES_IN_PLACE for name in names))
    if top is None or top > MAX_ROWS or not may_be_few(spec, dims):
        return names
    return (*names, *(f"{name}{WITHOUT_ASKING}" for name in names))


def may_be_few(spec: ProductSpec, dims: KernelKey) -> bool:
    """Whether code for `dims` may have rows so few that they read a weight's streams."""
    given = spec.product
    is_one = isinstance(spec, Matmul) and not layout_of(spec).in_place and not given.batch
    if not is_one or not isinstance(given.k, int) or given.k < LEAST_STEPS:
        return False
    return least(resolve(given.m, unread_sizes(spec, dims))) <= MAX_ROWS


def reads_streams(spec: KernelSpec, dims: KernelKey) -> bool:
    """Whether a kernel's weight is large enough to come from memory, and it has few rows, or may have few and
    uses limbs, for which explicit prefetching costs most."""
    if not isinstance(spec, Matmul) or not may_be_few(spec, dims):
        return False
    top = most(resolve(spec.product.m, unread_sizes(spec, dims)))
    b = spec.buffers[spec.product.b]
    sizes = [size for size in b.shape if isinstance(size, int)]
    n_bytes = DTYPES[b.dtype].bytes * prod(sizes)
    is_few = top is not None and top <= MAX_ROWS
    return (is_few or layout_of(spec).in_limbs) and n_bytes >= STREAMED_BYTES


def preferred(spec: ProductSpec, dims: KernelKey, target: str, tiles: Mapping[str, str]) -> str | None:
    """Return the schedule that was measured fastest: the register tile for weights like the measured ones,
    whether narrow weights are read in place, and whether few rows prefetch."""
    name = _preferred_tile(spec, dims, target, tiles) or ""
    ending = f"-{tiles.get(name_of_weights(widened_dtype(spec)))}"
    if ending in TILES_IN_PLACE and may_be_in_place(spec, dims, target):
        name += ending
    if STREAMS in tiles and may_be_few(spec, dims):
        name += WITHOUT_ASKING
    return name or None


def may_be_in_place(spec: ProductSpec, dims: KernelKey, target: str) -> bool:
    """Whether code for `dims` may have several row tiles that each widen a weight as it is read."""
    m, n = resolve(spec.product.m, unread_sizes(spec, dims)), spec.product.n
    top, has_tiles = most(m), find_target(target).extension == "amx" and fits_tiles(spec, m)
    is_wide = isinstance(n, int) and n > 2 * PANEL
    is_plain = isinstance(spec, Matmul) and widened_dtype(spec) != "" and not has_tiles
    return is_plain and is_wide and (top is None or top > LEAST_ROWS)


def _preferred_tile(spec: ProductSpec, dims: KernelKey, target: str, tiles: Mapping[str, str]) -> str | None:
    """Return the register tile that was measured fastest, for weights like the measured ones."""
    given = spec.product
    is_alike = is_f32_panels(spec) and isinstance(given.n, int) and given.n > 2 * PANEL
    top = most(resolve(given.m, unread_sizes(spec, dims)))
    if not is_alike or (top is not None and top <= LEAST_ROWS):
        return None
    tile = tiles.get(name_of_class(top, given.k) if isinstance(given.k, int) else class_of(top))
    return tile if tile in schedules(spec, dims, target) else None


EXAMPLES = (
    Example(
        """matmul n_dims=1 batch=[] m=n0 n=40 k=24 a=0 a_index=[i0,i2] b=1 b_index=[] b_layout="panels"
  b0 f32[n0,24]
  b1 f32[2,24,32]
  b2 f32[n0,40] output
  v0 = acc f32
  v1 = const f32 value=0.0
  v2 = maximum f32 v0 v1
  v3 = store f32 v2 b2[i0,i1]""",
        (17,),
    ),
    Example(
        """matmul n_dims=3 batch=[n0] m=n1 n=n2 k=20 a=0 a_index=[i0,i1,i3] b=1 b_index=[i0,i3,i2] \
b_layout="rows"
  b0 f32[n0,n1,20]
  b1 f32[n0,20,n2]
  b2 f32[n0,n1,n2] output
  v0 = acc f32
  v1 = store f32 v0 b2[i0,i1,i2]""",
        (2, 7, 33),
    ),
)

FAMILY = Family(
    Matmul,
    emit,
    accesses,
    _evaluate,
    check,
    _follow,
    EXAMPLES,
    schedules=all_schedules,
    preferred=preferred,
    extensions=extensions,
)
