"""The Matmul family: panels of B against row tiles of A, with the epilogue applied before the only
store.

This file chooses the register tile and packs weights; `problem` says what is computed, `product` where its
operands are, `variants` how.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....vm.shares import in_shares
from ...llvm.abi import Generated, check_schedule, resolve
from ...llvm.function import Function, Int, most
from . import variants
from .problem import (
    DIGITS_LAYOUT,
    GROUPED_LAYOUTS,
    PAIRS_LAYOUT,
    QUADS_LAYOUT,
    TOGETHER,
    grouped_of,
    is_f32_panels,
    may_use_tiles,
    problem_of,
    uses_tiles,
)
from .schedules import PANEL, SCHEDULES, default_schedule, narrow_schedules, schedule_of, tile_of
from .spec import ProductSpec

ELEMENTS_OF_SHARE = 1 << 20  # a thread that packs fewer costs more than it saves
LAYOUTS = ("rows", "panels", "quads", "pairs", *GROUPED_LAYOUTS)  # of B
PANEL_DTYPES = (
    "f32",
    "bf16",
    "f16",
    "i8",
)  # of a weight in panels; the narrow ones are widened when they are read
NARROW = "12x32"  # the register tile for one panel at a time
DTYPES_OF_B = {
    "panels": PANEL_DTYPES,
    "quads": ("i8",),
    "pairs": ("bf16",),
    "grouped": ("u8",),
    "grouped_quads": ("u8",),
    DIGITS_LAYOUT: ("u8",),
}
DTYPES_OF_A = {"quads": "u8", "grouped_quads": "u8", "pairs": "bf16"}  # by the layout of B, else f32


def pack_together(weight: np.ndarray, layout: str) -> np.ndarray:
    """Return a [K, N] weight as [ceil(N / PANEL), K / n, PANEL, n], n as TOGETHER has it; n divides K."""
    panels, n = pack_panels(weight), TOGETHER[layout]
    n_panels, k, _ = panels.shape
    return np.ascontiguousarray(panels.reshape(n_panels, k // n, n, PANEL).swapaxes(2, 3))


def pack_quads(weight: np.ndarray) -> np.ndarray:
    """Return a weight of bytes for products with bytes."""
    return pack_together(weight, QUADS_LAYOUT)


def pack_pairs(weight: np.ndarray) -> np.ndarray:
    """Return a weight of bf16 (as uint16) for products with bf16."""
    return pack_together(weight, PAIRS_LAYOUT)


def pack_panels(weight: np.ndarray) -> np.ndarray:
    """Return a [K, N] weight as [ceil(N / PANEL), K, PANEL], the last panel padded with zeros."""
    (k, n), whole = weight.shape, weight.shape[1] // PANEL
    panels = np.zeros((-(-n // PANEL), k, PANEL), weight.dtype)
    source = as_panels(weight[:, : whole * PANEL])

    def copy(begin: int, end: int) -> None:
        panels[begin:end] = source[begin:end]

    in_shares(whole, copy, 1 + ELEMENTS_OF_SHARE // (PANEL * max(k, 1)))
    if n % PANEL:
        panels[whole, :, : n % PANEL] = weight[:, whole * PANEL :]
    return panels


def as_panels(weight: np.ndarray) -> np.ndarray:
    """Return a [K, N] weight as `pack_panels` does, in the memory where it lies; N is a multiple of PANEL."""
    k, n = weight.shape
    return weight.reshape(k, n // PANEL, PANEL).transpose(1, 0, 2)


def emit(f: Function, spec: ProductSpec, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Matmul; see `abi.Generator`. Schedules: those of `schedules`;
    an ending alone stands for that of the own tile."""
    m = resolve(spec.product.m, sizes)
    name = schedule or choose_schedule(f, spec, m)
    if not tile_of(name):
        name = choose_schedule(f, spec, m) + name
    check_schedule("matmul", tile_of(name), fitting_schedules(may_use_tiles(f, spec, m)))
    check_operands(spec)
    problem = problem_of(f, spec, sizes, schedule_of(name))
    return variants.emit(variants.product_of(f, problem), name)


def check_operands(spec: ProductSpec) -> None:
    """Refuse dtypes and layouts of operands that a product cannot have."""
    given = spec.product
    together = TOGETHER.get(given.b_layout, 1)
    takes = {"b": DTYPES_OF_B.get(given.b_layout, ("f32",))}
    if not given.prologue:
        takes["a"] = (DTYPES_OF_A.get(given.b_layout, "f32"),)
    if together > 1 and (not isinstance(given.k, int) or given.k % together):
        raise ValueError(
            f"matmul kernel: k is {given.k} in layout {given.b_layout!r}; it must be a multiple of {together}"
        )
    if given.b_layout in GROUPED_LAYOUTS and grouped_of(spec) is None:
        shape = spec.buffers[given.b].shape
        raise ValueError(f"matmul kernel: b is {shape} in layout {given.b_layout!r}; see `grouped`")
    for role, dtypes in sorted(takes.items()):
        dtype = spec.buffers[given.a if role == "a" else given.b].dtype
        if dtype not in dtypes:
            raise ValueError(
                f"matmul kernel: {role} is {dtype}; it must be {' or '.join(dtypes)} (cast it first)"
            )
    if given.b_layout not in LAYOUTS:
        raise ValueError(
            f"matmul kernel: b_layout is {given.b_layout!r}; it must be one of {', '.join(LAYOUTS)}"
        )


def extensions(spec: ProductSpec) -> tuple[str, ...]:
    """Return the extensions for which code of `spec` differs: see `Target`."""
    layout = spec.product.b_layout
    is_pairs = layout == PAIRS_LAYOUT
    is_of_bytes = layout == DIGITS_LAYOUT or (layout in TOGETHER and not is_pairs)
    uses = {"dot": is_of_bytes, "pairs": is_pairs, "amx": uses_tiles(spec)}
    return tuple(name for name, is_used in uses.items() if is_used)


def fitting_schedules(has_tiles: bool) -> tuple[str, ...]:
    """Return the schedules that a product can be compiled with; AMX tiles are one panel wide."""
    return narrow_schedules() if has_tiles else tuple(SCHEDULES)


def choose_schedule(f: Function, spec: ProductSpec, m: Int) -> str:
    """Return the name of the register tile for the function's target.

    A tall tile takes all of a few rows, so B is read once, but it has no register left for an address of what
    comes next. AMX tiles take one panel at a time; on processors that have them, that is the fastest for rows
    of f32 that are too few for AMX as well.
    """
    name, top = default_schedule(f), most(m)
    if spec.product.b_layout == DIGITS_LAYOUT and name == "14x32":
        return NARROW  # of three planes of four rows
    is_low = top is not None and top <= SCHEDULES[name].rows
    if is_low:
        return name
    is_f32 = is_f32_panels(spec)
    is_narrow = may_use_tiles(f, spec, m) or (is_f32 and f.has_tiles and uses_tiles(spec))
    wide = name if is_narrow else widest_schedule(f, spec)
    return NARROW if wide == "14x32" and is_f32 else wide


def widest_schedule(f: Function, spec: ProductSpec) -> str:
    """Return the name of the register tile for many rows: it reads the least, and is no wider than the
    columns."""
    name, n = default_schedule(f), spec.product.n
    return "6x64" if name == "14x32" and not (isinstance(n, int) and n <= PANEL) else name
