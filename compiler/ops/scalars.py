"""Operators on plain values: sizes, integer arithmetic, containers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy

from ...vm.literals import written
from ...vm.reference_checks import wrapped
from ..ir.dims import DimExpr, floordiv, simplify, symbol
from ..ir.errors import DtypeError, ShapeError
from ..ir.graph import Builder, Value
from ..ir.promotion import is_float
from ..ir.types import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    STR,
    DictType,
    ListType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    joined,
    types_equal,
)
from . import build as B
from .conditions import add_guard
from .declare import Composite, Infer, Op, Sample
from .rules import COMPUTE, Attrs, Types, check_dtype, scalar, tensor, tensors

_SCALAR_KINDS = ("bool", "int", "float")
_LITERALS: dict[type, Type] = {type(None): NONE, bool: BOOL, float: FLOAT, str: STR}

# Sizes and numbers --------------------------------------------------------------------------------


def _infer_size(types: Types, attrs: Attrs) -> Sequence[Type]:
    tensors("size", types, 0)
    return (ScalarType("int", attrs["dim"]),)


def _infer_literal(types: Types, attrs: Attrs) -> Sequence[Type]:
    tensors("literal", types, 0)
    found = type(attrs["value"])
    if found not in _LITERALS:
        raise DtypeError(f"literal: the value is a {found.__name__}; it must be None, a bool, float or str")
    return (_LITERALS[found],)


def _infer_item(types: Types, attrs: Attrs) -> Sequence[Type]:
    x = tensor("item", types, 0)
    if attrs.get("at"):
        if len(attrs["at"]) != x.rank:
            raise ShapeError(f"item: the tensor is {x}; it has no element at {len(attrs['at'])} indices")
    elif any(isinstance(size, int) and size != 1 for size in x.shape):
        raise ShapeError(f"item: the tensor is {x}; it must have one element")
    if x.dtype == "bool":
        return (BOOL,)
    if is_float(x.dtype):
        return (FLOAT,)
    return (ScalarType("int", symbol(attrs["symbol"])) if attrs.get("symbol") else INT,)


def _infer_scalar(types: Types, attrs: Attrs) -> Sequence[Type]:
    found = types[0] if len(types) == 1 else None
    if not isinstance(found, ScalarType) or found.kind not in _SCALAR_KINDS:
        raise DtypeError(f"scalar: the argument is {found or 'absent'}; it must be a bool, int or float")
    check_dtype("scalar", attrs["dtype"], list(COMPUTE))
    return (TensorType(attrs["dtype"], ()),)


def _item(args: Sequence[Any], attrs: Attrs) -> Any:
    return args[0][attrs["at"]].item() if attrs.get("at") else args[0].reshape(-1)[0].item()


# Integer arithmetic -------------------------------------------------------------------------------

_INT_OPS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], DimExpr]]] = {
    "add": (operator.add, operator.add),
    "sub": (operator.sub, operator.sub),
    "mul": (operator.mul, operator.mul),
    "floordiv": (operator.floordiv, floordiv),
    "mod": (operator.mod, sympy.Mod),
    "min": (min, sympy.Min),
    "max": (max, sympy.Max),
}
_WRAPPING: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: wrapped(a + b),
    "sub": lambda a, b: wrapped(a - b),
    "mul": lambda a, b: wrapped(a * b),
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
}  # fmt: skip
_FLOAT_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": np.divide,
}  # fmt: skip
_LOGICAL: dict[str, Callable[[Any, Any], bool]] = {"and": lambda a, b: a and b, "or": lambda a, b: a or b}


def _two(op: str, kind: str, types: Types) -> list[ScalarType]:
    if len(types) != 2:
        raise DtypeError(f"{op}: {len(types)} arguments given; it takes 2")
    return [scalar(op, types, i, kind) for i in (0, 1)]


def _infer_int(op: str, symbolic: Callable[[Any, Any], DimExpr]) -> Infer:
    def infer(types: Types, attrs: Attrs) -> Sequence[Type]:
        a, b = _two(op, "int", types)
        if a.expr is None or b.expr is None:
            return (INT,)
        if op in ("int_floordiv", "int_mod") and b.expr == 0:
            raise ShapeError(f"{op}: the divisor is 0")
        return (ScalarType("int", simplify(symbolic(sympy.sympify(a.expr), sympy.sympify(b.expr)))),)

    return infer


def _infer_wrapping(op: str) -> Infer:
    def infer(types: Types, attrs: Attrs) -> Sequence[Type]:
        _two(op, "int", types)
        return (INT,)

    return infer


def _infer_bool(op: str, kind: str) -> Infer:
    def infer(types: Types, attrs: Attrs) -> Sequence[Type]:
        _two(op, kind, types)
        return (BOOL,)

    return infer


def _binary(
    op: str, doc: str, infer: Infer, function: Callable[[Any, Any], Any], types: str, result: str
) -> Op:
    return Op(
        op,
        "value",
        f"{op}({types} a, {types} b) -> {result}",
        doc,
        infer,
        lambda args, attrs: function(*args),
        samples=(Sample((types, types), {}, "positive"),),
    )


def _infer_float(op: str, result: Type) -> Infer:
    def infer(types: Types, attrs: Attrs) -> Sequence[Type]:
        _two(op, "float", types)
        return (result,)

    return infer


def _infer_to(kind: str) -> Infer:
    def infer(types: Types, attrs: Attrs) -> Sequence[Type]:
        found = types[0] if len(types) == 1 else None
        if not isinstance(found, ScalarType) or found.kind not in _SCALAR_KINDS:
            raise DtypeError(
                f"to_{kind}: the argument is {found or 'absent'}; it must be a bool, int or float"
            )
        return (ScalarType(kind),)

    return infer


# Containers ---------------------------------------------------------------------------------------


def _infer_tuple(types: Types, attrs: Attrs) -> Sequence[Type]:
    return (TupleType(_present("tuple", types)),)


def _present(op: str, types: Types) -> tuple[Type, ...]:
    if any(t is None for t in types):
        raise DtypeError(f"{op}: an argument is absent; every element must be a value")
    return tuple(t for t in types if t is not None)


def _one_type(op: str, types: Sequence[Type]) -> Type:
    first, *rest = types
    for other in rest:
        if not types_equal(other, first):
            raise DtypeError(f"{op}: elements are {first} and {other}; they must be of one type")
    return without_size(first)


def without_size(type: Type) -> Type:
    """Return a type without the known values of ints."""
    return INT if isinstance(type, ScalarType) and type.kind == "int" else type


def _infer_list(types: Types, attrs: Attrs) -> Sequence[Type]:
    elements = _present("list", types)
    if not elements and "element" not in attrs:
        raise DtypeError("list: it is empty; the attribute `element` must give the type of its elements")
    return (ListType(_one_type("list", elements) if elements else attrs["element"]),)


def _infer_dict(types: Types, attrs: Attrs) -> Sequence[Type]:
    items = _present("dict", types)
    if len(items) % 2:
        raise DtypeError(f"dict: {len(items)} arguments given; they must be key, value, key, value ...")
    if not items:
        raise DtypeError("dict: it is empty, so the types of keys and values are not known")
    key, value = _one_type("dict", items[::2]), _one_type("dict", items[1::2])
    if not isinstance(key, ScalarType) or key.kind not in ("int", "str"):
        raise DtypeError(f"dict: keys are {key}; they must be str or int")
    return (DictType(key, value),)


def _infer_get(types: Types, attrs: Attrs) -> Sequence[Type]:
    container = types[0]
    if isinstance(container, TupleType):
        position = scalar("get", types, 1, "int").expr
        if not isinstance(position, int | sympy.Integer) or not 0 <= int(position) < len(container.elements):
            raise ShapeError(
                f"get: the position is {position}; a tuple of {len(container.elements)} takes a "
                "constant position in it"
            )
        return _of_sizes(container.elements[int(position)], attrs.get("sizes", ()))
    if isinstance(container, ListType):
        scalar("get", types, 1, "int")
        return _of_sizes(container.element, attrs.get("sizes", ()))
    if isinstance(container, DictType):
        return (container.value,)
    raise DtypeError(f"get: argument 0 is {container or 'absent'}; it must be a list, tuple or dict")


def _of_sizes(type: Type, sizes: Sequence[tuple[str, int]]) -> Sequence[Type]:
    """Return the types of a tensor's named sizes, and its own with these."""
    if not sizes:
        return (type,)
    assert isinstance(type, TensorType)
    names = {axis: symbol(name) for name, axis in sizes}
    shape = tuple(names.get(axis, dim) for axis, dim in enumerate(type.shape))
    return *(ScalarType("int", name) for name in names.values()), TensorType(type.dtype, shape)


