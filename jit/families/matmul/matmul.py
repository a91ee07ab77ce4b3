"""The Matmul family: panels of B against row tiles of A, with the epilogue applied before the only
store.

This file chooses the register tile; `layouts` defines how weights are packed, `problem` the computation,
`product` its operands, `variants` the methods.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...decode import SpecError
from ...llvm.abi import Generated, check_schedule, resolve
from ...llvm.function import Function, Int, most
from . import variants
from .arithmetic import DIGITS, PAIRS, QUADS, SHORT_PAIRS
from .layouts import check_of_products, layout_of
from .problem import grouped_of, is_f32_panels, may_use_tiles, problem_of, uses_tiles
from .schedules import PANEL, SCHEDULES, default_schedule, narrow_schedules, schedule_of, tile_of
from .spec import ProductSpec

NARROW = "12x32"  # the register tile for one panel at a time


def emit(f: Function, spec: ProductSpec, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Matmul; see `abi.Generator`. Schedules: those of `schedules`;
    an ending alone means that of the default tile."""
    m = resolve(spec.product.m, sizes)
    name = schedule or choose_schedule(f, spec, m)
    if not tile_of(name):
        name = choose_schedule(f, spec, m) + name
    check_schedule("matmul", tile_of(name), fitting_schedules(may_use_tiles(f, spec, m)))
    check_operands(spec)
    problem = problem_of(f, spec, sizes, schedule_of(name))
    return variants.emit(variants.product_of(f, problem), name)


def dtypes_of_a(spec: ProductSpec) -> tuple[str, ...]:
    """Return the possible dtypes of A's elements."""
    return (layout_of(spec).a,)


def check_steps(spec: ProductSpec) -> None:
    """Raise SpecError if weights that are multiplied several steps at a time do not have a multiple of
    these."""
    given = spec.product
    layout = layout_of(spec)
    together = layout.together
    if together > 1 and (not isinstance(given.k, int) or given.k % together):
        raise SpecError(
            f"matmul kernel: k is {given.k} in layout {layout.name!r}; it must be a multiple of {together}"
            "; export the artifact again"
        )


def check_operands(spec: ProductSpec) -> None:
    """Raise SpecError for layouts of operands that a product cannot have."""
    layout = layout_of(spec)
    if layout.planes and grouped_of(spec) is None:
        shape = spec.buffers[spec.product.b].shape
        raise SpecError(f"matmul kernel: b is {shape} in layout {layout.name!r}; see `grouped`")
    check_of_products(spec)


def extensions(spec: ProductSpec) -> tuple[str, ...]:
    """Return the extensions for which code of `spec` differs: see `Target`."""
    arithmetic = layout_of(spec).arithmetic
    has_dots = arithmetic in (QUADS, DIGITS, SHORT_PAIRS)
    uses = {"dot": has_dots, "pairs": arithmetic == PAIRS, "amx": uses_tiles(spec)}
    return tuple(name for name, is_used in uses.items() if is_used)


def fitting_schedules(has_tiles: bool) -> tuple[str, ...]:
    """Return the schedules that a product can be compiled with; AMX tiles are one panel wide."""
    return narrow_schedules() if has_tiles else tuple(SCHEDULES)


def choose_schedule(f: Function, spec: ProductSpec, m: Int) -> str:
    """Return the name of the register tile for the function's target.

    A tall tile takes all of a few rows, so B is read once, but it has no register left for an address of what
    comes next. AMX tiles take one panel at a time; on processors that have them, that is also the fastest for
    rows of f32 that are too few for AMX.
    """
    name, top = default_schedule(f), most(m)
    if layout_of(spec).in_limbs and name == "14x32":
        return NARROW  # of three planes of four rows
    is_low = top is not None and top <= SCHEDULES[name].rows
    if is_low:
        return name
    is_f32 = is_f32_panels(spec)
    is_narrow = may_use_tiles(f, spec, m) or (is_f32 and f.has_tiles and uses_tiles(spec))
    wide = name if is_narrow else widest_schedule(f, spec)
    return NARROW if wide == "14x32" and is_f32 else wide


def widest_schedule(f: Function, spec: ProductSpec) -> str:
    """Return the name of the register tile for many rows: the one that reads least and is no wider than the
    columns."""
    name, n = default_schedule(f), spec.product.n
    return "6x64" if name == "14x32" and not (isinstance(n, int) and n <= PANEL) else name
