"""PyTorch's type promotion, without PyTorch (c10's promoteTypes and ATen's result_type).

Three categories take part: tensors with axes, 0-d tensors, Python scalars. The dtype of a lower category
counts only when it is of a higher kind (bool < int < float) than every dtype above it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .types import FLOAT_DTYPES, INT_DTYPES

TENSOR, ZERO_DIM, SCALAR = range(3)
DEFAULT_FLOAT = "f32"
_KINDS = {"bool": 0, **dict.fromkeys(INT_DTYPES, 1), **dict.fromkeys(FLOAT_DTYPES, 2)}
_BYTES = {"i8": 1, "u8": 1, "i16": 2, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}


class Operand(NamedTuple):
    """An operand for promotion: a dtype and the category TENSOR, ZERO_DIM or SCALAR."""

    dtype: str
    category: int = TENSOR


def is_float(dtype: str) -> bool:
    """Return True for f64, f32, f16, bf16."""
    return _KINDS[dtype] == 2


def promote(a: str, b: str) -> str:
    """Return the smallest dtype that holds both, like `torch.promote_types`."""
    if a == b:
        return a
    if _KINDS[a] != _KINDS[b]:
        return a if _KINDS[a] > _KINDS[b] else b
    if {a, b} == {"f16", "bf16"}:
        return "f32"
    if "u8" in (a, b):
        other = b if a == "u8" else a
        return "i16" if other == "i8" else other
    return a if _BYTES[a] > _BYTES[b] else b


def scalar_dtype(value: object) -> str:
    """Return the dtype of a Python scalar in promotion: bool, i64 (also symbolic sizes) or f32."""
    if isinstance(value, bool):
        return "bool"
    return DEFAULT_FLOAT if isinstance(value, float) else "i64"


def result_dtype(operands: Iterable[Operand]) -> str:
    """Return the dtype of an operation on `operands` (at least one), like `torch.result_type`."""
    by_category: list[str | None] = [None, None, None]
    for dtype, category in operands:
        before = by_category[category]
        by_category[category] = dtype if before is None else promote(before, dtype)
    tensor, zero_dim, scalar = by_category
    result = _combine(tensor, _combine(zero_dim, scalar))
    if result is None:
        raise ValueError("type promotion needs at least one operand")
    return result


def _combine(higher: str | None, lower: str | None) -> str | None:
    if higher is None or lower is None:
        return lower if higher is None else higher
    if _KINDS[higher] >= 1 and (_KINDS[higher] == 2 or _KINDS[lower] < 2):
        return higher
    return promote(higher, lower)


def to_float(dtype: str) -> str:
    """Return `dtype` if it is a float, else the default float: the rule of div, exp, mean ..."""
    return dtype if is_float(dtype) else DEFAULT_FLOAT


def to_sum(dtype: str) -> str:
    """Return the dtype of sums and products: i64 for bool and integers."""
    return dtype if is_float(dtype) else "i64"
