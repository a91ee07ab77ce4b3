"""The spec of Sort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ...spec import BufferAccess, KernelSpec, Size, Unknown, at_loops


@dataclass(frozen=True)
class Sort(KernelSpec[Unknown]):
    """The first `keep` elements of every row in a stable order, a NaN above all others and -0 equal to 0.

    Buffers: x [rows, length]; values [rows, keep] of x's dtype and their indices in the row, indices [rows,
    keep] (i64), both outputs. `keep` is at most `length`. `descending`: greatest first.
    """

    family: ClassVar[str] = "sort"
    rows: Size[Unknown]
    length: Size[Unknown]
    keep: Size[Unknown]
    descending: bool


class Accesses(NamedTuple):
    """A kernel's accesses; `first`: of the rows, at least the kept elements."""

    x: BufferAccess
    values: BufferAccess
    indices: BufferAccess
    first: BufferAccess


def accesses(spec: Sort) -> Accesses:
    """Return a kernel's accesses."""
    kept, dtypes = (spec.rows, spec.keep), (spec.buffers[0].dtype,)
    return Accesses(
        at_loops(0, (spec.rows, spec.length)),
        at_loops(1, kept, dtypes, True),
        at_loops(2, kept, ("i64",), True),
        at_loops(0, kept),
    )
