"""The spec of Nonzero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ...spec import BufferAccess, KernelSpec, Size, Unknown, at_loops


@dataclass(frozen=True)
class Nonzero(KernelSpec[Unknown]):
    """The indices of a mask's true elements, in order: the first `count`; if there are fewer, the rest are
    -1.

    Buffers: the mask [length] (bool), the indices [count] (i64).
    """

    family: ClassVar[str] = "nonzero"
    length: Size[Unknown]
    count: Size[Unknown]


class Accesses(NamedTuple):
    """A kernel's accesses."""

    mask: BufferAccess
    places: BufferAccess


def accesses(spec: Nonzero) -> Accesses:
    """Return a kernel's accesses."""
    return Accesses(at_loops(0, [spec.length], ("bool",)), at_loops(1, [spec.count], ("i64",), True))
