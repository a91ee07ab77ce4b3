"""Scans defined with numpy: slow and obvious. Arrays hold values in the dtype of the computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...evaluation import Array

AXIS = 1  # of [rows, length, columns]


def scan(x: Array, op: str, axis: int = AXIS) -> Sequence[Array]:
    """Return the scan `op` of `x` along `axis`: values and, for max and min, their indices."""
    with np.errstate(all="ignore"):
        if op in ("max", "min"):
            return _extremum(x, axis, np.greater_equal if op == "max" else np.less_equal)
        wide = x.astype(np.float64) if x.dtype.kind == "f" else x
        function = {"sum": np.add, "prod": np.multiply, "logsumexp": np.logaddexp}[op]
        return (function.accumulate(wide, axis=axis, dtype=wide.dtype).astype(x.dtype),)


def _extremum(x: Array, axis: int, wins: Any) -> tuple[Array, Array]:
    """Return the running extremum and the latest place of it; a NaN is one from there on."""
    values, places = x.copy(), np.zeros(x.shape, np.int64)
    rows, out, at = (np.moveaxis(array, axis, 0) for array in (x, values, places))
    for i in range(1, rows.shape[0]):
        later = wins(rows[i], out[i - 1]) & ~np.isnan(out[i - 1]) | np.isnan(rows[i])
        out[i] = np.where(later, rows[i], out[i - 1])
        at[i] = np.where(later, i, at[i - 1])
    return values, places
