"""What a Search computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...spec import KernelSpec, Size, Unknown


@dataclass(frozen=True)
class Search(KernelSpec[Unknown]):
    """How many elements of a row that goes up come before each value; with `right`, or are equal to it.

    Buffers: rows [rows, length], or [1, length], the same for all; values [rows, count] of the same dtype;
    places [rows, count] (i64). A NaN comes after every element.
    """

    family: ClassVar[str] = "search"
    rows: Size[Unknown]
    length: Size[Unknown]
    count: Size[Unknown]
    right: bool
