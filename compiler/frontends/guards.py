"""The assumptions of tracing about sizes: torch's guards, as conditions of the graph's contract.

torch.export writes them as Python text, such as "min(2, L['x'].size()[1]) == 2". Those that bound one symbol
narrow its range; the others become guards of the graph, so that sizes outside of the trace are refused, not
miscomputed.
"""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import lcm
from typing import Any

import sympy

from ..ir.dims import DimExpr, floordiv, rounded
from ..ir.errors import UnsupportedOp
from ..ir.graph import SymbolInfo
from ..ir.ranges import scaled
from .symbols import MAX_DENOMINATOR

_MOST_SIZE = 1 << 62
#: ("x", "b", "0"): the leaf x["b"][0] -> its sizes; the leaf itself, where it is an int.
Shapes = Mapping[tuple[str, ...], "tuple[DimExpr, ...] | DimExpr"]


class Rounded(sympy.Function):
    """A size times, or divided by, a positive float of too many bits for an exact result: f64 rounds it.
    Arguments: the size, the float, and whether it divides."""

    is_extended_real = True

    @classmethod
    def eval(cls, size: Any, factor: Any, divides: Any) -> Any:
        """Return the number for a known size, else None, as sympy asks."""
        return sympy.Rational(_rounded(int(size), factor, divides)) if size.is_Integer else None


def _rounded(size: int, factor: Any, divides: Any) -> float:
    return size / float(factor) if divides else size * float(factor)


def _times(a: Any, b: Any) -> Any:
    factor, size = sorted((a, b), key=lambda side: not side.is_Rational)
    return Rounded(size, factor, sympy.false) if _is_inexact(factor) and size.is_integer else a * b


def _divided(a: Any, b: Any) -> Any:
    return Rounded(a, b, sympy.true) if _is_inexact(b) and a.is_integer and not a.is_number else a / b


def _is_inexact(factor: Any) -> bool:
    return bool(factor.is_Rational) and factor > 0 and factor.q > MAX_DENOMINATOR


_BINARY: dict[type, Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: _times,
    ast.FloorDiv: lambda a, b: _floor(a / b),
    ast.Div: _divided,
    ast.Mod: sympy.Mod,
    ast.Pow: lambda a, b: a**b,
}
_COMPARE: dict[type, Any] = {
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
}


def _floor(x: Any) -> Any:
    if _stays(x):
        return sympy.floor(x)
    above, below = sympy.fraction(sympy.together(x))
    return floordiv(above, below) if below != 1 else x


def _ceil(x: Any) -> Any:
    return sympy.ceiling(x) if _stays(x) else -_floor(-x)


def _round(x: Any) -> Any:
    above, below = sympy.fraction(sympy.together(x))
    if not below.is_Integer:
        raise ValueError(f"{x} is no multiple of a fraction")
    return rounded(above, int(below))


def _stays(x: Any) -> bool:
    """Whether a number is no quotient of integers: it has roots, or f64 rounds it."""
    return any(not power.exp.is_Integer for power in x.atoms(sympy.Pow)) or x.has(Rounded)


def _truncated(x: Any) -> Any:
    if isinstance(x, sympy.Pow | Rounded) and _stays(x):  # of sizes, which are no less than 0
        return _floor(x)
    return x if x.is_integer else sympy.Max(_floor(x), 0) + sympy.Min(-_floor(-x), 0)


_CALLS: dict[str, Any] = {
    "min": sympy.Min,
    "max": sympy.Max,
    "abs": lambda a: sympy.Max(a, -a),
    "floor": _floor,
    "ceil": _ceil,
    "round": _round,
    "trunc": _truncated,
    "sym_float": lambda a: a,
    "float": lambda a: a,
    "Min": sympy.Min,
    "Max": sympy.Max,
    "sym_min": sympy.Min,  # from torch 2.14 on
    "sym_max": sympy.Max,
    "Mod": sympy.Mod,
}


def parse_guard(text: str, shapes: Shapes, symbols: dict[str, SymbolInfo]) -> Any:
    """Return a guard as a sympy relation, And, Or, Not or truth value. `symbols`: the contract. Conditions on
    strides count as true, because programs accept inputs of any layout.

    Raises UnsupportedOp if it is not a condition on sizes of inputs.
    """
    try:
        condition = ast.parse(text.strip(), mode="eval").body
        return sympy.true if _is_of_strides(condition) else _Parser(shapes, symbols).parse(condition)
    except (KeyError, SyntaxError, TypeError, ValueError) as error:
        raise UnsupportedOp(
            f"the exported program assumes {text!r}, which is no condition on the inputs' sizes"
        ) from error


