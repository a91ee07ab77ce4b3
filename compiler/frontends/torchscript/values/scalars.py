"""Python's operators on numbers, bools and strings: computed at import if the values are known, as dimension
expressions if they are sizes, else by instructions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy

from .....vm.literals import written
from .....vm.reference_checks import wrapped
from ....ir.dims import floordiv, simplify
from ....ir.errors import ShapeError, UnsupportedOp
from ....ir.graph import Builder, Node, Value
from ....ir.types import INT
from ....ops import COMPOSITES
from ....ops import build as B
from ....ops.conditions import add_guard, is_proved, truth
from ....ops.pointwise import power
from ..bounds import check_length, within_64_bits
from .values import is_run_time, is_size, kind_of


def _true_div(a: Any, b: Any) -> Any:
    return math.copysign(math.inf, a) if isinstance(b, float) and b == 0 and a else a / b


#: Operators of TorchScript whose arguments are all plain values, in Python.
PYTHON: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": _true_div,
    "floordiv": operator.floordiv, "remainder": operator.mod, "pow": operator.pow, "neg": operator.neg,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "__not__": operator.not_, "__and__": operator.and_, "__or__": operator.or_,
    "__xor__": operator.xor, "__lshift__": lambda a, n: a << (n & 63), "__rshift__": operator.rshift,
    "Bool": bool, "Int": int, "Float": float, "abs": abs, "floor": math.floor, "ceil": math.ceil,
    "round": lambda x: float(round(x)), "sqrt": math.sqrt, "exp": math.exp, "log": math.log,
    "log2": math.log2,
    "log10": math.log10, "sin": math.sin, "cos": math.cos, "tan": math.tan, "tanh": math.tanh,
    "max": max, "min": min, "isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite,
    "str": lambda x: x if isinstance(x, str) else written(x),
    "truediv": operator.truediv, "floor_divide": operator.floordiv,
    "copysign": math.copysign, "fabs": math.fabs, "atan2": math.atan2, "fmod": math.fmod,
    "asin": math.asin, "acos": math.acos, "atan": math.atan, "sinh": math.sinh, "cosh": math.cosh,
    "asinh": math.asinh, "acosh": math.acosh, "atanh": math.atanh, "erf": math.erf, "erfc": math.erfc,
    "expm1": math.expm1, "log1p": math.log1p, "lgamma": math.lgamma, "degrees": math.degrees,
    "radians": math.radians, "gcd": math.gcd, "factorial": math.factorial,
}  # fmt: skip
_SIZE_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": floordiv,
    "remainder": sympy.Mod, "max": sympy.Max, "min": sympy.Min,
}  # fmt: skip
_RELATIONS: dict[str, Any] = {
    "eq": sympy.Eq, "ne": sympy.Ne, "lt": sympy.Lt, "le": sympy.Le, "gt": sympy.Gt, "ge": sympy.Ge,
}  # fmt: skip
#: TorchScript's name -> (ours, whether the arguments are exchanged).
_COMPARE = {
    "eq": ("eq", False), "ne": ("ne", False), "lt": ("lt", False), "le": ("le", False), "gt": ("lt", True),
    "ge": ("le", True),
}  # fmt: skip
_INT = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "floordiv": "floordiv",
    "remainder": "mod",
    "max": "max",
    "min": "min",
}
#: Operators that wrap ints to 64 bits.
_WRAPPING = ("add", "sub", "mul", "neg", "abs", "__lshift__")
_FLOAT = {"add": "add", "sub": "sub", "mul": "mul", "div": "div"}
_LOGIC = {"__and__": "bool_and", "__or__": "bool_or"}
#: Functions of one float that a kernel computes, in f64.
_KERNELS = {
    "sqrt": "sqrt", "exp": "exp", "log": "log", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh",
    "floor": "floor", "ceil": "ceil", "abs": "abs", "round": "round", "log2": "log2", "log10": "log10",
    "fabs": "abs", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh",
    "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf", "erfc": "erfc", "expm1": "expm1",
    "log1p": "log1p", "lgamma": "lgamma", "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite",
}  # fmt: skip
#: Functions of two ints that a kernel computes, in i64.
_INT_KERNELS = {
    "__and__": "aten.bitwise_and.Tensor", "__or__": "aten.bitwise_or.Tensor",
    "__xor__": "aten.bitwise_xor.Tensor", "__lshift__": "aten.__lshift__.Tensor",
    "__rshift__": "aten.__rshift__.Tensor",
}  # fmt: skip
#: Functions of two floats that a kernel computes, in f64.
_FLOAT_KERNELS = {
    "floordiv": "aten.floor_divide.default", "remainder": "aten.remainder.Tensor",
    "max": "aten.maximum.default", "min": "aten.minimum.default", "atan2": "aten.atan2.default",
    "fmod": "aten.fmod.Tensor", "copysign": "aten.copysign.Tensor",
}  # fmt: skip
_TO_INT = ("floor", "ceil")
#: Operators whose result is a float also for two ints.
_TO_FLOAT = ("div", "atan2", "fmod", "copysign")
#: The factors of angle conversions, as in TorchScript.
_ANGLES = {"degrees": 180.0 / math.pi, "radians": math.pi / 180.0}


def scalar_op(b: Builder, name: str, args: Sequence[Any]) -> Any:
    """Return the result of TorchScript's `aten::name` for plain values. Raises UnsupportedOp if it cannot be
    computed at run time, ShapeError for a Python error such as a division by 0."""
    if not any(is_run_time(x) or is_size(x) for x in args):
        try:
            if any(isinstance(x, str) for x in args):
                check_length(sum(len(x) for x in args if isinstance(x, str)))
            found = PYTHON[name](*args)
            return wrapped(found) if name in _WRAPPING and type(found) is int else within_64_bits(found)
        except (ArithmeticError, ValueError) as error:
            raise ShapeError(
                f"aten::{name} of {', '.join(map(repr, args))}: {error}", source=b.source
            ) from None
    if not any(map(is_run_time, args)):
        found = _of_sizes(b, name, args)
        if found is not None:
            return found
    made = _at_run_time(b, name, args)
    if made is None:
        kinds = ", ".join(kind_of(x) or type(x).__name__ for x in args)
        raise UnsupportedOp(f"aten::{name} of run-time {kinds} cannot be compiled")
    return made


def _of_sizes(b: Builder, name: str, args: Sequence[Any]) -> Any:
    """Return the result of an operator for ints and sizes; None if that is neither a size nor a known
    condition."""
    if not all(kind_of(x) == "int" for x in args):
        return None
    sides = [sympy.sympify(x) for x in args]
    if name in _SIZE_OPS and len(sides) == 2:
        if name in ("floordiv", "remainder") and not (sides[1].is_Integer and sides[1] > 0):
            return _exact_quotient(b, *sides) if name == "floordiv" else None
        return simplify(_SIZE_OPS[name](*sides))
    if name == "neg":
        return simplify(-sides[0])
    if name in ("Int", "abs") and (name == "Int" or B.is_size(b, sides[0])):
        return args[0]
    if name == "Bool":
        return decided(b, sympy.Ne(sides[0], 0))
    return decided(b, _RELATIONS[name](*sides)) if name in _RELATIONS else None


def _exact_quotient(b: Builder, size: Any, divisor: Any) -> Any:
    """Return the quotient of a product and one of its factors, which calls check not to be 0; else None."""
    quotient = floordiv(size, divisor) if divisor != 0 else None
    if quotient is None or sympy.expand(size - quotient * divisor) != 0 or not B.is_size(b, quotient):
        return None
    add_guard(b, sympy.Ne(divisor, 0), "the divisor of // is a size that is 0")
    return quotient


def decided(b: Builder, condition: Any) -> Any:
    """Return a condition on sizes as True or False if the contract decides it, else as a graph value."""
    if condition in (sympy.true, sympy.false):
        return bool(condition)
    if isinstance(condition, sympy.Eq | sympy.Ne):
        low, high = B.bounds_of(b, simplify(condition.lhs - condition.rhs))
        if (low is not None and low > 0) or (high is not None and high < 0):
            return isinstance(condition, sympy.Ne)
    elif is_proved(b, condition):
        return True
    elif is_proved(b, condition.negated):
        return False
    return truth(b, condition)


def condition_of(x: Value) -> Any:
    """Return a bool as a condition on sizes if it is one, else None."""
    node = x.node
    if node is not None and node.op == "bool_not" and node.args[0] is not None:
        found = condition_of(node.args[0])
        return None if found is None else sympy.Not(found)
    relation = _CONDITIONS.get(node.op) if node is not None else None
    if node is None or relation is None:
        return None
    sides = [getattr(arg.type, "expr", None) for arg in node.present]
    return None if None in sides else relation(*map(sympy.sympify, sides))


_CONDITIONS = {"int_eq": sympy.Eq, "int_ne": sympy.Ne, "int_lt": sympy.Lt, "int_le": sympy.Le}


def _at_run_time(b: Builder, name: str, args: Sequence[Any]) -> Value | None:
    kinds = [kind_of(x) for x in args]
    if kinds == ["str", "str"]:
        return _of_strings(b, name, [value_of(b, x) for x in args])
    if name == "str" and len(args) == 1 and kinds[0] in ("bool", "int", "float", "str"):
        return args[0] if kinds[0] == "str" else b.one("to_str", value_of(b, args[0]))
    if "str" in kinds or "none" in kinds or "" in kinds:
        return None
    if name in ("Bool", "Int", "Float"):
        return converted(b, args[0], name.lower())
    if name == "__not__":
        return b.one("bool_not", converted(b, args[0], "bool"))
    if name == "neg":
        return scalar_op(b, "sub", (0 if kinds[0] == "int" else -0.0, args[0]))
    if name == "abs" and kinds[0] == "int":
        return scalar_op(b, "max", (args[0], scalar_op(b, "neg", args)))
    if name == "pow":
        sides = [B.tensor_of(b, value_of(b, x, "float"), "f64") for x in args]
        return b.one("item", power(b, *sides))
    if name in _ANGLES:
        return b.one("float_mul", value_of(b, args[0], "float"), value_of(b, _ANGLES[name]))
    if len(args) == 2:
        return _binary(b, name, args, kinds)
    if name in _KERNELS and len(args) == 1:
        made = b.one("item", b.one(_KERNELS[name], B.tensor_of(b, value_of(b, args[0], "float"), "f64")))
        return b.one("to_int", made) if name in _TO_INT else made
    return None


def _of_strings(b: Builder, name: str, args: Sequence[Value]) -> Value | None:
    if name == "add":
        return b.one("str_concat", *args)
    if name not in _COMPARE:
        return None
    op, is_exchanged = _COMPARE[name]
    return b.one(f"str_{op}", *(args[::-1] if is_exchanged else args))


def _binary(b: Builder, name: str, args: Sequence[Any], kinds: Sequence[str]) -> Value | None:
    if kinds == ["bool", "bool"]:
        if name in _LOGIC:
            return b.one(_LOGIC[name], *(value_of(b, x, "bool") for x in args))
        if name not in ("eq", "ne", "__xor__"):
            return None
        differ = _differ(b, *(value_of(b, x, "bool") for x in args))
        return b.one("bool_not", differ) if name == "eq" else differ
    is_int = all(kind in ("int", "bool") for kind in kinds) and name not in _TO_FLOAT
    kind, table = ("int", _INT) if is_int else ("float", _FLOAT)
    if name in _COMPARE:
        op, is_exchanged = _COMPARE[name]
        sides = [value_of(b, x, kind) for x in args]
        return b.one(f"{kind}_{op}", *(sides[::-1] if is_exchanged else sides))
    if name in table:
        sides = [value_of(b, x, kind) for x in args]
        is_wrapping = (
            is_int and name in _WRAPPING and any(getattr(x.type, "expr", None) is None for x in sides)
        )
        return b.one(f"{'wrapping' if is_wrapping else kind}_{table[name]}", *sides)
    kernel = (_INT_KERNELS if is_int else _FLOAT_KERNELS).get(name)
    if kernel is None:
        return None
    dtype = "i64" if is_int else "f64"
    sides = [B.tensor_of(b, value_of(b, x, kind), dtype) for x in args]
    return b.one("item", COMPOSITES[kernel].expand(b, *sides))


def _differ(b: Builder, x: Value, y: Value) -> Value:
    one = b.one("bool_and", x, b.one("bool_not", y))
    return b.one("bool_or", one, b.one("bool_and", b.one("bool_not", x), y))


def converted(b: Builder, x: Any, kind: str) -> Any:
    """Convert a number like Python's bool, int and float."""
    if kind_of(x) == kind:
        return x
    if kind != "bool":
        return b.one(f"to_{kind}", value_of(b, x))
    zero = 0 if kind_of(x) == "int" else 0.0
    return b.one(f"{kind_of(x)}_ne", value_of(b, x), value_of(b, zero))


def unknown_int(b: Builder, x: Any) -> Value:
    """Return an int without its known value."""
    return b.insert(Node("int_add", [b.size(x), b.size(0)]), [INT])[0]


def value_of(b: Builder, x: Any, kind: str = "") -> Value:
    """Return a plain value as a graph value, a number as one of `kind`."""
    if isinstance(x, bool | int | float) and kind:
        x = {"bool": bool, "int": int, "float": float}[kind](x)
    if isinstance(x, Value):
        return x if kind in ("", kind_of(x)) else converted(b, x, kind)
    if kind_of(x) == "int":
        made = b.size(x)
        return made if kind != "float" else b.one("to_float", made)
    return b.one("literal", value=x)
