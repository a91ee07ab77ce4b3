"""Conditions on sizes as plain values, and guards: conditions that the contract does not prove are checked at
every call."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import sympy

from ..ir.dims import DimExpr, simplify, symbol
from ..ir.errors import ShapeError, UnsupportedOp
from ..ir.graph import FOUND, Builder, Node, Value
from ..ir.ranges import always_at_most

#: sympy's relation -> (our op, whether its sides are exchanged).
_RELATIONS: dict[Any, tuple[str, bool]] = {
    sympy.Eq: ("int_eq", False),
    sympy.Ne: ("int_ne", False),
    sympy.Lt: ("int_lt", False),
    sympy.Le: ("int_le", False),
    sympy.Gt: ("int_lt", True),
    sympy.Ge: ("int_le", True),
}


def add_guard(b: Builder, condition: Any, message: str) -> None:
    """Append a guard that `condition` (a sympy relation, And, Or, Not or truth value) holds, unless it always
    does.

    Raises ShapeError if it never does.
    """
    if condition is False or condition == sympy.false:
        raise ShapeError(f"a condition on sizes never holds: {message}", source=b.source)
    condition = _as_bounds(condition)
    for part in condition.args if isinstance(condition, sympy.And) else (condition,):
        if not is_proved(b, part):
            if b.assume is not None:
                b.assume(part)
            append_guard(b, part, message)


def append_guard(b: Builder, condition: Any, message: str) -> None:
    """Append a guard that `condition` holds, whatever the contract proves."""
    holds, message = truth(b, condition), _without_names(b, condition, message)
    if text := _with_numbers(b, condition, message):
        b.apply("guard", holds, text)
    else:
        b.apply("guard", holds, message=message)


def equation(one: DimExpr, other: DimExpr) -> Any:
    """Return the condition that two sizes are equal. Where they have clamps, sympy does not compare each with
    each, which takes seconds."""
    one, other = sympy.sympify(one), sympy.sympify(other)
    has_clamps = one.has(sympy.Min, sympy.Max) or other.has(sympy.Min, sympy.Max)
    if has_clamps and isinstance(difference := simplify(one - other), int):
        return sympy.true if difference == 0 else sympy.false
    return sympy.Eq(one, other, evaluate=not has_clamps)


def _with_numbers(b: Builder, condition: Any, message: str) -> Value | None:
    """Return a message with the values, known at run time, of the numbers that a condition reads from
    tensors; None if it reads none."""
    names = sorted(str(name) for name in condition.free_symbols if str(name) not in b.graph.symbols)
    names = [name for name in names if not name.startswith(FOUND)]
    reads = {node.attrs.get("symbol"): node for node in b.graph.nodes() if node.op == "item"} if names else {}
    text = b.one("literal", value=message) if any(map(reads.get, names)) else None
    for word, name in zip(("; here", *[", and"] * len(names)), filter(reads.get, names), strict=False):
        source = f"read from {_tensor_read(reads[name])}"
        known = name if re.search(rf"\b{re.escape(name)}\b", message) else ""
        words = f"{word} {known}, {source}, is " if known else f"{word} a number {source} is "
        for part in (b.one("literal", value=words), b.one("to_str", b.size(symbol(name)))):
            text = b.one("str_concat", text, part)
    return text


def _tensor_read(read: Node) -> str:
    """Return the name of the input whose element an `item` reads, or "a computed tensor"."""
    value = read.arg(0)
    while value.node is not None and len(value.node.args) == 1:
        value = value.node.arg(0)
    return "a computed tensor" if value.node is not None else value.name


def _without_names(b: Builder, condition: Any, message: str) -> str:
    """Return a message without the names of sizes that data decide, if the builder made these names."""
    for name in sorted(map(str, condition.free_symbols)):
        if name.startswith(FOUND) and name not in b.graph.symbols:
            message = re.sub(rf"\b{re.escape(name)}\b", "(that data decide)", message)
    return message


def _as_bounds(condition: Any) -> Any:
    """Return Eq(Min(size, n), size) as size <= n; other conditions as they are."""
    for least, size in (condition.args, condition.args[::-1]) if isinstance(condition, sympy.Eq) else ():
        if isinstance(least, sympy.Min) and size in least.args:
            return sympy.And(*(sympy.Le(size, other) for other in least.args if other != size))
    return condition


def require_elements(b: Builder, op: str, size: DimExpr) -> None:
    """Append a guard that an axis of `size` is not empty, unless the contract proves it."""
    add_guard(
        b,
        sympy.Ge(sympy.sympify(size), 1),
        f"{op}: the axis that it reduces is empty; it needs at least 1 element",
    )


def is_proved(b: Builder, condition: Any) -> bool:
    """Return True if the contract proves `condition`."""
    if condition is True or condition == sympy.true:
        return True
    if isinstance(condition, sympy.And | sympy.Or):
        decide = all if isinstance(condition, sympy.And) else any
        return decide(is_proved(b, part) for part in condition.args)
    if not isinstance(condition, sympy.Rel):
        return False
    sides = [simplify(arg) for arg in condition.args]
    if isinstance(condition, sympy.Le | sympy.Lt | sympy.Ge | sympy.Gt) and _is_far(condition, sides):
        return True
    if isinstance(condition, sympy.Le | sympy.Ge):
        low, high = sides if isinstance(condition, sympy.Le) else sides[::-1]
        return always_at_most(low, high, b.graph.symbols)
    if isinstance(condition, sympy.Lt | sympy.Gt):
        low, high = sides if isinstance(condition, sympy.Lt) else sides[::-1]
        return always_at_most(simplify(low + 1), high, b.graph.symbols)
    return False


def _is_far(condition: Any, sides: list[DimExpr]) -> bool:
    """Return True if sizes are compared with more than any tensor has, as torch does against overflow."""
    low, high = sides if isinstance(condition, sympy.Le | sympy.Lt) else sides[::-1]
    return bool(sympy.sympify(high - low).as_coeff_Add()[0] >= 2**62)


def _compare(b: Builder, relation: Any) -> Value:
    """Append the comparison of two sizes."""
    op, exchanged = next(row for kind, row in _RELATIONS.items() if isinstance(relation, kind))
    sides = [b.size(simplify(side)) for side in relation.args]
    return b.one(op, *(sides[::-1] if exchanged else sides))


def truth(b: Builder, condition: Any, compare: Callable[[Builder, Any], Value] = _compare) -> Value:
    """Append the bool value of a condition. `compare`: appends that of a relation, which is one of sizes."""
    if isinstance(condition, tuple(_RELATIONS)):
        return compare(b, condition)
    if isinstance(condition, sympy.Not):
        return b.one("bool_not", truth(b, condition.args[0], compare))
    if isinstance(condition, sympy.And | sympy.Or):
        op = "bool_and" if isinstance(condition, sympy.And) else "bool_or"
        return reduce(partial(b.one, op), [truth(b, part, compare) for part in condition.args])
    raise UnsupportedOp(f"the condition {condition} on sizes cannot be compiled", source=b.source)