def parts_of(condition: Any) -> Sequence[Any]:
    """Return the conditions that a parsed guard requires together: a product is not 0 if no factor is."""
    parts = condition.args if isinstance(condition, sympy.And) else (condition,)
    return [factor for part in parts for factor in _factors(part)]


def _factors(part: Any) -> Sequence[Any]:
    if isinstance(part, sympy.Ne) and part.rhs == 0 and isinstance(part.lhs, sympy.Mul):
        return [sympy.Ne(factor, 0) for factor in part.lhs.args if not factor.is_number]
    return (part,)


def _is_of_strides(condition: ast.expr) -> bool:
    """Return True for a comparison of an input's strides or storage offset, or for its negation."""
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return _is_of_strides(condition.operand)
    names = {node.attr for node in ast.walk(condition) if isinstance(node, ast.Attribute)}
    return isinstance(condition, ast.Compare) and bool(names & {"stride", "storage_offset"})


def shown_guard(text: str, shapes: Shapes) -> str:
    """Return a guard with the names that messages give to sizes: "s0 % 4 == 0" for
    "(L['x'].size()[0] % 4) == 0"."""
    return ast.unparse(_Shown(shapes).visit(ast.parse(text, mode="eval")))


class _Shown(ast.NodeTransformer):
    """Changes a guard as `shown_guard` returns it."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Name a size."""
        try:
            return ast.parse(str(_size(node, self.shapes)), mode="eval").body
        except (LookupError, ValueError, SyntaxError):
            return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Subtract, where sympy adds the product with -1."""
        self.generic_visit(node)
        match node:
            case ast.BinOp(op=ast.Add(), right=ast.BinOp(left=minus_1, op=ast.Mult(), right=right)):
                if ast.unparse(minus_1) == "-1":
                    return ast.BinOp(node.left, ast.Sub(), right)
        return node


class _Parser:
    """Reads a guard over sizes of inputs; a size that is multiplied by a float gets a bound in `symbols`.
    Quotients and floats are exact until they are rounded to integers or compared."""

    def __init__(self, shapes: Shapes, symbols: dict[str, SymbolInfo]) -> None:
        self.shapes, self.symbols = shapes, symbols

    def parse(self, node: ast.expr) -> Any:
        """Return the relation or number of a part. Raises ValueError, KeyError or TypeError for anything
        else."""
        match node:
            case ast.Constant(value=bool() | int()):
                return sympy.sympify(node.value)
            case ast.Constant(value=float(value)):
                return sympy.Rational(value)
            case ast.Subscript():
                return sympy.sympify(_size(node, self.shapes))
            case ast.BinOp(left=left, op=op, right=right):
                return _BINARY[type(op)](self.parse(left), self.parse(right))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return sympy.Not(self.parse(operand))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.parse(operand)
            case ast.BoolOp(op=op, values=values):
                return (sympy.And if isinstance(op, ast.And) else sympy.Or)(*map(self.parse, values))
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [self.parse(side) for side in (left, *others)]
                pairs = zip(ops, sides, sides[1:], strict=False)
                return sympy.And(*(_compared(_COMPARE[type(op)], a, b) for op, a, b in pairs))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
                return self._call(name, args)
        raise ValueError(ast.dump(node))

    def _call(self, name: str, args: list[ast.expr]) -> Any:
        if name in ("trunc", "floor") and (size := self._scaled(args[0])) is not None:
            return sympy.sympify(size)
        return _CALLS[name](*map(self.parse, args))

    def _scaled(self, product: ast.expr) -> DimExpr | None:
        """Return the whole part of factor * torch.sym_float(size), None for anything else."""
        match product:
            case ast.BinOp(
                left=ast.Constant(value=float(factor)),
                op=ast.Mult(),
                right=ast.Call(func=ast.Attribute(attr="sym_float"), args=[size]),
            ):
                return scaled(self.parse(size), factor, self.symbols)
        return None


def _compared(relation: Any, a: Any, b: Any) -> Any:
    """Return the relation of two numbers, without roots of sizes and without quotients: sizes are no less
    than 0, and above 0 in a denominator. Raises ValueError for a root that stays."""
    if isinstance(a, sympy.floor | sympy.ceiling) and b.is_Integer:
        return _compared_whole(relation, a, b)
    if isinstance(a, Rounded) and b.is_Rational:
        return _compared_rounded(relation, a, b)
    if a.is_Pow and a.exp.is_Rational and not a.exp.is_Integer and a.exp > 0 and b.is_Rational:
        return relation(a.base**a.exp.p, b**a.exp.q) if b >= 0 else relation(0, b)
    above, below = sympy.fraction(sympy.together(a - b))
    if _stays(above):
        raise ValueError(f"{a} beside {b}")
    return relation(a, b) if below == 1 else _compared_with_zero(relation, above)


def _compared_rounded(relation: Any, rounded_size: Rounded, b: Any) -> Any:
    """Return the relation as one of the size: what f64 rounds grows with it."""
    size, factor, divides = rounded_size.args
    sizes = range(_MOST_SIZE)
    first, behind = (
        search(sizes, b, key=lambda n: sympy.Rational(_rounded(n, factor, divides)))
        for search in (bisect_left, bisect_right)
    )
    return _by_steps(relation, sympy.Ge(size, first), sympy.Ge(size, behind))


def _compared_with_zero(relation: Any, x: Any) -> Any:
    """Return the relation of `x` and 0. A multiple of an integer is compared with an integer: the factors of
    floats, such as 2**59 for 0.001, would overflow."""
    constant, multiple = sympy.expand(x).as_coeff_Add()
    factor, whole = multiple.primitive()
    if not (whole.free_symbols and whole.is_integer):
        return relation(x, 0)
    bound = -constant / factor
    if relation in _ROUNDED:
        return relation(whole, _ROUNDED[relation](bound))
    return relation(whole, bound) if bound.is_Integer else sympy.sympify(relation is sympy.Ne)


_ROUNDED = {
    sympy.Lt: sympy.ceiling,
    sympy.Ge: sympy.ceiling,
    sympy.Gt: sympy.floor,
    sympy.Le: sympy.floor,
}


def _compared_whole(relation: Any, a: Any, b: Any) -> Any:
    """Return the relation of a number that is rounded down or up to an integer."""
    (x,) = a.args
    if isinstance(a, sympy.floor):
        reaches, exceeds = _compared(sympy.Ge, x, b), _compared(sympy.Ge, x, b + 1)
    else:
        reaches, exceeds = _compared(sympy.Gt, x, b - 1), _compared(sympy.Gt, x, b)
    return _by_steps(relation, reaches, exceeds)


def _by_steps(relation: Any, reaches: Any, exceeds: Any) -> Any:
    """Return the relation of a growing number and a bound, from when it reaches and when it exceeds it."""
    found = {
        sympy.Ge: reaches,
        sympy.Gt: exceeds,
        sympy.Lt: sympy.Not(reaches),
        sympy.Le: sympy.Not(exceeds),
        sympy.Eq: sympy.And(reaches, sympy.Not(exceeds)),
        sympy.Ne: sympy.Or(sympy.Not(reaches), exceeds),
    }
    return found[relation]


def _size(node: ast.Subscript, shapes: Shapes) -> DimExpr:
    """Return the size named by L['x'][..].size()[axis], or the int named by L['k']."""
    call = node.value
    if not isinstance(call, ast.Call):
        found = _leaf(node, shapes)
        if isinstance(found, tuple):
            raise ValueError(ast.dump(node))
        return found
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "size":
        raise ValueError(ast.dump(node))
    sizes = _leaf(call.func.value, shapes)
    if not isinstance(sizes, tuple):
        raise ValueError(ast.dump(node))
    return sizes[ast.literal_eval(node.slice)]


def _leaf(place: ast.expr, shapes: Shapes) -> tuple[DimExpr, ...] | DimExpr:
    path: list[str] = []
    while isinstance(place, ast.Subscript | ast.Attribute):
        key = place.attr if isinstance(place, ast.Attribute) else ast.literal_eval(place.slice)
        path.insert(0, str(key))
        place = place.value
    named = (f"{path[0]}_{path[1]}", *path[2:]) if len(path) > 1 else ("",)  # an element of *args
    for key in (tuple(path), (f"*{named[0]}", *named[1:]), named, tuple(path[1:])):  # the last: of **kwargs
        if key in shapes:
            return shapes[key]
    raise KeyError(tuple(path))


def excludes_0_and_1(condition: Any) -> str | None:
    """Return the symbol for which `condition` excludes only 0 or 1, such as s > 1; or None.

    torch checks these for every size (broadcasting, contiguity) for its own purposes: by a `Dim` whose range
    has 0 or 1 the user states that the model does not depend on them.
    """
    if isinstance(condition, sympy.Ne) and (size := _quotient_of_one(condition)):
        return size
    if isinstance(condition, sympy.Ne):
        low, high = _refused_value(condition)
        least = 0
    elif isinstance(condition, sympy.Le | sympy.Ge | sympy.Lt | sympy.Gt):
        low, high = condition.args if isinstance(condition, sympy.Le | sympy.Lt) else condition.args[::-1]
        least = 0 if isinstance(condition, sympy.Lt | sympy.Gt) else 1
    else:
        return None
    return (
        str(high) if isinstance(high, sympy.Symbol) and low.is_Integer and least <= low <= least + 1 else None
    )


def _refused_value(condition: sympy.Ne) -> tuple[Any, Any]:
    """Return (value, symbol) of the one value that `condition` excludes, such as 1 for 8*s != 8."""
    number, term = condition.args if condition.args[0].is_Integer else condition.args[::-1]
    factor, size = term.as_coeff_Mul()
    return sympy.sympify(number) / factor, size


def _quotient_of_one(condition: sympy.Ne) -> str | None:
    """Return s if `condition` is p % (p * s) != 0, which excludes only s = 1; else None."""
    rest, zero = condition.args
    found = [part for part in sympy.Mul.make_args(rest) if isinstance(part, sympy.Mod)]
    if zero != 0 or len(found) != 1:
        return None
    size = sympy.cancel(found[0].args[1] / found[0].args[0])
    return str(size) if isinstance(size, sympy.Symbol) else None


def narrow(symbols: dict[str, SymbolInfo], condition: Any) -> bool:
    """Narrow the range of the one symbol that `condition` bounds; return False for any other condition, also
    for one of values that are known at run time only."""
    if isinstance(condition, sympy.And) or not {str(name) for name in condition.free_symbols} <= set(symbols):
        return False
    if isinstance(condition, sympy.Eq):
        return _narrow_multiple(symbols, condition) or _narrow_extremum(symbols, condition)
    if not isinstance(condition, sympy.Le | sympy.Ge | sympy.Lt | sympy.Gt):
        return False
    low, high = condition.args if isinstance(condition, sympy.Le | sympy.Lt) else condition.args[::-1]
    strict = int(isinstance(condition, sympy.Lt | sympy.Gt))
    if isinstance(high, sympy.Symbol) and low.is_Integer:
        return _at_least(symbols, str(high), int(low) + strict)
    if isinstance(low, sympy.Symbol) and high.is_Integer:
        return _at_most(symbols, str(low), int(high) - strict)
    return False


def _narrow_multiple(symbols: dict[str, SymbolInfo], condition: sympy.Eq) -> bool:
    """Mod(s, k) == 0 says that s is a multiple of k."""
    for remainder, value in (condition.args, condition.args[::-1]):
        if isinstance(remainder, sympy.Mod) and value == 0:
            size, step = remainder.args
            if isinstance(size, sympy.Symbol) and step.is_Integer and step > 0:
                info = symbols[str(size)]
                symbols[str(size)] = replace(info, multiple_of=lcm(info.multiple_of, int(step)))
                return True
    return False


def _narrow_extremum(symbols: dict[str, SymbolInfo], condition: sympy.Eq) -> bool:
    """Min(k, s) == k says s >= k; Max(k, s) == k says s <= k."""
    for extremum, value in (condition.args, condition.args[::-1]):
        if (
            isinstance(extremum, sympy.Min | sympy.Max)
            and value.is_Integer
            and value in extremum.args
            and len(extremum.args) == 2
        ):
            (other,) = (arg for arg in extremum.args if arg != value)
            if isinstance(other, sympy.Symbol):
                change = _at_least if isinstance(extremum, sympy.Min) else _at_most
                return change(symbols, str(other), int(value))
    return False


def _at_least(symbols: dict[str, SymbolInfo], name: str, low: int) -> bool:
    symbols[name] = replace(symbols[name], min=max(symbols[name].min, low))
    return True


def _at_most(symbols: dict[str, SymbolInfo], name: str, high: int) -> bool:
    before = symbols[name].max
    symbols[name] = replace(symbols[name], max=high if before is None else min(before, high))
    return True


def changes(before: SymbolInfo, after: SymbolInfo) -> list[str]:
    """Return what guards have made of a size's range, in words. That 0 and 1 are left out does not count."""
    found = [f"at least {after.min}"] * (after.min > max(before.min, 2))
    found += [f"at most {after.max}"] * (after.max != before.max)
    return found + [f"a multiple of {after.multiple_of}"] * (after.multiple_of != before.multiple_of)
