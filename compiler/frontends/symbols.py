"""torch.export's symbolic sizes as dimensions, and their ranges as the graph's contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from fractions import Fraction
from math import lcm
from typing import Any, cast

import sympy
import torch
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanAtom, BooleanFunction
from torch.utils._sympy import functions as torch_functions

from ...vm.layout import INT_MAX, INT_MIN
from ..ir.dims import SIGNED, DimExpr, floordiv, rounded, simplify, symbol
from ..ir.errors import UnsupportedOp
from ..ir.graph import SymbolInfo
from ..ir.ranges import MAX_SCALED, scaled

MAX_DENOMINATOR = 1 << 20  # of numbers that f64 computes exactly

_FUNCTIONS: dict[type, Callable[..., Any]] = {
    torch_functions.FloorDiv: floordiv,
    torch_functions.CleanDiv: floordiv,
    torch_functions.Mod: sympy.Mod,
    torch_functions.PythonMod: sympy.Mod,
    torch_functions.Max: sympy.Max,
    sympy.Abs: lambda a: sympy.Max(a, -a),
    torch_functions.Min: sympy.Min,
    torch_functions.ModularIndexing: lambda base, divisor, modulus: sympy.Mod(
        floordiv(base, divisor), modulus
    ),
}


class Symbols:
    """The size symbols of one program. `contract`: the facts about each, by its name in our graph.

    A size has the name of the user's `Dim`, else s0, s1, ... in the order of the inputs;
    values read from tensors are u0, u1, ..., and int_0, int_1, ... if they may be negative.
    """

    def __init__(
        self,
        sizes: Sequence[tuple[torch.SymInt, Any]],
        ranges: Mapping[Any, Any],
        least: int | None = None,
        ints: Set[str] = frozenset(),
    ) -> None:
        """`sizes`: (size, the user's Dim or None) of every dynamic axis of the inputs, plain symbols first;
        `ranges`: torch's ValueRanges of its symbols; `least`: the lower bound of unspecified ranges, for
        which torch.export has 2; None: torch.export's; `ints`: torch's names of int inputs that are not
        sizes, and so may be negative."""
        self._names: dict[str, str] = {}  # torch's name -> ours
        self._dims: dict[Any, DimExpr] = {}
        self._fixed: dict[str, DimExpr] = {}  # constant values of our symbols
        self._defined: dict[Any, DimExpr] = {}  # torch's expressions that were computed by operators
        self.contract: dict[str, SymbolInfo] = {}
        for axis_size, dim in sizes:
            self._name(axis_size, dim)
        roots = [getattr(dim, "root", dim) for _, dim in sizes if dim is not None]
        given = {dim.__name__: dim for dim in roots if hasattr(dim, "__name__")}
        self.of_user = {name for name in self._names.values() if name in given}  # those that have a Dim
        self._ranges = {str(key): (finite(r.lower), finite(r.upper)) for key, r in ranges.items()}
        hints = {str(size.node.expr): dim for size, dim in sizes if dim is not None}
        #: Sizes that are checked at 0 and 1 if these are in range, whatever tracing assumed.
        self.tried = set(self._names.values()) if least is not None else set(self.of_user)
        for key, name in list(self._names.items()):
            low, high = self._ranges.get(key, (0, None))
            if key in ints and low is None:
                low = INT_MIN
            asked = getattr(given.get(name, hints.get(key)), "min", None)
            if asked is not None and (asked <= 1 or name not in given):
                low = asked  # the export's own bound of 2 only keeps 0 and 1 out of its tracing
            elif least is not None and name not in given and low != INT_MIN:
                low = least if low == 2 else max(low or 0, least)
            why = f"dynamic_shapes: {name}" if name in given else ""
            self.contract[name] = SymbolInfo(name, max(low or 0, INT_MIN if key in ints else 0), high, 1, why)
        self.ints = {self._names[key] for key in ints if key in self._names}

    def limits(self, size: torch.SymInt) -> tuple[int | None, int | None]:
        """Return the range that the program needs of a value read from a tensor; None: no limit."""
        return self._ranges.get(str(size.node.expr), (0, None))

    def _is_signed(self, name: str) -> bool:
        """Whether a value read from a tensor may be negative, and so is not a size."""
        low, _ = self._ranges.get(name, (0, None))
        return low is None or low < 0

    def _name(self, size: Any, dim: Any) -> None:
        """Name the symbols of one dynamic axis."""
        free = sorted(size.node.expr.free_symbols, key=str)
        root = getattr(dim, "root", dim)
        name = getattr(root, "__name__", None)
        for torch_symbol in free:
            if str(torch_symbol) not in self._names:
                taken = (
                    name is None
                    or len(free) > 1
                    or name in self._names.values()
                    or not str(name).isidentifier()
                )
                self._names[str(torch_symbol)] = self._fresh("s") if taken else str(name)

    def _fresh(self, start: str) -> str:
        used = set(self._names.values())
        return next(f"{start}{i}" for i in range(len(used) + 1) if f"{start}{i}" not in used)

    def _our_name(self, name: str) -> str:
        if name not in self._names:
            is_read = name.startswith(("u", "zu"))
            self._names[name] = self._fresh(("s", SIGNED if self._is_signed(name) else "u")[is_read])
        return self._names[name]

    def dim(self, size: int | torch.SymInt) -> DimExpr:
        """Return a size of torch's as a dimension. Raises UnsupportedOp for functions that dimensions do not
        have."""
        if isinstance(size, int):
            return size
        expr = size.node.expr
        if expr not in self._dims:
            self._dims[expr] = simplify(self.translate(expr))
        return self._dims[expr]

    def dim_or_define(self, size: int | torch.SymInt, ours: DimExpr) -> DimExpr:
        """Return torch's size as a dimension; if dimensions cannot express it, it is `ours` from now on."""
        try:
            return self.dim(size)
        except UnsupportedOp:
            self.define(cast(torch.SymInt, size).node.expr, ours)
            return ours

    def define(self, expr: Any, ours: DimExpr) -> None:
        """Let torch's expression, which operators computed, be `ours` from now on."""
        self._defined[expr] = ours

    def condition(self, found: torch.SymBool) -> Any:
        """Return a condition on sizes as a sympy relation, And, Or, Not or truth value."""
        return self.translate(found.node.expr)

    def knows(self, expr: Any) -> bool:
        """Return True if all symbols of torch's expression have a name here."""
        return all(str(name) in self._names for name in expr.free_symbols)

    def _scaled(self, expr: Any) -> DimExpr:
        """Return the whole part of a size times a float."""
        found = _factor_and_size(expr.args[0])
        result = None
        if found is not None:
            result = scaled(simplify(self.translate(found[1])), found[0], self.contract)
        if result is None:
            raise UnsupportedOp(
                f"the size {expr} cannot be compiled: it is no quotient of integers for all sizes in range; "
                f"give the size itself, or a bound of at most {MAX_SCALED}"
            )
        return result

    def _quotient(self, expr: Any) -> tuple[Any, int]:
        """Return the dividend and the divisor of the rounded quotient in `expr`: (size * a + b) / c of
        numbers that are exact in few bits."""
        (quotient,) = expr.args
        if isinstance(quotient, torch_functions.IntTrueDiv) and quotient.args[1].is_Integer:
            return self.translate(quotient.args[0]), int(quotient.args[1])
        top, by = quotient.args if isinstance(quotient, torch_functions.FloatTrueDiv) else (quotient, 1)
        terms = top.args if top.is_Add else (top,)
        added = sum((Fraction(float(term)) for term in terms if term.is_number), Fraction(0))
        products = [_factor_and_size(term) for term in terms if not term.is_number]
        numbers = [added, *(Fraction(found[0]) for found in products if found is not None)]
        is_whole = all(number.denominator <= MAX_DENOMINATOR for number in numbers)
        divisor = Fraction(float(by)) if getattr(by, "is_number", True) else Fraction(0)
        if None in products or not is_whole or not divisor > 0 or divisor.denominator > MAX_DENOMINATOR:
            raise UnsupportedOp(f"the size {expr} cannot be compiled: it is no quotient of integers")
        scale = lcm(divisor.denominator, *(number.denominator for number in numbers))
        total = sympy.Integer(int(added * scale))
        for factor, size in cast(list[tuple[float, Any]], products):
            total += int(Fraction(factor) * scale) * self.translate(size)
        return total, int(divisor * scale)

    def _whole_quotient(self, quotient: Any, up: bool = False) -> Any:
        """Return a quotient of two sizes, rounded to an integer; None for anything else."""
        if not isinstance(quotient, torch_functions.IntTrueDiv):
            return None
        above, below = map(self.translate, quotient.args)
        return -floordiv(-above, below) if up else floordiv(above, below)

    def fix(self, name: str, value: DimExpr) -> None:
        """Fix a size to the number, or the expression of other sizes, that it always equals."""
        self._fixed[name] = value
        self.contract.pop(name, None)
        self._dims.clear()

    def translate(self, expr: Any) -> Any:
        """Return torch's expression in our symbols and functions. Raises UnsupportedOp like `dim`."""
        if expr in self._defined:
            return sympy.sympify(self._defined[expr])
        if isinstance(expr, sympy.Symbol):
            name = self._our_name(str(expr))
            return sympy.sympify(self._fixed[name]) if name in self._fixed else symbol(name)
        if isinstance(expr, sympy.Integer | BooleanAtom):
            return expr
        if isinstance(expr, torch_functions.TruncToInt | torch_functions.FloorToInt):
            whole = self._whole_quotient(expr.args[0])
            return self._scaled(expr) if whole is None else whole
        if isinstance(expr, torch_functions.CeilToInt):
            whole = self._whole_quotient(expr.args[0], up=True)
            if whole is not None:
                return whole
            above, below = self._quotient(expr)
            return simplify(floordiv(above + below - 1, sympy.Integer(below)))
        if isinstance(expr, torch_functions.RoundToInt):
            return simplify(rounded(*self._quotient(expr)))
        if isinstance(expr, sympy.Piecewise) and (number := _number_of_truth(expr)) is not None:
            return self.translate(number)
        args = [self.translate(arg) for arg in expr.args]
        for kind, function in _FUNCTIONS.items():
            if isinstance(expr, kind):
                return function(*args)
        if isinstance(expr, _KEPT) and not expr.is_Rational:
            return expr.func(*args)
        raise UnsupportedOp(f"the size {expr} cannot be compiled: sizes are made of + - * // % min and max")


def _number_of_truth(pieces: sympy.Piecewise) -> sympy.Symbol | None:
    """Return x for torch.export's form of a truth value as a number, (1 if x == 1 else 0); else None."""
    first, *rest = pieces.args
    is_number = first.cond.is_Equality and first.cond.lhs.is_Symbol and first.cond.rhs == first.expr == 1
    return first.cond.lhs if is_number and rest == [(0, True)] else None


def _factor_and_size(product: Any) -> tuple[float, Any] | None:
    """Return (factor, size) of a float times a size, or of a size made a float."""
    factors = [arg for arg in product.args if arg.is_Float] if product.is_Mul else []
    sizes = [arg for arg in product.args if not arg.is_Float] if product.is_Mul else [product]
    if len(sizes) != 1 or not isinstance(sizes[0], torch_functions.ToFloat):
        return None
    return float(factors[0]) if factors else 1.0, sizes[0].args[0]


_KEPT = (sympy.Add, sympy.Mul, sympy.Pow, sympy.Min, sympy.Max, sympy.Mod, Relational, BooleanFunction)


def finite(bound: Any) -> int | None:
    """Return a bound of torch's ranges as an int; None if every i64 is within it."""
    return int(bound) if INT_MIN < bound < INT_MAX else None
