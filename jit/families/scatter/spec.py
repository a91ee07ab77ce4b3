"""The spec of Scatter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...spec import KernelSpec, Size, Unknown


@dataclass(frozen=True)
class Scatter(KernelSpec[Unknown]):
    """out = base; then out[.., index, ..] = combine(out[.., index, ..], source) at each position of
    `updates`.

    Buffers: base, index (i64 or i32), source, out; all of out's rank. `updates`: the loops, one for each axis
    of out; each axis of index and source has its loop's size, or 1: it is the same all along. Loop a is the
    position along axis a of out, except for `axis`, where index gives the position (checked at run time).
    Each axis of base has out's size or 1. `mode`: a key of `SCATTER_MODES`. Updates of one position are
    applied in the order of the loop `axis`, each rounded to the dtype.
    """

    family: ClassVar[str] = "scatter"
    updates: tuple[Size[Unknown], ...]
    axis: int
    mode: str


#: How an update changes its place -> the operation on (old, new) of `jit.math.table.OPS`; "": new replaces
#: old.
SCATTER_MODES: dict[str, str] = {
    "set": "", "sum": "add", "prod": "mul", "min": "minimum", "max": "maximum", "any": "or", "all": "and",
}  # fmt: skip
