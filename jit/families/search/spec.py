"""The spec of Search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ...spec import BufferAccess, Index, KernelSpec, Size, Unknown, at_loops


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


class Accesses(NamedTuple):
    """A kernel's accesses."""

    sorted: BufferAccess
    values: BufferAccess
    places: BufferAccess


def accesses(spec: Search) -> Accesses:
    """Return a kernel's accesses."""
    is_shared = spec.buffers[0].shape[0] == 1
    index = (Index() if is_shared else Index(loop=0), Index(loop=1))
    dtypes, given = (spec.buffers[0].dtype,), (spec.rows, spec.count)
    return Accesses(
        BufferAccess(0, index, (spec.rows, spec.length)),
        at_loops(1, given, dtypes),
        at_loops(2, given, ("i64",), True),
    )
