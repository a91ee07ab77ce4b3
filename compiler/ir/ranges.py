"""Bounds of dimension expressions, from the ranges of their symbols: interval arithmetic.

Used to resolve clamps (of slices) at compile time if the contract decides them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
import sympy

from ...vm.layout import INT_MIN
from .dims import SIGNED, DimExpr, floordiv, simplify
from .graph import SymbolInfo

Bounds = tuple[int | None, int | None]  # inclusive; None: unbounded


def bounds(dim: DimExpr, symbols: Mapping[str, SymbolInfo]) -> Bounds:
    """Return (lowest, highest) value that `dim` may take; an unknown symbol is any integer >= 0, or any
    integer at all if its name is SIGNED."""
    if isinstance(dim, int | sympy.Integer):
        return int(dim), int(dim)
    if isinstance(dim, sympy.Symbol):
        info = symbols.get(str(dim))
        if info is None:
            return None if str(dim).startswith(SIGNED) else 0, None
        return None if info.min == INT_MIN else info.min, info.max
    args = [bounds(arg, symbols) for arg in dim.args]
    if isinstance(dim, sympy.Add):
        return _sum(args)
    if isinstance(dim, sympy.Mul):
        return _fold_product(args)
    if isinstance(dim, sympy.Pow) and isinstance(dim.exp, sympy.Integer) and dim.exp > 0:
        return _fold_product([args[0]] * int(dim.exp))
    if isinstance(dim, sympy.Min):
        highs = [high for _, high in args if high is not None]
        lows = [low for low, _ in args if low is not None]
        return (min(lows) if len(lows) == len(args) else None, min(highs) if highs else None)
    if isinstance(dim, sympy.Max):
        highs = [high for _, high in args if high is not None]
        lows = [low for low, _ in args if low is not None]
        return (max(lows) if lows else None, max(highs) if len(highs) == len(args) else None)
    if isinstance(dim, floordiv) and isinstance(dim.args[1], sympy.Integer) and dim.args[1] > 0:
        divisor = int(dim.args[1])
        low, high = args[0]
        return None if low is None else low // divisor, None if high is None else high // divisor
    if isinstance(dim, sympy.Mod) and isinstance(dim.args[1], sympy.Integer) and dim.args[1] > 0:
        return 0, int(dim.args[1]) - 1
    return None, None


def always_at_most(a: DimExpr, b: DimExpr, symbols: Mapping[str, SymbolInfo]) -> bool:
    """Return True if a <= b for all values in range (False: not proved)."""
    if isinstance(a, int) and isinstance(b, int):
        return a <= b
    if isinstance(a, sympy.Max):
        return all(always_at_most(each, b, symbols) for each in a.args)
    low, _ = bounds(sympy.expand(sympy.sympify(b) - a), symbols)
    if low is not None and low >= 0:
        return True
    (_, high), (low, _) = bounds(a, symbols), bounds(b, symbols)
    return high is not None and low is not None and high <= low


#: The greatest bound of a size that is multiplied by a float: the product is checked for each value.
MAX_SCALED = 2**20


def scaled(
    dim: DimExpr, factor: float, symbols: dict[str, SymbolInfo], dtype: type[np.floating] = np.float64
) -> DimExpr | None:
    """Return floor(dim * factor), as `dtype` computes it, as a quotient of integers; None if no quotient is
    the same for all values in range, or if `dim` may be negative, because truncation is not floor there.
    Factors that are not exact in few bits need a range up to MAX_SCALED, which becomes the bound of an
    unbounded symbol.
    """
    low, _ = bounds(dim, symbols)
    if low is None or low < 0:
        return None
    ratio = Fraction(factor)
    if ratio.denominator > 1024:
        ratio = ratio.limit_denominator(10_000)
        info = symbols.get(str(dim))
        is_open = info is not None and info.max is None
        high = MAX_SCALED if is_open else bounds(dim, symbols)[1]
        if high is None or high > MAX_SCALED:
            return None
        sizes = np.arange(low, high + 1)
        found = np.floor(sizes.astype(dtype) * dtype(factor)).astype(np.int64)
        if (sizes * ratio.numerator // ratio.denominator != found).any():
            return None
        if info is not None and is_open:
            symbols[info.name] = replace(info, max=MAX_SCALED)
    quotient = floordiv(sympy.sympify(dim) * ratio.numerator, sympy.Integer(ratio.denominator))
    return simplify(quotient)


def _sum(args: list[Bounds]) -> Bounds:
    lows, highs = [low for low, _ in args], [high for _, high in args]
    low = None if None in lows else sum(x for x in lows if x is not None)
    high = None if None in highs else sum(x for x in highs if x is not None)
    return low, high


def _fold_product(args: list[Bounds]) -> Bounds:
    result = args[0]
    for factor in args[1:]:
        result = _product(result, factor)
    return result


def _product(a: Bounds, b: Bounds) -> Bounds:
    if None not in a and None not in b:
        corners = [x * y for x in a for y in b if x is not None and y is not None]
        return min(corners), max(corners)
    if a[0] is not None and a[0] >= 0 and b[0] is not None and b[0] >= 0:
        return a[0] * b[0], None
    for x, y in ((a, b), (b, a)):  # a negative constant times something unbounded above
        if x[0] is not None and x[0] == x[1] and x[0] < 0:
            low, high = y
            return None if high is None else x[0] * high, None if low is None else x[0] * low
    return None, None
