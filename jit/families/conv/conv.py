"""The Conv family: a product whose rows of A are patches of an image.

A block of rows is a range of outputs across images and lines, so narrow images fill register tiles like wide
ones. Patches are read in place (`indirection`) or, if an image is expanded or rows must be whole, copied into
scratch a block at a time (`patches`). Nothing is padded in memory: elements outside of the image are read as
zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ...llvm.abi import Generated, Generator, check_schedule, resolve
from ...llvm.function import Function, Int
from ...loops.bodies import LANES
from ..family import Variant, first_fitting
from ..matmul import variants
from ..matmul.chunks import Pieces
from ..matmul.layouts import layout_of
from ..matmul.matmul import check_operands, choose_schedule, fitting_schedules
from ..matmul.problem import Problem, may_use_tiles, problem_of
from ..matmul.product import Emission, Product
from ..matmul.schedules import SCHEDULES, Schedule
from . import by_taps, depthwise, padded, planes, winograd, winograd_bytes
from .depthwise import is_depthwise
from .indirection import Indirection, fits_indirection
from .patches import Patches
from .pixels import geometry_of
from .rows import where_equal
from .spec import Conv


def emit(f: Function, spec: Conv, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Conv; see `abi.Generator`. Schedules: those of `schedules`."""
    _check_window(spec)
    generated: list[Generated] = []
    generator = first_fitting(VARIANTS, spec).emit
    where_equal(f, spec, sizes, lambda: generated.append(generator(f, spec, sizes, schedule)))
    return generated[0]


def _emit_product(f: Function, spec: Conv, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Conv as a product of its patches and the weights, or at points if that is
    faster."""
    if winograd_bytes.fits(f, spec, sizes):
        check_operands(spec)
        return winograd_bytes.emit(f, spec, sizes, schedule)
    m = resolve(spec.product.m, sizes)
    name = schedule or choose_schedule(f, spec, m)
    check_schedule("conv", name, fitting_schedules(may_use_tiles(f, spec, m)))
    check_operands(spec)
    return _emit_kernel(product_of(f, spec, patch_problem(f, spec, sizes, SCHEDULES[name])), name)


def _emit_for_points(f: Function, spec: Conv, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Conv whose weights are packed for Winograd's: by taps if images are small. Generic
    code has both."""
    winograd.check(spec)
    is_small = not winograd.is_plain(spec.window) or winograd.is_small(f, spec, sizes)
    if is_small is False:
        return winograd.emit(f, spec, sizes, schedule)
    rows = resolve(spec.product.m, sizes) if is_small is True else winograd.n_tiles(f, spec, sizes)
    name = schedule or choose_schedule(f, spec, rows)
    check_schedule("conv", name, fitting_schedules(may_use_tiles(f, spec, rows)))
    problem = patch_problem(f, spec, sizes, SCHEDULES[name], together=LANES)
    if is_small is True:
        return _emit_kernel(by_taps.alone(f, spec, problem), name)
    few = by_taps.beside(f, spec, problem)
    at_points = winograd.at_points(f, spec, sizes, SCHEDULES[name])
    generated = at_points.generated(name)
    least = few.emission.scratch.sums_bytes + sum(count for count, _ in few.lhs.scratch())
    f.either(is_small, lambda: by_taps.emit_shares(few, generated), at_points.emit_tiles)
    assert generated.work.scratch[0] >= (least, ())  # they share the scratch
    return generated


#: The first one that fits is taken.
VARIANTS: tuple[Variant[Conv, Generator], ...] = (
    Variant("planes", lambda spec: spec.planes, planes.emit),
    Variant("winograd", lambda spec: layout_of(spec).is_of_convs, _emit_for_points),
    Variant("depthwise", is_depthwise, depthwise.emit),
    Variant("product", lambda spec: True, _emit_product),
)


def _check_window(spec: Conv) -> None:
    given = spec.product
    window, groups = spec.window, spec.window.groups
    axes = (window.out, window.kernel, window.stride, window.dilation, window.expansion, window.low)
    if {len(axis) for axis in axes} != {len(spec.buffers[given.a].shape) - 2}:
        raise ValueError("conv kernel: its window must have an axis for each one of the image but N and C")
    channels = spec.buffers[given.a].shape[-1]
    layout = layout_of(spec)
    together = layout.together
    if together > 1 and not (isinstance(channels, int) and channels % (together * groups) == 0):
        raise ValueError(
            f"conv kernel: {channels} channels in {groups} groups; {layout.name} take multiples of "
            f"{together} in each"
        )
    if groups < 1 or (groups > 1 and not (isinstance(given.n, int) and given.n % groups == 0)):
        raise ValueError(f"conv kernel: {given.n} output channels do not divide into {groups} groups")


def piece_of(spec: Conv) -> int:
    """Return the steps under each tap if the spec knows them, else 0: sums are cut between taps."""
    channels = spec.buffers[spec.product.a].shape[-1]
    step = layout_of(spec).together
    return channels // spec.window.groups // step if isinstance(channels, int) else 0


def product_of(f: Function, spec: Conv, problem: Problem) -> Product:
    """Return the product of a Conv's patches with its weights; call in the entry block."""
    emission = Emission.open(f, problem)
    place, image = emission.scratch.behind_copy(f, problem), emission.bodies.addresses[spec.product.a]
    geometry = geometry_of(f, spec, problem.sizes)
    if problem.has_tiles and problem.has_dots and padded.fits(geometry, is_exact=not problem.is_pairs):
        f.takes("padded")
        return Product.of(emission, padded.Padded(f, problem, geometry, image, place))
    if problem.pieces.taps:
        f.takes("indirection")
        indirection = Indirection(f, geometry, image, place, problem.block)
        return Product.of(emission, indirection)
    f.takes("patches")
    return Product.of(emission, Patches(f, problem, geometry, image, place))


def patch_problem(
    f: Function, spec: Conv, sizes: Sequence[Int], schedule: Schedule, together: int = 0
) -> Problem:
    """Return the problem of the product of a Conv's patches; `together`: see `Pieces`.

    If rows are read in the image, all elements that they cover count for their block.
    """
    taps = prod(spec.window.kernel) if fits_indirection(f, spec) else 0
    channels = spec.buffers[spec.product.a].shape[-1]
    row = channels * prod(spec.window.stride) if taps and isinstance(channels, int) else None
    pieces = Pieces(piece_of(spec), taps, together)
    problem = replace(problem_of(f, spec, sizes, schedule, row), groups=spec.window.groups, pieces=pieces)
    return replace(problem, n=resolve(problem.columns, sizes))


def _emit_kernel(product: Product, schedule: str) -> Generated:
    """Emit the kernel of a product of patches."""
    if isinstance(product.lhs, Indirection):
        product.lhs.clear()
    return variants.emit(product, schedule)
