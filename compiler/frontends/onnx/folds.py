"""Operators on known tensors: arithmetic of sizes, and of the constants that it is made of.

Numbers are computed by numpy in their dtype, sizes by sympy. A rule returns None where a result depends on
data, or on more than sizes can express; then the operator's row is called.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import lcm
from typing import Any

import numpy as np
import sympy

from ...ir.dims import floordiv, product, simplify
from ...ir.errors import UnsupportedOp
from ...ops import build as B
from ...ops.conditions import is_proved
from .known import NUMPY, Known, known
from .reader import element_name
from .rows import Call, of_dims, row, shape_of

MAX_ITEMS = 1 << 12  # elements of a result
MAX_DENOMINATOR = 1 << 12  # of a number by which a size is multiplied: a float's product is exact then

Items = np.ndarray
Fold = Callable[..., Any]
FOLDS: dict[str, Fold] = {}


class NotKnown(Exception):
    """A result depends on data, or cannot be expressed in sizes."""


def fold(*names: str) -> Callable[[Fold], Fold]:
    """Register the rule of operators: a function of a call and the items of its inputs (None: absent)."""

    def register(rule: Fold) -> Fold:
        FOLDS.update(dict.fromkeys(names, rule))
        return rule

    return register


def folded(call: Call) -> Any:
    """Return the known results of a call, or None."""
    if call.domain:
        return None
    rule = FOLDS.get(call.op)
    inputs = [x for x in call.inputs if x is not None]
    if rule is None or not all(isinstance(x, Known) for x in inputs):
        return None
    if any(x.items.size > MAX_ITEMS for x in inputs if isinstance(x, Known)):
        return None
    try:
        with np.errstate(all="ignore"):
            made = rule(call, *(x.items if isinstance(x, Known) else None for x in call.inputs))
    except (NotKnown, UnsupportedOp):  # the row has the message, if it cannot compile it either
        return None
    results = made if isinstance(made, list) else [made]
    if made is None or any(x.items.size > MAX_ITEMS for x in results):
        return None
    return results


# Shapes ---------------------------------------------------------------------------------------------


@row("Shape")
def _shape(call: Call) -> Known:
    dims = shape_of(call.input(0))
    return of_dims(dims[call.attr("start", 0) : call.attr("end")])


@row("Size")
def _size(call: Call) -> Known:
    return known(np.array(product(shape_of(call.input(0))), object), "i64")


def _is_symbolic(*arrays: Items | None) -> bool:
    return any(array is not None and array.dtype == object for array in arrays)


# Elements one by one --------------------------------------------------------------------------------


def _each(function: Callable[..., Any], *arrays: Items) -> Items:
    """Apply a function of numbers and expressions to every element, broadcast."""
    made = np.frompyfunc(function, len(arrays), 1)(*arrays)
    return made if isinstance(made, np.ndarray) else np.array(made, object)


def _exact(x: Any) -> Any:
    """Return a number for arithmetic with sizes: a float as the fraction that it is."""
    if isinstance(x, sympy.Basic):
        return x
    if isinstance(x, float | np.floating):
        if not np.isfinite(x):
            raise NotKnown
        exact = Fraction(float(x))
        if exact.denominator > MAX_DENOMINATOR:
            raise NotKnown
        return sympy.Rational(exact.numerator, exact.denominator)
    return sympy.Integer(int(x))


def _is_size(call: Call, x: Any) -> bool:
    return B.is_size(call.b, simplify(sympy.sympify(x)))


def _quotient(call: Call, dtype: str, x: Any, y: Any) -> Any:
    if dtype not in ("i64", "i32"):
        return _exact(x) / _exact(y)
    if not _is_size(call, x) or not _is_size(call, y) or y == 0:
        raise NotKnown
    return simplify(floordiv(sympy.sympify(x), sympy.sympify(y)))


def _remainder(call: Call, dtype: str, x: Any, y: Any) -> Any:
    if dtype not in ("i64", "i32") or not _is_size(call, x) or not _is_size(call, y) or y == 0:
        raise NotKnown
    return simplify(sympy.Mod(sympy.sympify(x), sympy.sympify(y)))


def whole(x: Any, up: bool = False) -> Any:
    """Return a rational expression of sizes rounded down or up."""
    above, below = sympy.fraction(sympy.together(_exact(x)))
    if not below.is_Integer:
        raise NotKnown
    factors = [Fraction(int(c.p), int(c.q)) for c in sympy.Poly(above, *above.free_symbols).coeffs()] \
        if above.free_symbols else []  # fmt: skip
    scale = lcm(1, *(f.denominator for f in factors))
    above, below = sympy.expand(above * scale), int(below) * scale
    return (
        -simplify(floordiv(-above, sympy.Integer(below)))
        if up
        else simplify(floordiv(above, sympy.Integer(below)))
    )


def _simplified(function: Callable[..., Any], *values: Any) -> Any:
    made = function(*map(_exact, values))
    return simplify(made) if getattr(made, "is_integer", False) else sympy.expand(made)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda call, dtype, *values: _simplified(function, *values)


def _divided(x: Items, y: Items) -> Items:
    """Return numbers divided, integers rounded towards 0."""
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    if not np.all(y):
        raise NotKnown
    quotient = np.floor_divide(x, y)
    return quotient + ((np.mod(x, y) != 0) & ((x < 0) != (y < 0))).astype(quotient.dtype)


#: Operators on elements: (numpy's function, that of expressions of sizes).
_ELEMENTWISE: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "Add": (np.add, _plain(lambda x, y: x + y)),
    "Sub": (np.subtract, _plain(lambda x, y: x - y)),
    "Mul": (np.multiply, _plain(lambda x, y: x * y)),
    "Neg": (np.negative, _plain(lambda x: -x)),
    "Floor": (np.floor, lambda call, dtype, x: whole(x)),
    "Ceil": (np.ceil, lambda call, dtype, x: whole(x, up=True)),
    "Div": (_divided, _quotient),
    "Mod": (np.mod, _remainder),
    "Abs": (np.abs, None),
    "Sqrt": (np.sqrt, None),
    "Reciprocal": (np.reciprocal, None),
    "Exp": (np.exp, None),
    "Log": (np.log, None),
    "Round": (np.round, None),
}


@fold(*_ELEMENTWISE)
def _elementwise(call: Call, *arrays: Items) -> Known:
    dtype = call.dtype(0)
    numeric, function = _ELEMENTWISE[call.op]
    if call.op == "Mod" and not _is_symbolic(arrays[1]) and not np.all(arrays[1]):
        raise NotKnown
    if not _is_symbolic(*arrays):
        numeric = np.fmod if call.op == "Mod" and call.attr("fmod", 0) else numeric
        return known(numeric(*arrays), dtype)
    if function is None:
        raise NotKnown
    return known(_each(partial(function, call, dtype), *arrays), dtype)


@fold("Min", "Max")
def _extremum(call: Call, *arrays: Items) -> Known:
    is_min = call.op == "Min"
    numeric, of_sizes = (np.minimum, sympy.Min) if is_min else (np.maximum, sympy.Max)
    made = arrays[0]
    for other in arrays[1:]:
        if not _is_symbolic(made, other):
            made = numeric(made, other)
        else:
            made = known(_each(partial(_simplified, of_sizes), made, other), call.dtype(0)).items
    return known(made, call.dtype(0))


@fold("Cast")
def _cast(call: Call, x: Items) -> Known:
    dtype = element_name(call.attr("to"), "the result of Cast")
    if not _is_symbolic(x):
        return known(x.astype(NUMPY[dtype]), dtype)
    if dtype in ("i64", "i32") and call.dtype(0) not in ("i64", "i32", "bool"):
        return known(_each(lambda each: _towards_0(call, each), x), dtype)
    if dtype in ("f16", "bf16", "bool") or call.dtype(0) == "bool":
        raise NotKnown
    return known(x, dtype)


def _towards_0(call: Call, x: Any) -> Any:
    if not isinstance(x, sympy.Basic):
        return int(x)
    towards_0 = whole(x)
    if not _is_size(call, towards_0):
        raise NotKnown
    return towards_0


_RELATIONS = {
    "Equal": (np.equal, sympy.Eq), "Less": (np.less, sympy.Lt), "LessOrEqual": (np.less_equal, sympy.Le),
    "Greater": (np.greater, sympy.Gt), "GreaterOrEqual": (np.greater_equal, sympy.Ge),
}  # fmt: skip


@fold(*_RELATIONS)
def _compared(call: Call, x: Items, y: Items) -> Known:
    numeric, relation = _RELATIONS[call.op]
    if not _is_symbolic(x, y):
        return known(numeric(x, y), "bool")
    return known(_each(lambda a, b: decided(call, relation(_exact(a), _exact(b))), x, y), "bool")


def decided(call: Call, condition: Any) -> Any:
    """Return the truth of a condition on sizes where the contract decides it, else the condition."""
    if condition in (sympy.true, sympy.false):
        return bool(condition)
    if is_proved(call.b, condition):
        return True
    if is_proved(call.b, sympy.Not(condition)) or _differ(call, condition):
        return False
    return condition


def _differ(call: Call, condition: Any) -> bool:
    """Whether two sizes are never equal by the contract."""
    if not isinstance(condition, sympy.Eq):
        return False
    low, high = B.bounds_of(call.b, simplify(condition.lhs - condition.rhs))
    return (low is not None and low > 0) or (high is not None and high < 0)


@fold("Not")
def _not(call: Call, x: Items) -> Known:
    return known(_each(lambda a: sympy.Not(a) if isinstance(a, sympy.Basic) else not a, x), "bool")


@fold("And", "Or")
def _both(call: Call, x: Items, y: Items) -> Known:
    function = sympy.And if call.op == "And" else sympy.Or
    return known(_each(lambda a, b: function(_truth(a), _truth(b)), x, y), "bool")


def _truth(x: Any) -> Any:
    return x if isinstance(x, sympy.Basic) else sympy.true if x else sympy.false


@fold("Where")
def _where(call: Call, condition: Items, x: Items, y: Items) -> Known:
    if _is_symbolic(condition):
        raise NotKnown
    if not _is_symbolic(x, y):
        return known(np.where(condition, x, y), call.dtype(1))
    return known(_each(lambda c, a, b: a if c else b, condition, x, y), call.dtype(1))


# Moving elements ------------------------------------------------------------------------------------


@fold("Identity")
def _identity(call: Call, x: Items) -> Known:
    found = call.input(0)
    assert isinstance(found, Known)
    return found


@fold("Concat")
def _concat(call: Call, *arrays: Items) -> Known:
    if _is_symbolic(*arrays):
        arrays = tuple(array.astype(object) for array in arrays)
    return known(np.concatenate(arrays, call.attr("axis", 1)), call.dtype(0))


@fold("Gather")
def _gather(call: Call, x: Items, index: Items) -> Known:
    if _is_symbolic(index):
        raise NotKnown
    axis = call.axis("axis", x.ndim, 0)
    size = x.shape[axis]
    if index.size and not -size <= index.min() <= index.max() < size:
        raise NotKnown
    made = np.take(x, index, axis)
    return known(np.asarray(made, x.dtype).reshape(np.shape(made)), call.dtype(0))


@fold("Slice")
def _slice(call: Call, x: Items, *_: Items | None) -> Known:
    starts, ends = call.ints(1, "starts"), call.ints(2, "ends")
    if starts is None or ends is None:
        raise NotKnown
    axes = call.ints(3, "axes") or list(range(len(starts)))
    steps = call.ints(4, "steps") or [1] * len(starts)
    where = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        where[axis] = slice(start, None if step < 0 and end < -x.shape[axis] else end, step)
    return known(x[tuple(where)], call.dtype(0))


@fold("Squeeze")
def _squeeze(call: Call, x: Items, *_: Items | None) -> Known:
    axes = call.ints(1, "axes")
    return known(np.squeeze(x, None if axes is None else tuple(axes)), call.dtype(0))


@fold("Unsqueeze")
def _unsqueeze(call: Call, x: Items, *_: Items | None) -> Known:
    return known(np.expand_dims(x, tuple(call.ints(1, "axes") or ())), call.dtype(0))


@fold("Reshape")
def _reshape(call: Call, x: Items, *_: Items | None) -> Known:
    wanted = call.ints(1, "shape") or []
    if not call.attr("allowzero", 0):
        wanted = [x.shape[i] if size == 0 and i < x.ndim else size for i, size in enumerate(wanted)]
    try:
        return known(x.reshape(wanted), call.dtype(0))
    except ValueError:
        raise NotKnown from None  # the row has the message


@fold("Flatten")
def _flatten(call: Call, x: Items) -> Known:
    axis = call.attr("axis", 1)
    axis += x.ndim if axis < 0 else 0
    rows = int(np.prod(x.shape[:axis], dtype=int))
    return known(x.reshape(rows, -1 if x.size else 0), call.dtype(0))


@fold("Transpose")
def _transpose(call: Call, x: Items) -> Known:
    return known(np.transpose(x, call.attr("perm")), call.dtype(0))


@fold("Expand")
def _expand(call: Call, x: Items, shape: Items) -> Known:
    if _is_symbolic(shape):
        raise NotKnown
    return known(x * np.ones(shape, int) if x.dtype == object else np.broadcast_to(
        x, np.broadcast_shapes(x.shape, tuple(int(size) for size in shape))), call.dtype(0))  # fmt: skip


@fold("Tile")
def _tile(call: Call, x: Items, repeats: Items) -> Known:
    if _is_symbolic(repeats) or x.size * int(np.prod(repeats)) > MAX_ITEMS:
        raise NotKnown
    return known(np.tile(x, repeats), call.dtype(0))


@fold("Split")
def _split(call: Call, x: Items, *_: Items | None) -> list[Known]:
    axis, sizes = call.axis("axis", x.ndim, 0), call.ints(1, "split")
    if sizes is None:
        n = call.count("num_outputs", call.n_outputs)
        each = -(-x.shape[axis] // n)
        sizes = [each] * (n - 1) + [x.shape[axis] - each * (n - 1)]
    return [known(part, call.dtype(0)) for part in np.split(x, np.cumsum(sizes)[:-1], axis)]


@fold("ConstantOfShape")
def _constant_of_shape(call: Call, shape: Items) -> Known:
    if _is_symbolic(shape) or np.prod(shape, dtype=float) > MAX_ITEMS:
        raise NotKnown
    value = call.attr("value")
    filled = call.scope.array(value) if value is not None else Known(np.zeros(1, np.float32), "f32")
    return known(np.full([int(size) for size in shape], filled.items.reshape(-1)[0]), filled.dtype)


@fold("Range")
def _range(call: Call, start: Items, limit: Items, delta: Items) -> Known:
    if _is_symbolic(start, limit, delta) or not delta:
        raise NotKnown
    start, limit, delta = (each.reshape(()) for each in (start, limit, delta))
    length = max(0.0, np.ceil((float(limit) - float(start)) / float(delta)))
    if length > MAX_ITEMS:
        raise NotKnown
    return known(start + np.arange(int(length)).astype(start.dtype) * delta, call.dtype(0))


_REDUCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "ReduceSum": (np.sum, sympy.Add), "ReduceProd": (np.prod, sympy.Mul),
    "ReduceMin": (np.min, sympy.Min), "ReduceMax": (np.max, sympy.Max),
}  # fmt: skip


@fold(*_REDUCTIONS)
def _reduced(call: Call, x: Items, *_: Items | None) -> Known:
    axes, keep = call.ints(1, "axes"), bool(call.attr("keepdims", 1))
    if axes == [] or (axes is None and call.attr("noop_with_empty_axes", 0)):
        return known(x, call.dtype(0))
    numeric, of_sizes = _REDUCTIONS[call.op]
    over = tuple(range(x.ndim)) if axes is None else tuple(axes)
    if not x.size:
        raise NotKnown
    if not _is_symbolic(x):
        return known(numeric(x, axis=over, keepdims=keep), call.dtype(0))
    pair = np.frompyfunc(partial(_simplified, of_sizes), 2, 1)
    made = x
    for axis in sorted(over, reverse=True):
        made = np.asarray(pair.reduce(made, axis=axis, keepdims=keep), object)
    return known(made, call.dtype(0))
