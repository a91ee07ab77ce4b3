"""Common parts of type rules: reading argument types and refusing them in one full sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy

from ..ir.dims import DimExpr, equal, floordiv, format_dim, product, simplify
from ..ir.errors import DtypeError, ShapeError
from ..ir.types import ScalarType, TensorType, Type

Types = Sequence[Type | None]
Attrs = dict[str, Any]
Shape = tuple[DimExpr, ...]

#: numpy's dtype for computing with a dtype of ours (f16 and bf16 are computed in float32 and rounded after).
COMPUTE: dict[str, np.dtype] = {
    name: np.dtype(numpy)
    for name, numpy in {
        "bool": np.bool_, "u8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
        "f16": np.float32, "bf16": np.float32, "f32": np.float32, "f64": np.float64,
    }.items()
}  # fmt: skip


def tensor(op: str, types: Types, position: int) -> TensorType:
    """Return the type of argument `position`. Raises DtypeError if it is not a tensor."""
    found = types[position] if position < len(types) else None
    if not isinstance(found, TensorType):
        raise DtypeError(f"{op}: argument {position} is {found or 'absent'}; it must be a tensor")
    return found


def scalar(op: str, types: Types, position: int, kind: str) -> ScalarType:
    """Return the type of argument `position`. Raises DtypeError if it is not a plain value of `kind`."""
    found = types[position] if position < len(types) else None
    if not isinstance(found, ScalarType) or found.kind != kind:
        raise DtypeError(f"{op}: argument {position} is {found or 'absent'}; it must be of type {kind}")
    return found


def tensors(op: str, types: Types, n: int) -> list[TensorType]:
    """Return the types of exactly `n` tensor arguments."""
    if len(types) != n:
        raise DtypeError(f"{op}: {len(types)} arguments given; it takes {n}")
    return [tensor(op, types, i) for i in range(n)]


def show(shape: Shape) -> str:
    """Return a shape for messages: [2, s0]."""
    return f"[{', '.join(map(format_dim, shape))}]"


def same_shape(op: str, types: Sequence[TensorType]) -> Shape:
    """Return the one shape of `types`. Raises ShapeError if two differ or cannot be proved equal."""
    first, *rest = types
    for other in rest:
        if not equal_shapes(first.shape, other.shape):
            raise ShapeError(
                f"{op}: arguments have shapes {show(first.shape)} and {show(other.shape)}; expand them first"
            )
    return first.shape


def same_dtype(op: str, types: Sequence[TensorType]) -> str:
    """Return the one dtype of `types`. Raises DtypeError if they differ."""
    dtypes = {t.dtype: None for t in types}
    if len(dtypes) > 1:
        raise DtypeError(f"{op}: arguments have dtypes {' and '.join(dtypes)}; cast them to one dtype first")
    return next(iter(dtypes))


def equal_shapes(a: Shape, b: Shape) -> bool:
    """Return True if both shapes are provably equal."""
    return len(a) == len(b) and all(x is y or equal(x, y) for x, y in zip(a, b, strict=True))


def is_opaque(dim: DimExpr) -> bool:
    """Return True if `dim` has parts that are not polynomials, so that equality may hold without a proof."""
    return isinstance(dim, sympy.Expr) and bool(dim.atoms(floordiv, sympy.Mod, sympy.Min, sympy.Max))


def may_equal(a: DimExpr, b: DimExpr) -> bool:
    """Return False only if `a` and `b` certainly differ as polynomials."""
    return is_opaque(a) or is_opaque(b) or equal(a, b)


def check_axis(op: str, axis: int, rank: int) -> None:
    """Raise ShapeError unless 0 <= axis < rank."""
    if not 0 <= axis < rank:
        raise ShapeError(f"{op}: axis is {axis}; a tensor of rank {rank} has axes 0 to {rank - 1}")


def check_dtype(op: str, dtype: str, allowed: Sequence[str]) -> None:
    """Raise DtypeError unless `dtype` is one of `allowed`."""
    if dtype not in allowed:
        raise DtypeError(f"{op}: the dtype is {dtype}; it takes {', '.join(sorted(allowed))}")


def check_same_size(op: str, old: Shape, new: Shape) -> None:
    """Raise ShapeError if `new` certainly has another number of elements than `old`."""
    before, after = product(old), product(new)
    if not may_equal(simplify(before), simplify(after)):
        raise ShapeError(
            f"{op}: {show(old)} has {format_dim(before)} elements and {show(new)} has "
            f"{format_dim(after)}; they must be as many"
        )
