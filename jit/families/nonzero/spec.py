"""What a Nonzero computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...spec import KernelSpec, Size, Unknown


@dataclass(frozen=True)
class Nonzero(KernelSpec[Unknown]):
    """The places where a mask holds, in order: the first `count`; where there are fewer, the rest are -1.

    Buffers: the mask [length] (bool), the places [count] (i64).
    """

    family: ClassVar[str] = "nonzero"
    length: Size[Unknown]
    count: Size[Unknown]