def _get(args: Sequence[Any], attrs: Attrs) -> Any:
    found = args[0][args[1]]
    sizes = [found.shape[axis] for _, axis in attrs.get("sizes", ())]
    return [*sizes, found] if sizes else found


def _infer_len(types: Types, attrs: Attrs) -> Sequence[Type]:
    (container,) = types
    if isinstance(container, TupleType):
        return (ScalarType("int", len(container.elements)),)
    if not isinstance(container, ListType | DictType) and container != STR:
        raise DtypeError(f"len: argument 0 is {container or 'absent'}; it must be a list, tuple, dict or str")
    return (INT,)


def _infer_distinct(types: Types, attrs: Attrs) -> Sequence[Type]:
    container = types[0]
    if not isinstance(container, ListType) or not isinstance(container.element, ScalarType):
        raise DtypeError(
            f"distinct: argument 0 is {container or 'absent'}; it must be a list of plain values"
        )
    return (BOOL,)


def _infer_append(types: Types, attrs: Attrs) -> Sequence[Type]:
    container, value = types
    element = None
    if isinstance(container, ListType) and value is not None:
        element = joined(container.element, value)
    if element is None:
        raise DtypeError(
            f"append: arguments are {container or 'absent'} and {value or 'absent'}; they must be a "
            "list and its element"
        )
    return (ListType(without_size(element)),)


