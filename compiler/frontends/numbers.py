"""Floats that depend on sizes, such as 1 / n, as tensors: kernels compute them in f64."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import sympy
from torch.utils._sympy import functions as torch_functions

from ..ir.errors import UnsupportedOp
from ..ir.graph import Builder, Value
from ..ops import build as B
from ..ops.conditions import truth
from ..ops.pointwise import power
from .symbols import Symbols

_BINARY: dict[Any, str] = {
    torch_functions.FloatTrueDiv: "div",
    torch_functions.IntTrueDiv: "div",
    sympy.Add: "add",
    sympy.Mul: "mul",
    torch_functions.Max: "maximum",
    torch_functions.Min: "minimum",
}
_SAME = (torch_functions.ToFloat, torch_functions.Identity)
_ROUNDINGS = {
    torch_functions.TruncToInt: "trunc",
    torch_functions.FloorToInt: "floor",
    torch_functions.CeilToInt: "ceil",
    torch_functions.RoundToInt: "round",
}
_RELATIONS = {sympy.Eq: "eq", sympy.Ne: "ne", sympy.Lt: "lt", sympy.Le: "le", sympy.Gt: "gt", sympy.Ge: "ge"}
_UNARY = "OpaqueUnaryFn_"  # torch's names of sqrt, exp, ...
_KNOWN = ("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "tanh", "sinh", "cosh", "asin", "acos", "atan")


def number_of(b: Builder, expr: Any, symbols: Symbols, known: Mapping[str, Value]) -> Value:
    """Return the 0-d f64 tensor that torch's expression of a float is. `known`: the values of those that were
    read from tensors, by symbol.

    Raises UnsupportedOp for a function that no kernel does.
    """
    if str(expr) in known:
        return B.tensor_of(b, known[str(expr)], "f64")
    if expr.is_integer:
        return B.full(b, symbols.translate(expr), "f64")
    if expr.is_number:
        return B.full(b, float(expr), "f64")
    args = [number_of(b, arg, symbols, known) for arg in expr.args]
    if isinstance(expr, _SAME):
        return args[0]
    if isinstance(expr, torch_functions.FloatPow | sympy.Pow):
        exponent = expr.args[1]
        return power(b, args[0], float(exponent) if exponent.is_number else args[1])
    for kind, op in _BINARY.items():
        if isinstance(expr, kind):
            return reduce(lambda x, y: B.pointwise(b, op, x, y), args)
    name = type(expr).__name__.removeprefix(_UNARY)
    if name in _KNOWN and type(expr).__name__ != name:
        return b.one(name, args[0])
    raise UnsupportedOp(f"the number {expr} cannot be compiled: no kernel computes {type(expr).__name__}")


def truth_of(b: Builder, condition: Any, symbols: Symbols, known: Mapping[str, Value]) -> Value:
    """Return the truth of torch's condition, whose numbers may be floats. `known`: as for `number_of`.

    Raises UnsupportedOp like `number_of`.
    """

    def compare(b: Builder, relation: Any) -> Value:
        sides = [number_of(b, side, symbols, known) for side in relation.args]
        return b.one("item", B.pointwise(b, _RELATIONS[type(relation)], *sides))

    return truth(b, condition, compare)


def define_roundings(b: Builder, expr: Any, symbols: Symbols, known: Mapping[str, Value]) -> set[str]:
    """Compute the floats in a size that are rounded to integers, such as ceil(n / 0.3), at run time, unless
    they are quotients of integers at all sizes. `symbols` knows their values from then on; `known`: as for
    `number_of`. Return the names of the values."""
    made = set()
    for part in sorted(expr.atoms(*_ROUNDINGS), key=lambda part: part.count_ops()):
        try:
            symbols.translate(part)
        except UnsupportedOp:
            number = number_of(b, part.args[0], symbols, known)
            size = B.size_of(b, b.one(_ROUNDINGS[type(part)], number))
            symbols.define(part, size)
            made.add(str(size))
    return made
