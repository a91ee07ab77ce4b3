"""The storage of weights of matrix products: the narrowest dtype that represents their values.

A weight that came from bf16 or f16 is read from memory at half the bytes, one of small integers at a quarter;
kernels widen it and sum in f32, so no bit changes. `Graph.rounding` may require more: weights are rounded to
that dtype first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...jit.evaluation import bf16_to_f32, f32_to_bf16
from ...jit.families.matmul import digits

Conversion = Callable[[np.ndarray], np.ndarray]


def held(weight: np.ndarray, rounded: str) -> tuple[np.ndarray, str]:
    """Return the stored form of an f32 weight, bf16 as uint16, and its dtype; `rounded`: the dtype that
    `Graph.rounding` requires."""
    for dtype, (narrow, wide) in _CONVERSIONS.items():
        may_narrow = rounded == "f32" or dtype == "i8"
        if rounded == dtype or (may_narrow and _survives(weight, narrow, wide)):
            return narrow(weight), dtype
    return weight, "f32"


def slower_than_f32(k: int, n: int, group: int, rows: int, targets: Sequence[str]) -> str:
    """Return why a weight of integers [k, n] does not pay for products of at least `rows` rows of f32, "" if
    it does. `group`: the steps that share scales."""
    is_slower = digits.is_slower(k, n, group, rows, targets)
    return f"products with a weight of {k} x {n} are faster in f32" if is_slower else ""


def _survives(weight: np.ndarray, narrow: Conversion, wide: Conversion) -> bool:
    """Return True if the conversion preserves all bits; most weights fail in their first row."""
    return all(is_same(wide(narrow(part)), part) for part in (weight[:1], weight))


def _to_f16(weight: np.ndarray) -> np.ndarray:
    """Round to f16; too large values become infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return weight.astype(np.float16)


def _to_i8(weight: np.ndarray) -> np.ndarray:
    """Convert to i8; values other than integers in its range change."""
    with np.errstate(invalid="ignore"):
        return weight.astype(np.int32).astype(np.int8)


def is_same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return True if two f32 arrays have the same bits."""
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


#: Conversions from f32 and back, in the order in which dtypes are tried.
_CONVERSIONS: dict[str, tuple[Conversion, Conversion]] = {
    "i8": (_to_i8, lambda integers: integers.astype(np.float32)),
    "bf16": (f32_to_bf16, bf16_to_f32),
    "f16": (_to_f16, lambda half: half.astype(np.float32)),
}