def _infer_list_set(types: Types, attrs: Attrs) -> Sequence[Type]:
    scalar("list_set", types, 1, "int")
    return _infer_append((types[0], types[2]), attrs)


def _infer_list_slice(types: Types, attrs: Attrs) -> Sequence[Type]:
    container = types[0]
    if not isinstance(container, ListType):
        raise DtypeError(f"list_slice: argument 0 is {container or 'absent'}; it must be a list")
    scalar("list_slice", types, 1, "int")
    scalar("list_slice", types, 2, "int")
    return (container,)


def _with_item(items: Sequence[Any], index: int, item: Any) -> list[Any]:
    return [*items[:index], item, *items[index + 1 :]]


def _infer_concat(types: Types, attrs: Attrs) -> Sequence[Type]:
    _two("str_concat", "str", types)
    return (STR,)


def _infer_to_str(types: Types, attrs: Attrs) -> Sequence[Type]:
    found = types[0] if len(types) == 1 else None
    if not isinstance(found, ScalarType) or found.kind not in _SCALAR_KINDS:
        raise DtypeError(f"to_str: the argument is {found or 'absent'}; it must be a bool, int or float")
    return (STR,)


def _value_op(
    name: str,
    schema: str,
    doc: str,
    infer: Infer,
    reference: Callable[[Sequence[Any], Attrs], Any],
    *samples: Sample,
) -> Op:
    return Op(name, "value", schema, doc, infer, reference, samples=samples)


