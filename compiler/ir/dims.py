"""Symbolic dimensions: integer expressions over size symbols, on sympy.

A dimension is a Python `int` or a sympy expression over symbols made by `symbol()`. Expressions are kept
expanded, so structural equality is equality of polynomials. Division is floor division (`floordiv`),
remainder takes the sign of the divisor (`mod`), as Python's and the VM's do.
"""

from __future__ import annotations

import ast
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeAlias

import sympy
from sympy.core.function import Application

from .errors import ShapeError

DimExpr: TypeAlias = int | sympy.Expr
MAX_EXPANDED = 1 << 10  # terms
MAX_REMEMBERED = 1 << 14  # cached results of sympy, which takes milliseconds for each


class floordiv(sympy.Function):  # (a function's name in expressions)
    """floordiv(a, b) = floor(a / b). Multiples of b are extracted: floordiv(2*n + 5, 2) is n + 2. Nested
    divisions by numbers are merged: floordiv(floordiv(n, 2) + 1, 3) is floordiv(n + 2, 6)."""

    nargs = 2
    is_integer = True

    @classmethod
    def eval(cls, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
        """Return a simpler expression, or None (sympy's hook)."""
        if b == 1:
            return a
        if a.is_Integer and b.is_Integer and b != 0:
            return sympy.Integer(int(a) // int(b))
        whole = _whole_part(a, b)
        rest = sympy.expand(a - whole * b)
        if rest == 0:
            return whole
        once = _divided_once(rest, b)
        if once is not None:
            return whole + cls(*once)
        written = _without_remainders(rest), _without_remainders(b)
        if written != (rest, b) and (quotient := _quotient(*written)) is not None:
            return whole + quotient
        return whole + cls(rest, b) if whole != 0 else None


def rounded(above: sympy.Expr, below: int) -> sympy.Expr:
    """Return above / below as an integer, of two that are as near the even one (Python's `round`)."""
    doubled, step = 2 * above + below, sympy.Integer(2 * below)
    nearest = floordiv(doubled, step)
    if below % 2:
        return nearest
    beside = sympy.Mod(doubled, 2 * step) - step  # 0: it was rounded up to an odd number
    return nearest - 1 + sympy.Min(1, sympy.Max(beside, -beside))


def _divided_once(a: sympy.Expr, b: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr] | None:
    """Return (x + k*d, d*b) if `a` is floordiv(x, d) + k, and k, d and b are numbers, d and b above 0."""
    number, inner = a.as_coeff_Add()
    if not (isinstance(inner, floordiv) and number.is_Integer and b.is_Integer and b > 0):
        return None
    x, d = inner.args
    return (sympy.expand(x + number * d), d * b) if d.is_Integer and d > 0 else None


@lru_cache(maxsize=MAX_REMEMBERED)
def _whole_part(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """Return `a / b` if it is whole, else the sum of its whole terms, with the floor of a constant term."""
    quotient = sympy.cancel(a / b)
    if _is_whole(quotient):
        return sympy.expand(quotient)
    whole = sympy.Integer(0)
    for term in sympy.Add.make_args(sympy.expand(a)):
        quotient = sympy.cancel(term / b)
        if quotient.is_Rational:
            whole += sympy.floor(quotient)
        elif _is_whole(quotient):
            whole += quotient
    return sympy.expand(whole)


def _quotient(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    """Return `a / b` if b divides a, else None."""
    whole = _whole_part(a, b)
    return whole if sympy.expand(a - whole * b) == 0 else None


@lru_cache(maxsize=MAX_REMEMBERED)
def _without_remainders(a: sympy.Expr) -> sympy.Expr:
    """Return `a` with each Mod(x, m) by a number written as x - m*floordiv(x, m): n + Mod(-n, 64), which is n
    rounded up to a multiple of 64, is 64*(n - floordiv(63*n, 64)) then."""
    numbered = {
        mod: mod.args[0] - mod.args[1] * floordiv(*mod.args)
        for mod in a.atoms(sympy.Mod)
        if mod.args[1].is_Integer
    }
    return sympy.expand(a.xreplace(numbered)) if numbered else a


def _is_whole(quotient: sympy.Expr) -> bool:
    """Return True if `quotient` is a polynomial with integer coefficients in symbols and functions of
    FUNCTIONS."""
    if not quotient.free_symbols:
        return bool(quotient.is_Integer)
    polynomial = sympy.Poly(quotient)
    is_plain = all(each.is_Symbol or isinstance(each, Application) for each in polynomial.gens)
    return is_plain and all(c.is_Integer for c in polynomial.coeffs())


#: The name prefix of symbols of values that are read from tensors and may be negative; other values are
#: sizes.
SIGNED = "int_"


def symbol(name: str) -> sympy.Symbol:
    """Return the symbol `name`, an integer. Its sign is known only from its range in the graph or, for a
    value that is read from a tensor, from its name (SIGNED)."""
    return sympy.Symbol(name, integer=True)


def simplify(dim: DimExpr) -> DimExpr:
    """Return `dim` in canonical form: an int if it is constant, else an expanded expression."""
    return dim if isinstance(dim, int) else _expanded(dim)


@lru_cache(maxsize=MAX_REMEMBERED)
def _expanded(dim: sympy.Expr) -> DimExpr:
    if (n := _n_terms(dim)) > MAX_EXPANDED:
        raise ShapeError(f"a size may have {n} terms, expanded; at most {MAX_EXPANDED} are allowed")
    expanded = sympy.expand(dim)
    # sympy factors Max(Min(t, 1), Min(t, 0)) to Min(t, Max(0, 1)) and leaves it so.
    if left := [e for e in expanded.atoms(sympy.Min, sympy.Max) if not e.free_symbols]:
        expanded = sympy.expand(expanded.xreplace({e: e.func(*e.args) for e in left}))
    return int(expanded) if expanded.is_Integer else expanded


def _n_terms(dim: sympy.Expr) -> int:
    """Return an upper bound of the number of terms of `dim` when expanded."""
    if isinstance(dim, sympy.Add):
        return sum(map(_n_terms, dim.args))
    if isinstance(dim, sympy.Mul):
        return prod(map(_n_terms, dim.args))
    if isinstance(dim, sympy.Pow) and dim.exp.is_Integer and dim.exp > 0:
        return _n_terms(dim.base) ** int(min(dim.exp, MAX_EXPANDED))
    return 1


def product(dims: Iterable[DimExpr]) -> DimExpr:
    """Return the product of `dims` (1 for none)."""
    return _product(tuple(dims))


@lru_cache(maxsize=MAX_REMEMBERED)
def _product(dims: tuple[DimExpr, ...]) -> DimExpr:
    return simplify(prod(dims))


def equal(a: DimExpr, b: DimExpr) -> bool:
    """Return True if `a` and `b` are equal for all values of their symbols (False: not proved)."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(a == b) or _equal_expressions(a, b)


@lru_cache(maxsize=MAX_REMEMBERED)
def _equal_expressions(a: DimExpr, b: DimExpr) -> bool:
    difference = sympy.sympify(simplify(sympy.sympify(a) - b))
    return difference == 0 or _without_remainders(difference) == 0


#: The size of an axis that may differ among the tensors of a list. It is not a symbol of the contract.
OPEN = sympy.Symbol("_", integer=True, nonnegative=True)


def symbols_of(dim: DimExpr) -> frozenset[str]:
    """Return the names of the symbols in `dim`."""
    return frozenset() if isinstance(dim, int) else _symbols_of(dim)


@lru_cache(maxsize=MAX_REMEMBERED)
def _symbols_of(dim: sympy.Expr) -> frozenset[str]:
    return frozenset(str(s) for s in dim.free_symbols if s != OPEN)


def evaluate(dim: DimExpr, values: Mapping[str, int]) -> int:
    """Return the value of `dim` with symbols replaced. Raises KeyError for a missing symbol."""
    if isinstance(dim, int):
        return dim
    return _evaluate(dim, tuple((name, values[name]) for name in _symbols_of(dim)))


@lru_cache(maxsize=MAX_REMEMBERED)
def _evaluate(dim: sympy.Expr, values: tuple[tuple[str, int], ...]) -> int:
    return int(dim.subs({symbol(name): value for name, value in values}))


def format_dim(dim: DimExpr) -> str:
    """Return `dim` as text that `parse_dim` reads back: Python with +, -, *, ** and those of FUNCTIONS."""
    return str(dim).replace(" ", "")


FUNCTIONS = {"floordiv": floordiv, "Mod": sympy.Mod, "Min": sympy.Min, "Max": sympy.Max}
MAX_TEXT = 1 << 16  # characters of a dimension's text
MAX_POWER = 16  # exponent: short text must not take long to expand
MAX_TERMS = 256  # of a dimension, expanded
MAX_BITS = 128  # of a coefficient; sizes have 64
MAX_DEPTH = 16  # of nested functions
MAX_WORK = 1 << 13  # of a dimension; see _Bound
MAX_WORK_OF_TEXT = 1 << 16  # of all dimensions of a text
_left: ContextVar[int | None] = ContextVar("_left", default=None)


@contextmanager
def limited_work() -> Iterator[None]:
    """Let the dimensions that the block parses take MAX_WORK_OF_TEXT together."""
    token = _left.set(MAX_WORK_OF_TEXT)
    try:
        yield
    finally:
        _left.reset(token)


@dataclass(frozen=True)
class _Bound:
    """Bounds of an expression, computed without sympy: terms and bits of coefficients when expanded, nesting
    depth of functions, and work, about 0.1 ms a unit."""

    terms: int = 1
    bits: int = 1
    depth: int = 0
    work: int = 0

    def check(self) -> _Bound:
        """Return the bound. Raises ValueError if the expression would take too long to expand."""
        for what, found, most in (
            ("terms", self.terms, MAX_TERMS),
            ("bits in a number", self.bits, MAX_BITS),
            ("functions in each other", self.depth, MAX_DEPTH),
            ("units of work", self.work, MAX_WORK),
        ):
            if found > most:
                raise ValueError(f"dimension: it may have {found} {what}; at most {most} are allowed")
        return self


def _bound(node: ast.AST) -> _Bound:
    """Return the bound of an expression. Raises ValueError for one that would take too long to expand."""
    if isinstance(node, ast.Constant):
        return _Bound(bits=node.value.bit_length() if isinstance(node.value, int) else 1)
    children = node.args if isinstance(node, ast.Call) else list(ast.iter_child_nodes(node))
    parts = [_bound(child) for child in children if isinstance(child, ast.expr)]
    terms, depth = sum(part.terms for part in parts), max((part.depth for part in parts), default=0)
    bits, work = max((part.bits for part in parts), default=1), sum(part.work for part in parts)
    match getattr(node, "op", None):
        case ast.Mult():
            product_bits = sum(part.bits for part in parts)
            terms = prod(part.terms for part in parts)
            return _Bound(terms, product_bits, depth, work + terms).check()
        case ast.Pow() if isinstance(power := getattr(node, "right", None), ast.Constant):
            n = power.value if isinstance(power.value, int) and 0 <= power.value <= MAX_POWER else 1
            terms = parts[0].terms ** n
            return _Bound(terms, parts[0].bits * n, depth, work + terms).check()
        case ast.Add() | ast.Sub() | ast.USub():
            return _Bound(terms, bits, depth, work + terms // 8).check()
    if not parts:
        return _Bound()
    is_by_number = len(parts) == 2 and isinstance(children[-1], ast.Constant)
    work += (4 * terms if is_by_number else terms**3) * (depth + 1)
    return _Bound(terms, bits, depth + 1, work).check()


def parse_dim(text: str) -> DimExpr:
    """Return the dimension written as `text`. Raises ValueError naming the offending part."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"dimension: {len(text)} characters; at most {MAX_TEXT} are allowed")
    try:
        return _parsed(text.strip())
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"dimension {reprlib.repr(text)}: not an expression") from error
    except ZeroDivisionError:
        raise ValueError(f"dimension {reprlib.repr(text)}: a division by 0") from None


@lru_cache(maxsize=MAX_REMEMBERED >> 4)
def _parsed(text: str) -> DimExpr:
    body = ast.parse(text, mode="eval").body
    bound, left = _bound(body), _left.get()
    if left is not None:
        if bound.work > left:
            raise ValueError(
                f"the text's dimensions take more than {MAX_WORK_OF_TEXT} units of work together"
            )
        _left.set(left - bound.work)
    return simplify(_parse(body))


def _parse(node: ast.expr) -> DimExpr:
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value < 1 << 63:
        return node.value
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_parse(node.operand)
    if isinstance(node, ast.BinOp):
        a, b = _parse(node.left), _parse(node.right)
        match node.op:
            case ast.Add():
                return a + b
            case ast.Sub():
                return a - b
            case ast.Mult():
                return a * b
            case ast.FloorDiv():
                return _function("floordiv", [a, b])
            case ast.Mod():
                return _function("Mod", [a, b])
            case ast.Pow() if isinstance(b, int) and 0 <= b <= MAX_POWER:
                return a**b
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        return _function(node.func.id, [_parse(arg) for arg in node.args])
    shown = reprlib.repr(ast.unparse(node))
    raise ValueError(f"dimension: {shown} is no sum, product, floordiv, Mod, Min or Max of symbols and ints")


def _function(name: str, args: list[DimExpr]) -> DimExpr:
    is_division = name in ("floordiv", "Mod")
    if len(args) != 2 if is_division else not args:
        raise ValueError(f"dimension: {name} has {len(args)} arguments")
    if is_division and args[1] == 0:
        raise ZeroDivisionError
    return FUNCTIONS[name](*map(sympy.sympify, args))
