"""Tensors whose elements are known when a model is imported: numbers, or expressions of sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import ml_dtypes
import numpy as np
import sympy

from ....vm.program import NUMPY_DTYPES
from ...ir.dims import DimExpr, simplify
from ...ir.errors import UnsupportedOp
from ...ir.graph import Builder, Value
from ...ir.promotion import is_float
from ...ops import build as B

#: numpy's dtypes, with one for bf16, whose bits programs hold in uint16.
NUMPY: dict[str, np.dtype] = {**NUMPY_DTYPES, "bf16": np.dtype(ml_dtypes.bfloat16)}
_CONDITIONS = {
    sympy.Gt: "gt", sympy.Ge: "ge", sympy.Lt: "lt", sympy.Le: "le", sympy.Eq: "eq", sympy.Ne: "ne",
    sympy.And: "and", sympy.Or: "or", sympy.Not: "not",
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in NUMPY.items()}


def dtype_of_array(array: np.ndarray) -> str:
    """Return our name of a numpy dtype. Raises UnsupportedOp for one that no tensor has."""
    if array.dtype not in _NAMES:
        raise UnsupportedOp(f"tensors of {array.dtype} cannot be compiled; use one of {', '.join(NUMPY)}")
    return _NAMES[array.dtype]


@dataclass(frozen=True, eq=False)
class Known:
    """A tensor of `dtype` with known elements. `items` has the numpy dtype, or is an array of objects: ints,
    floats, sympy expressions of sizes, and conditions on sizes. `name`: the model's, "" if it has none."""

    items: np.ndarray
    dtype: str
    name: str = ""

    @property
    def is_symbolic(self) -> bool:
        """Whether some elements depend on sizes."""
        return self.items.dtype == object

    @property
    def dims(self) -> list[DimExpr]:
        """The elements in row-major order, as ints or expressions."""
        return [simplify(x) if isinstance(x, sympy.Expr) else int(x) for x in self.items.flat]


def known(items: Any, dtype: str, name: str = "") -> Known:
    """Return a known tensor; an array of objects that are all numbers gets its numpy dtype."""
    array = np.asarray(items, dtype=object if _has_expression(items) else None)
    if array.dtype == object:
        plain = np.empty(array.shape, object)
        for i, each in np.ndenumerate(array):
            plain[i] = _number(each)
        if not any(isinstance(each, sympy.Basic) for each in plain.flat):
            return Known(plain.astype(NUMPY[dtype]), dtype, name)
        return Known(plain, dtype, name)
    return Known(array.astype(NUMPY[dtype], copy=False), dtype, name)


def _has_expression(items: Any) -> bool:
    if isinstance(items, np.ndarray):
        return items.dtype == object
    if isinstance(items, list | tuple):
        return any(map(_has_expression, items))
    return isinstance(items, sympy.Basic)


def _number(x: Any) -> Any:
    """Return a sympy number as Python's; an expression as it is."""
    if x is sympy.true or x is sympy.false:
        return bool(x)
    if not isinstance(x, sympy.Expr):
        return x
    if x.is_Integer:
        return int(x)
    return float(x) if x.is_number else x


def materialised(b: Builder, x: Known) -> Value:
    """Append the tensor of known elements."""
    if not x.is_symbolic:
        array = np.ascontiguousarray(x.items).reshape(x.items.shape)
        return b.constant(array.view(np.uint16) if x.dtype == "bf16" else array, x.dtype, x.name)
    parts = [
        _condition(b, each) if x.dtype == "bool" else _element(b, each, x.dtype) for each in x.items.flat
    ]
    return B.reshape(b, B.concat(b, parts, 0), x.items.shape)


def _element(b: Builder, x: Any, dtype: str) -> Value:
    """Append an expression of sizes as a tensor of one element: a quotient of two whole numbers."""
    above, below = (simplify(part) for part in sympy.fraction(sympy.together(sympy.sympify(x))))
    if not is_float(dtype) or isinstance(x, float):
        return B.full(b, x if isinstance(x, float) else simplify(sympy.sympify(x)), dtype, (1,))
    quotient = B.full(b, above, dtype, (1,))
    return quotient if below == 1 else B.pointwise(b, "div", quotient, B.full(b, below, dtype))


def _condition(b: Builder, x: Any) -> Value:
    """Append a condition on sizes as a tensor of one element."""
    if not isinstance(x, sympy.Basic):
        return B.full(b, bool(x), "bool", (1,))
    if isinstance(x, sympy.Expr):
        return _element(b, x, "i64" if x.is_integer else "f64")
    parts = [_condition(b, each) for each in x.args]
    op = _CONDITIONS[x.func]
    return reduce(partial(B.pointwise, b, op), parts) if len(parts) > 1 else b.one(op, *parts)
