"""What a Sort computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...spec import KernelSpec, Size, Unknown


@dataclass(frozen=True)
class Sort(KernelSpec[Unknown]):
    """The first `keep` elements of every row in a stable order, a NaN above all others and -0 equal to 0.

    Buffers: x [rows, length]; values [rows, keep] of x's dtype and their places in the row, indices [rows,
    keep] (i64), both outputs. `keep` is at most `length`. `descending`: greatest first.
    """

    family: ClassVar[str] = "sort"
    rows: Size[Unknown]
    length: Size[Unknown]
    keep: Size[Unknown]
    descending: bool