_S0 = symbol("s0")
OPS: tuple[Op, ...] = (
    _value_op(
        "size",
        "size(; dim) -> int",
        "The value of a size expression.",
        _infer_size,
        lambda args, attrs: attrs["dim"],
        Sample((), {"dim": 2 * _S0 + 1}),
        Sample((), {"dim": 0}),
    ),
    _value_op(
        "literal",
        "literal(; value) -> none|bool|float|str",
        "A plain value that is always the same; ints are `size`s.",
        _infer_literal,
        lambda args, attrs: attrs["value"],
        Sample((), {"value": None}),
        Sample((), {"value": True}),
        Sample((), {"value": -0.5}),
        Sample((), {"value": "torch.float32"}),
    ),
    _value_op(
        "item",
        "item(Tensor x; at, symbol) -> bool|int|float",
        "The element of x `at` indices from 0 on, or (absent) its only one. `symbol` (may be absent) names "
        "the size symbol that an int's value gets.",
        _infer_item,
        _item,
        Sample(("f32[]",), {}),
        Sample(("i64[1, 1]",), {"symbol": "u0"}, "positive"),
        Sample(("f32[4, s0]",), {"at": (2, _S0 - 1)}),
        Sample(("bool[]",), {}),
    ),
    _value_op(
        "scalar",
        "scalar(Scalar x; dtype) -> Tensor",
        "A 0-d tensor holding a plain value.",
        _infer_scalar,
        lambda args, attrs: np.asarray(args[0]).astype(COMPUTE[attrs["dtype"]]),
        Sample(("int",), {"dtype": "i64"}, "positive"),
        Sample(("float",), {"dtype": "f32"}),
    ),
    *(
        _binary(f"int_{n}", f"a {n} b (floordiv rounds down).", _infer_int(f"int_{n}", s), f, "int", "int")
        for n, (f, s) in _INT_OPS.items()
    ),
    *(
        _binary(f"wrapping_{n}", f"a {n} b, modulo 2**64.", _infer_wrapping(f"wrapping_{n}"), f, "int", "int")
        for n, f in _WRAPPING.items()
    ),
    *(
        _binary(f"int_{n}", f"a {n} b.", _infer_bool(f"int_{n}", "int"), f, "int", "bool")
        for n, f in _COMPARISONS.items()
    ),
    *(
        _binary(f"float_{n}", f"a {n} b.", _infer_float(f"float_{n}", FLOAT), f, "float", "float")
        for n, f in _FLOAT_OPS.items()
    ),
    *(
        _binary(f"float_{n}", f"a {n} b.", _infer_float(f"float_{n}", BOOL), f, "float", "bool")
        for n, f in _COMPARISONS.items()
    ),
    _value_op(
        "to_float",
        "to_float(Scalar a) -> float",
        "a as a float.",
        _infer_to("float"),
        lambda args, attrs: float(args[0]),
        Sample(("int",), {}, "positive"),
        Sample(("float",), {}),
    ),
    _value_op(
        "to_int",
        "to_int(Scalar a) -> int",
        "a as an int, rounded towards 0.",
        _infer_to("int"),
        lambda args, attrs: int(args[0]),
        Sample(("float",), {}, "positive"),
        Sample(("bool",), {}),
    ),
    *(
        _binary(f"bool_{n}", f"a {n} b.", _infer_bool(f"bool_{n}", "bool"), f, "bool", "bool")
        for n, f in _LOGICAL.items()
    ),
    _value_op(
        "bool_not",
        "bool_not(bool a) -> bool",
        "not a.",
        lambda types, attrs: (scalar("bool_not", types, 0, "bool"),),
        lambda args, attrs: not args[0],
        Sample(("bool",), {}),
    ),
    _value_op(
        "tuple",
        "tuple(*values) -> tuple",
        "A tuple of the arguments.",
        _infer_tuple,
        lambda args, attrs: tuple(args),
        Sample(("int", "f32[2, s0]"), {}, "positive"),
        Sample((), {}),
    ),
    _value_op(
        "list",
        "list(*values; element) -> list",
        "A list of the arguments; `element`: their type, needed for an empty one.",
        _infer_list,
        lambda args, attrs: list(args),
        Sample(("f32[2]", "f32[2]"), {}),
        Sample((), {"element": INT}),
    ),
    _value_op(
        "dict",
        "dict(*items) -> dict",
        "A dict of key, value, key, value ...",
        _infer_dict,
        lambda args, attrs: dict(zip(args[::2], args[1::2], strict=True)),
        Sample(("int", "f32[2, s0]"), {}, "positive"),
    ),
    _value_op(
        "get",
        "get(container, key; sizes) -> value",
        "The element of a list or tuple at a position, of a dict under a key. `sizes` (may be absent): names "
        "and axes of a tensor's sizes, which are results before it.",
        _infer_get,
        _get,
        Sample(("tuple<f32[2], int>", "int(1)"), {}, "positive"),
        Sample(("list<int>", "int(0)"), {}, "positive"),
    ),
    _value_op(
        "len",
        "len(container) -> int",
        "The number of elements.",
        _infer_len,
        lambda args, attrs: len(args[0]),
        Sample(("list<int>",), {}, "positive"),
        Sample(("tuple<int, int>",), {}, "positive"),
    ),
    _value_op(
        "distinct",
        "distinct(list) -> bool",
        "Whether no two elements of a list of plain values are equal.",
        _infer_distinct,
        lambda args, attrs: len(set(args[0])) == len(args[0]),
        Sample(("list<int>",), {}, "positive"),
    ),
    _value_op(
        "append",
        "append(list, value) -> list",
        "The list with one more element.",
        _infer_append,
        lambda args, attrs: [*args[0], args[1]],
        Sample(("list<int>", "int"), {}, "positive"),
    ),
    _value_op(
        "list_set",
        "list_set(list, int index, value) -> list",
        "The list with another element at a position in it.",
        _infer_list_set,
        lambda args, attrs: _with_item(*args),
        Sample(("list<int>", "int(0)", "int"), {}, "positive"),
    ),
    _value_op(
        "list_slice",
        "list_slice(list, int begin, int end) -> list",
        "The elements from `begin` to before `end`.",
        _infer_list_slice,
        lambda args, attrs: args[0][args[1] : args[2]],
        Sample(("list<int>", "int(0)", "int(1)"), {}, "positive"),
    ),
    *(
        _binary(f"str_{n}", f"a {n} b.", _infer_bool(f"str_{n}", "str"), _COMPARISONS[n], "str", "bool")
        for n in _COMPARISONS
    ),
    _binary("str_concat", "a, then b.", _infer_concat, operator.add, "str", "str"),
    _value_op(
        "to_str",
        "to_str(Scalar a) -> str",
        "A bool, int or float as TorchScript writes it.",
        _infer_to_str,
        lambda args, attrs: written(args[0]),
        Sample(("float",), {}),
        Sample(("int",), {}, "positive"),
        Sample(("bool",), {}),
    ),
)


