"""The spec of Scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...spec import KernelSpec, Size, Unknown


@dataclass(frozen=True)
class Scan(KernelSpec[Unknown]):
    """out[r, i, c] = `op` over x[r, 0 .. i, c]: a running sum, product, extremum ...

    Buffers: x, out and, for max and min, the latest index of the extremum (i64), all [rows, length, columns].
    `op`: a key of `jit.families.scan.scan.RULES` (sum, prod, max, min, logsumexp). A row is scanned by
    vectors if `columns` is the int 1, else position by position (see `jit.families.scan.scan`).
    """

    family: ClassVar[str] = "scan"
    rows: Size[Unknown]
    length: Size[Unknown]
    columns: Size[Unknown]
    op: str
