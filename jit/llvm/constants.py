"""Constant and index vectors of LANES elements."""

from __future__ import annotations

import numpy as np

from .dtypes import DTYPES, vector
from .function import Function, Int, Value
from .vector import literal

LANES = 16


def tail_mask(f: Function, remaining: Int) -> Value:
    """Return the mask of the lanes l < remaining, for remaining >= 0 (all lanes at remaining >= LANES)."""
    bits = vector("i1", LANES)
    if isinstance(remaining, int):
        return Value(bits, f"<{', '.join(f'i1 {str(lane < remaining).lower()}' for lane in range(LANES))}>")
    count = f.op("i32", f"trunc i64 {f.i64(f.minimum(remaining, LANES)).name} to i32")
    lanes = f"<{', '.join(f'i32 {lane}' for lane in range(LANES))}>"
    return f.op(bits, f"icmp slt {vector('i32', LANES)} {lanes}, {f.splat(count, LANES).name}")


def rounded(dtype: str, value: int | float | bool | str) -> float | int:
    """Return `value` as `dtype` holds it. Raises ValueError for an integer that `dtype` has not."""
    kind = DTYPES[dtype].kind
    if kind == "bool":
        return bool(float(value))
    if kind == "float":
        with np.errstate(over="ignore"):
            if dtype == "bf16":
                return float(_nearest_bf16(np.float32(value)))
            return float(np.dtype(DTYPES[dtype].numpy).type(float(value)))
    limits = np.iinfo(DTYPES[dtype].numpy)
    number = int(value)
    if not limits.min <= number <= limits.max:
        raise ValueError(f"constant {value} does not fit {dtype}, which holds {limits.min} to {limits.max}")
    return number


def _nearest_bf16(x: np.float32) -> np.float32:
    if np.isnan(x):
        return x
    bits = int(x.view(np.uint32))
    return np.uint32((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def splat(f: Function, dtype: str, value: int | float | bool | str) -> Value:
    """Return the constant `value` ("inf", "-inf", "nan" allowed) of `dtype` in every lane; emits nothing.

    It is rounded to f16, bf16 or f32. Raises ValueError for an integer that `dtype` has not.
    """
    element = DTYPES[dtype].register
    return Value(vector(element, LANES), f"splat ({element} {literal(element, rounded(dtype, value))})")


def splat_int(f: Function, value: Int, step: int = 0) -> Value:
    """Return the i64 vector value + step * lane."""
    kind = vector("i64", LANES)
    if isinstance(value, int):
        return Value(kind, f"<{', '.join(f'i64 {value + step * lane}' for lane in range(LANES))}>")
    base = f.splat(value, LANES)
    return f.op(kind, f"add {kind} {base.name}, {splat_int(f, 0, step).name}") if step else base