# torch's overloads --------------------------------------------------------------------------------


def dropped(b: Builder, *_: Any, **__: Any) -> None:
    """Nothing: dtypes, layouts and devices are fixed at import."""
    return None


def constrain_range(b: Builder, size: DimExpr, *, min: int | None = None, max: int | None = None) -> None:
    """A guard that a value read from a tensor is in the range."""
    limits = [sympy.Ge(sympy.sympify(size), min)] if min is not None else []
    limits += [sympy.Le(sympy.sympify(size), max)] if max is not None and max < 2**62 else []
    for limit in limits:
        add_guard(b, limit, f"a value read from a tensor must be in {min} .. {max}")


def assert_tensor(b: Builder, x: Value, message: str = "a check of the model failed") -> None:
    """A guard that a tensor of one element is not 0."""
    condition = x if type_dtype(x) == "bool" else b.one("cast", x, dtype="bool")
    b.apply("guard", b.one("item", condition), message=message)


def check_linalg(b: Builder, info: Value, api_name: str, *, is_matrix: bool) -> None:
    """A guard that all of LAPACK's codes `info` report success."""
    failed = B.cast_to(b, B.pointwise(b, "ne", info, 0), "i64")
    total = B.reduce(b, "reduce_sum", failed, range(len(B.shape_of(info))), False)
    message = f"{api_name}: LAPACK fails, as for a matrix that is singular or not positive definite"
    b.apply("guard", b.one("item", B.pointwise(b, "eq", total, 0)), message=message)


def type_dtype(x: Value) -> str:
    """Return the dtype of a tensor value."""
    return tensor("assert", [x.type], 0).dtype


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten._assert_tensor_metadata.default",), dropped),
    Composite(
        ("aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default"), constrain_range
    ),
    Composite(("aten._assert_async.msg", "aten._assert_async.default"), assert_tensor),
    Composite(("aten._linalg_check_errors.default",), check_linalg),
)
