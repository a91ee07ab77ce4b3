"""What tracing assumed of sizes: torch's guards, as conditions of the graph's contract.

torch.export writes them as Python text, such as "min(2, L['x'].size()[1]) == 2". Those that bound one symbol
narrow its range; the others become guards of the graph, so that a size that was not traced for is refused,
not miscomputed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from math import lcm
from typing import Any

import sympy

from ..ir.dims import DimExpr, floordiv
from ..ir.errors import UnsupportedOp
from ..ir.graph import SymbolInfo
from ..ir.ranges import scaled

#: ("x", "b", "0"): the leaf x["b"][0] -> its sizes; the leaf itself, where it is an int.
Shapes = Mapping[tuple[str, ...], "tuple[DimExpr, ...] | DimExpr"]

_BINARY: dict[type, Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
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
_CALLS: dict[str, Any] = {"min": sympy.Min, "max": sympy.Max, "abs": lambda a: sympy.Max(a, -a)}


def parse_guard(text: str, shapes: Shapes, symbols: dict[str, SymbolInfo]) -> Any:
    """Return a guard as a sympy relation, And, Or, Not or truth value. `symbols`: the contract. What it says
    of strides holds: programs take inputs however they lie in memory.

    Raises UnsupportedOp where it says something other than a condition on sizes of inputs.
    """
    try:
        condition = ast.parse(text.strip(), mode="eval").body
        return sympy.true if _is_of_strides(condition) else _Parser(shapes, symbols).parse(condition)
    except (KeyError, SyntaxError, TypeError, ValueError) as error:
        raise UnsupportedOp(
            f"the exported program assumes {text!r}, which is no condition on the inputs' sizes"
        ) from error


def _is_of_strides(condition: ast.expr) -> bool:
    """Return True for a comparison of an input's strides or place in memory, or for its opposite."""
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return _is_of_strides(condition.operand)
    names = {node.attr for node in ast.walk(condition) if isinstance(node, ast.Attribute)}
    return isinstance(condition, ast.Compare) and bool(names & {"stride", "storage_offset"})


def shown_guard(text: str) -> str:
    """Return a guard for people: "(x.shape[0] % 4) == 0" for "(L['x'].size()[0] % 4) == 0"."""
    return re.sub(r"L\['([^']+)'\]((?:\[[^\]]+\]|\.(?!size\b)\w+)*)\.size\(\)", r"\1\2.shape", text)


class _Parser:
    """Reads a guard over sizes of inputs; a size that is multiplied by a float gets a bound in `symbols`."""

    def __init__(self, shapes: Shapes, symbols: dict[str, SymbolInfo]) -> None:
        self.shapes, self.symbols = shapes, symbols

    def parse(self, node: ast.expr) -> Any:
        """Return the relation or size of a part. Raises ValueError, KeyError or TypeError for anything
        else."""
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
            return sympy.sympify(node.value)
        if isinstance(node, ast.Subscript):
            return sympy.sympify(_size(node, self.shapes))
        if isinstance(node, ast.BinOp):
            return _BINARY[type(node.op)](self.parse(node.left), self.parse(node.right))
        if isinstance(node, ast.UnaryOp):
            value = self.parse(node.operand)
            return sympy.Not(value) if isinstance(node.op, ast.Not) else -value
        if isinstance(node, ast.BoolOp):
            join = sympy.And if isinstance(node.op, ast.And) else sympy.Or
            return join(*map(self.parse, node.values))
        if isinstance(node, ast.Compare):
            sides = [self.parse(side) for side in (node.left, *node.comparators)]
            return sympy.And(
                *(_COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False))
            )
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return _CALLS[node.func.id](*map(self.parse, node.args))
        return self._scaled(node)

    def _scaled(self, node: ast.expr) -> Any:
        """Return the size of math.trunc(factor * torch.sym_float(size))."""
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="math"), attr="trunc" | "floor"),
                args=[
                    ast.BinOp(
                        left=ast.Constant(value=float(factor)),
                        op=ast.Mult(),
                        right=ast.Call(
                            func=ast.Attribute(value=ast.Name(id="torch"), attr="sym_float"), args=[size]
                        ),
                    )
                ],
            ):
                result = scaled(self.parse(size), factor, self.symbols)
                if result is not None:
                    return sympy.sympify(result)
        raise ValueError(ast.dump(node))


def _size(node: ast.Subscript, shapes: Shapes) -> DimExpr:
    """Return the size that L['x'][..].size()[axis] names, or the int that L['k'] does."""
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
    """Return the symbol of which `condition` refuses 0 or 1 and nothing else, such as s > 1; or None.

    torch asks these questions of every size (does it broadcast? is it contiguous?), and they are its own: a
    `Dim` whose range has 0 or 1 is the user's word that the model does not care.
    """
    if isinstance(condition, sympy.Ne) and (size := _quotient_of_one(condition)):
        return size
    if isinstance(condition, sympy.Ne):
        low, high = condition.args[::-1] if isinstance(condition.args[0], sympy.Symbol) else condition.args
        least = 0
    elif isinstance(condition, sympy.Le | sympy.Ge | sympy.Lt | sympy.Gt):
        low, high = condition.args if isinstance(condition, sympy.Le | sympy.Lt) else condition.args[::-1]
        least = 0 if isinstance(condition, sympy.Lt | sympy.Gt) else 1
    else:
        return None
    return (
        str(high) if isinstance(high, sympy.Symbol) and low.is_Integer and least <= low <= least + 1 else None
    )


def _quotient_of_one(condition: sympy.Ne) -> str | None:
    """Return s where `condition` is p % (p * s) != 0, which only an s of 1 refuses; else None."""
    rest, zero = condition.args
    found = [part for part in sympy.Mul.make_args(rest) if isinstance(part, sympy.Mod)]
    if zero != 0 or len(found) != 1:
        return None
    size = sympy.cancel(found[0].args[1] / found[0].args[0])
    return str(size) if isinstance(size, sympy.Symbol) else None


def narrow(symbols: dict[str, SymbolInfo], condition: Any) -> bool:
    """Narrow the range of the one symbol that `condition` bounds; return False where it is no such
    condition."""
    if isinstance(condition, sympy.And):
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
