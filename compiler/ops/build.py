"""Graph values made with PyTorch's conventions: broadcasting, promotion, negative axes, sizes of -1.

Composites and decompositions are written in these. Every function takes an `ir.Builder` first and omits nodes
without effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import sympy

from ..ir.dims import DimExpr, equal, floordiv, format_dim, product, simplify
from ..ir.errors import DtypeError, ShapeError, UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.promotion import DEFAULT_FLOAT, SCALAR, TENSOR, ZERO_DIM, Operand, result_dtype, scalar_dtype
from ..ir.ranges import bounds
from ..ir.types import ScalarType, TensorType
from .conditions import add_guard, equation
from .rules import Shape, equal_shapes, may_equal, show

Number: TypeAlias = bool | int | float | sympy.Expr
Tensorlike: TypeAlias = Value | Number
MAX_PARTS, MAX_SYMBOLIC_PARTS = 32, 10  # of one concat: limits of its kernel
MAX_CLAMPS = 4  # Min and Max in a size of several broadcast ones; sympy takes seconds for a hundred
_SCALARS = {"bool": "bool", "int": "i64", "float": DEFAULT_FLOAT}


def shape_of(x: Any) -> Shape:
    """Return the shape of a tensor value."""
    return type_of(x).shape


def dtype_of(x: Any) -> str:
    """Return the dtype of a tensor value."""
    return type_of(x).dtype


def type_of(x: Any) -> TensorType:
    """Return the type of a tensor value, of a complex one that of its parts. Raises DtypeError for another
    kind of value."""
    found = getattr(x, "type", None)
    if not isinstance(found, TensorType):
        raise DtypeError(f"{x!r} is given where a tensor is needed")
    return found


def is_one(dim: DimExpr) -> bool:
    """Return True where `dim` is the constant 1."""
    return isinstance(dim, int | sympy.Integer) and int(dim) == 1


# Sources and conversions --------------------------------------------------------------------------


def full(b: Builder, value: Tensorlike, dtype: str, shape: Shape = ()) -> Value:
    """Return a tensor of `shape` with `value` (a number, a size expression, or a number known at run time
    only), converted to `dtype`, everywhere. A value that may be negative is read from a tensor, because
    kernels take sizes, which are not negative."""
    if isinstance(value, Value):
        return expand(b, tensor_of(b, value, dtype), tuple(shape))
    value = convert_number(value, dtype)
    if isinstance(value, sympy.Expr) and not value.is_number and not is_size(b, value):
        return expand(b, b.one("scalar", b.size(simplify(value)), dtype=dtype), tuple(shape))
    return b.one("full", value=value, dtype=dtype, shape=tuple(shape))


def is_size(b: Builder, value: DimExpr) -> bool:
    """Return True if `value` is never below 0 by the contract."""
    low, _ = bounds_of(b, value)
    return low is not None and low >= 0


def uniform(x: Value) -> Number | None:
    """Return the value of all elements of `x` if it is uniform by definition, else None. An expression of
    sizes may be negative."""
    node = x.node
    if node is None or node.op not in ("full", "scalar", "reshape", "expand", "permute", "slice"):
        return None
    if node.op == "scalar":  # see `full`
        return getattr(node.arg(0).type, "expr", None) if node.attrs["dtype"] == "i64" else None
    return node.attrs["value"] if node.op == "full" else uniform(node.arg(0))


def name_of_constant(x: Value) -> str:
    """Return the name of the first named constant from which `x` is computed, "" if there is none."""
    node = x.node
    if node is not None and node.op == "constant":
        return str(node.attrs["name"])
    names = () if node is None else (name_of_constant(arg) for arg in node.present)
    return next((name for name in names if name), "")


def as_float(value: Any) -> Any:
    """Return a number as a float; run-time values are unchanged."""
    return value if is_run_time(value) else float(value)


def is_run_time(value: Any) -> bool:
    """Return True for a tensor, and for a number that is known at run time only."""
    return isinstance(value, Value) or (isinstance(value, sympy.Expr) and not value.is_number)


def is_run_time_number(value: Any) -> bool:
    """Return True for a run-time number."""
    return is_run_time(value) and not (isinstance(value, Value) and not isinstance(value.type, ScalarType))


def convert_number(value: Any, dtype: str) -> Any:
    """Return `value` as the Python type that holds a `dtype`, negative ones of u8 as PyTorch wraps them; size
    expressions and run-time numbers are unchanged."""
    if is_run_time(value):
        return value
    if dtype == "bool":
        return bool(value)
    if dtype in ("f64", "f32", "f16", "bf16"):
        return float(value)
    return int(value) % 256 if dtype == "u8" and -256 < int(value) < 0 else int(value)


def cast_to(b: Builder, x: Value, dtype: str) -> Value:
    """Return `x` as `dtype`."""
    return x if dtype_of(x) == dtype else b.one("cast", x, dtype=dtype)


def tensor_of(b: Builder, x: Tensorlike, dtype: str | None = None) -> Value:
    """Return `x` as a tensor: a number becomes 0-d, of its promotion dtype or `dtype`."""
    if isinstance(x, Value) and isinstance(x.type, ScalarType):
        return b.one("scalar", x, dtype=dtype or _SCALARS[x.type.kind])
    if isinstance(x, Value):
        return x if dtype is None else cast_to(b, x, dtype)
    return full(b, x, dtype or scalar_dtype(x))


def operand(x: Tensorlike) -> Operand:
    """Return the operand for type promotion."""
    if isinstance(x, Value) and isinstance(x.type, ScalarType):
        return Operand(_SCALARS[x.type.kind], SCALAR)
    if isinstance(x, Value):
        return Operand(dtype_of(x), TENSOR if shape_of(x) else ZERO_DIM)
    return Operand(scalar_dtype(x), SCALAR)


def common_dtype(*args: Tensorlike) -> str:
    """Return PyTorch's common dtype of the operands."""
    return result_dtype(map(operand, args))


# Shapes -------------------------------------------------------------------------------------------


def axis_of(op: str, axis: int, rank: int) -> int:
    """Return `axis` counted from the front (rank 0 counts as 1). Raises ShapeError if it is out of range,
    UnsupportedOp for a run-time axis."""
    if not isinstance(axis, int | sympy.Integer):
        raise UnsupportedOp(f"{op}: dim is a run-time int; it must be a constant")
    axis, limit = int(axis), max(rank, 1)
    if not -limit <= axis < limit:
        raise ShapeError(f"{op}: dim is {axis}; a tensor of rank {rank} takes -{limit} to {limit - 1}")
    return axis % limit


def axes_of(op: str, axes: int | Sequence[int] | None, rank: int) -> list[int]:
    """Return axes counted from the front in ascending order; None or [] are all axes."""
    if axes is None or (not isinstance(axes, int) and not axes):
        return list(range(rank))
    if isinstance(axes, int):
        axes = [axes]
    found = sorted(axis_of(op, axis, rank) for axis in axes)
    if len(set(found)) != len(found):
        raise ShapeError(f"{op}: dims are {list(axes)}; each may be named once")
    return found if rank else []


def size_of(b: Builder, x: Value, op: str = "") -> DimExpr:
    """Return the size that the only element of a tensor is, which is read at run time; an element between
    two integers counts as the one nearer to 0. `op`: an operator that needs a size of at least 1."""
    size = b.take_size()
    b.one("item", cast_to(b, reshape(b, x, []), "i64"), symbol=str(size))
    if op:
        add_guard(b, sympy.Ge(size, 1), f"{op}: a size of the result is below 1")
    return size


def reshape(b: Builder, x: Value, shape: Sequence[DimExpr]) -> Value:
    """Return `x` in `shape`; one -1 takes the rest. Numbers of elements that may differ are checked at every
    call."""
    shape = tuple(shape)
    unknown = [i for i, size in enumerate(shape) if isinstance(size, int | sympy.Integer) and int(size) == -1]
    if unknown:
        (at,) = unknown
        rest = product(size for i, size in enumerate(shape) if i != at)
        shape = (*shape[:at], divide(product(shape_of(x)), rest), *shape[at + 1 :])
    shape = tuple(simplify(size) for size in shape)
    if equal_shapes(shape, shape_of(x)):
        return x
    ours, wanted = simplify(product(shape_of(x))), simplify(product(shape))
    if not may_equal(ours, wanted) and not is_known(ours - wanted):
        x = of_size(b, "reshape", b.one("reshape", x, shape=(ours,)), 0, wanted)
    return b.one("reshape", x, shape=shape)


def divide(a: DimExpr, by: DimExpr) -> DimExpr:
    """Return floor(a / by)."""
    if by == 0:
        raise ShapeError("reshape: a size of -1 cannot be found beside a size of 0; write the size out")
    return simplify(floordiv(sympy.sympify(a), sympy.sympify(by)))


def permute(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """Return `x` with its axes in the order `axes`."""
    return x if list(axes) == sorted(axes) else b.one("permute", x, axes=tuple(axes))


def expand(b: Builder, x: Value, shape: Sequence[DimExpr]) -> Value:
    """Return `x` repeated along axes of size 1 and new leading axes to `shape`. Sizes that may differ are
    checked at every call."""
    shape = tuple(simplify(size) for size in shape)
    for axis, size in enumerate(shape[len(shape) - len(shape_of(x)) :]):
        if not is_one(shape_of(x)[axis]) and not is_known(shape_of(x)[axis] - size):
            x = of_size(b, "expand", x, axis, size)
    return x if equal_shapes(shape, shape_of(x)) else b.one("expand", x, shape=shape)


def take(b: Builder, x: Value, axis: int, start: DimExpr, length: DimExpr, step: int = 1) -> Value:
    """Return the slice start, start + step, ... (`length` positions) of one axis; all of it is `x` itself."""
    if step == 1 and equal(start, 0) and equal(length, shape_of(x)[axis]):
        return x
    return b.one("slice", x, axis=axis, start=simplify(start), length=simplify(length), step=step)


def flip(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """Return `x` with the order along `axes` (from the front) reversed."""
    for axis in axes:
        size = shape_of(x)[axis]
        if not is_one(size):
            x = take(b, x, axis, simplify(size - 1), size, -1)
    return x


def iota(b: Builder, length: DimExpr, axis: int = 0, rank: int = 1) -> Value:
    """Return the positions 0, 1, .. along `axis`, of size 1 along the other axes."""
    line = b.one("iota", start=0, step=1, length=simplify(length), dtype="i64")
    return reshape(b, line, [length if i == axis else 1 for i in range(rank)])


def diagonal(b: Builder, x: Value, row: int, column: int, length: DimExpr) -> Value:
    """Return the elements x[.., row + i, column + i] of the last two axes, i below `length`."""
    *outer, n_rows, n_columns = shape_of(x)
    line = reshape(b, x, [*outer, product((n_rows, n_columns))])
    first = simplify(row * n_columns + column)
    if isinstance(n_columns, int):
        return take(b, line, len(outer), 0 if length == 0 else first, length, n_columns + 1)
    places = pointwise(b, "add", pointwise(b, "mul", iota(b, length), simplify(n_columns + 1)), first)
    return b.one("gather", line, places, axis=len(outer))


def windows(b: Builder, x: Value, axis: int, size: int, step: int, count: DimExpr) -> Value:
    """Return `count` windows of `size` positions along `axis`, `step` apart; a window's positions come
    last."""
    shape = shape_of(x)
    last = [*(i for i in range(len(shape) + 1) if i != axis + 1), axis + 1]
    if size == step:
        x = take(b, x, axis, 0, simplify(count * size))
        return permute(b, reshape(b, x, [*shape[:axis], count, size, *shape[axis + 1 :]]), last)
    first = pointwise(b, "mul", iota(b, count, 0, 2), step)
    return permute(b, b.one("gather", x, pointwise(b, "add", first, iota(b, size, 1, 2)), axis=axis), last)


def drop_axis(b: Builder, x: Value, axis: int) -> Value:
    """Return `x` without `axis`, whose size is 1."""
    shape = shape_of(x)
    return reshape(b, x, shape[:axis] + shape[axis + 1 :])


def add_axis(b: Builder, x: Value, axis: int) -> Value:
    """Return `x` with a new axis of size 1 before position `axis`."""
    shape = shape_of(x)
    return reshape(b, x, (*shape[:axis], 1, *shape[axis:]))


def concat(b: Builder, xs: Sequence[Value], axis: int) -> Value:
    """Concatenate `xs` (of one dtype) along `axis`; nested concats are flattened, and a long
    list is concatenated in parts."""
    parts: list[Value] = []
    for x in xs:
        is_same = x.node is not None and x.node.op == "concat" and x.node.attrs["axis"] == axis
        parts += x.definition.present if is_same else [x]
    kept = [x for x in parts if not equal(shape_of(x)[axis], 0)] or parts[:1]
    symbolic = any(not isinstance(shape_of(x)[axis], int) for x in kept)
    most = MAX_SYMBOLIC_PARTS if symbolic else MAX_PARTS
    while len(kept) > most:
        kept = [_concat(b, kept[i : i + most], axis) for i in range(0, len(kept), most)]
    return _concat(b, kept, axis)


def _concat(b: Builder, xs: Sequence[Value], axis: int) -> Value:
    for i, size in enumerate(shape_of(xs[0])):
        if i != axis:
            xs = [of_matching_size(b, "concat", x, i, size) for x in xs]
    return xs[0] if len(xs) == 1 else b.one("concat", *xs, axis=axis)


def pad(b: Builder, x: Value, amounts: Sequence[tuple[DimExpr, DimExpr]], value: Number = 0) -> Value:
    """Return `x` with (low, high) positions of `value` added at each axis; negative amounts cut positions
    off."""
    for axis, (low, high) in reversed(list(enumerate(amounts))):
        size = simplify(shape_of(x)[axis] + low + high)
        x = cut(b, x, axis, low, high)
        shape, parts = shape_of(x), [x]
        for amount, place in ((low, 0), (high, 2)):
            if not equal(added := positive_part(b, amount), 0):
                side = full(b, value, dtype_of(x), (*shape[:axis], added, *shape[axis + 1 :]))
                parts.insert(place, side)
        x = of_size(b, "pad", concat(b, parts, axis), axis, size)
    return x


def cut(b: Builder, x: Value, axis: int, low: DimExpr, high: DimExpr) -> Value:
    """Return `x` without the positions at the ends of an axis that negative amounts name."""
    first, last = (positive_part(b, simplify(-amount)) for amount in (low, high))
    length = simplify(shape_of(x)[axis] - first - last)
    if isinstance(length, int) and length < 0:
        raise ShapeError(
            f"pad: {low} and {high} positions leave {length} of an axis of size {shape_of(x)[axis]}"
        )
    return take(b, x, axis, first, length)


def positive_part(b: Builder, amount: DimExpr) -> DimExpr:
    """Return the greater one of `amount` and 0."""
    low, high = bounds_of(b, amount)
    if low is not None and low >= 0 and high != 0:
        return amount
    return 0 if high is not None and high <= 0 else simplify(sympy.Max(amount, 0))


def least(b: Builder, one: DimExpr, other: DimExpr) -> DimExpr:
    """Return the smaller one of two sizes."""
    apart = simplify(one - other)
    low, high = bounds_of(b, apart)
    if high is not None and high <= 0:
        return one
    return other if low is not None and low >= 0 else simplify(sympy.Min(one, other))


def place(b: Builder, x: Value, part: Value, axis: int, start: DimExpr, length: DimExpr) -> Value:
    """Return `x` with `length` positions of an axis from `start` replaced by `part`."""
    end = simplify(start + length)
    rest = take(b, x, axis, end, simplify(shape_of(x)[axis] - end))
    return concat(b, [take(b, x, axis, 0, start), part, rest], axis)


def broadcast_shape(op: str, shapes: Sequence[Shape]) -> Shape:
    """Return the shape that `shapes` broadcast to. Raises ShapeError if two sizes neither agree nor are 1."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[DimExpr] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if is_one(size):
                continue
            if not is_one(result[axis]) and not equal(result[axis], size):
                raise ShapeError(
                    f"{op}: shapes {' and '.join(map(show, shapes))} do not broadcast to one shape"
                )
            result[axis] = size
    return tuple(result)


def broadcast(b: Builder, op: str, args: Sequence[Value], or_one: bool = False) -> list[Value]:
    """Return all `args` expanded to one shape. Sizes that may differ are checked at every call; with `or_one`
    they may be 1."""
    args = agreeing(b, op, args, or_one)
    shape = broadcast_shape(op, [shape_of(x) for x in args])
    return [expand(b, x, shape) for x in args]


def agreeing(b: Builder, op: str, args: Sequence[Value], or_one: bool = False) -> list[Value]:
    """Return `args` with one expression for each common size; with `or_one` run-time sizes may be 1, and are
    repeated."""
    made, rank = list(args), max((len(shape_of(x)) for x in args), default=0)
    or_one = or_one or b.assume is not None
    for back in range(1, rank + 1):
        made = _without_caps(b, op, made, back) if or_one else _without_small(b, op, made, back)
        sizes = [shape_of(x)[-back] if len(shape_of(x)) >= back else 1 for x in made]
        wanted: DimExpr = next((size for size in sizes if not is_one(size)), 1)
        open_ones = [i for i, size in enumerate(sizes) if not is_one(size) and not is_known(size - wanted)]
        several = [i for i, size in enumerate(sizes) if not is_one(size)] if open_ones else []
        may_be_one = or_one and any(bounds_of(b, sizes[i])[0] in (None, 0, 1) for i in several)
        if may_be_one:
            wanted = _common_size(b, op, [sizes[i] for i in several])
            open_ones = several
        for i in open_ones:
            x, axis = made[i], len(shape_of(made[i])) - back
            made[i] = repeated(b, x, axis, wanted) if may_be_one else of_size(b, op, x, axis, wanted)
    return made


def _without_small(b: Builder, op: str, args: Sequence[Value], back: int) -> list[Value]:
    """Return `args` in which a size of at most 1 that may differ from the other one is 1, which is checked at
    every call."""
    found = [(x, len(shape_of(x)) - back) for x in args]
    sizes = [shape_of(x)[axis] for x, axis in found if axis >= 0 and not is_one(shape_of(x)[axis])]
    if all(is_known(size - sizes[0]) for size in sizes):
        return list(args)
    return [
        of_size(b, op, x, axis, 1)
        if axis >= 0 and not isinstance(shape_of(x)[axis], int) and bounds_of(b, shape_of(x)[axis])[1] == 1
        else x
        for x, axis in found
    ]


def _without_caps(b: Builder, op: str, args: Sequence[Value], back: int) -> list[Value]:
    """Return `args` in which a size Min(n, size), n > 1, next to that size is that size, which is checked at
    every call: where one of the two is 1, both are. A table of n positions gives such sizes."""
    found = [(x, len(shape_of(x)) - back) for x in args]
    sizes = [sympy.sympify(shape_of(x)[axis]) for x, axis in found if axis >= 0]

    def whole(size: Any) -> Any:
        caps = size.args if isinstance(size, sympy.Min) and len(size.args) == 2 else ()
        is_capped = any(cap.is_Integer and cap > 1 for cap in caps)
        return next((other for other in sizes if is_capped and other in caps), size)

    return [
        of_size(b, op, x, axis, simplify(whole(sympy.sympify(shape_of(x)[axis])))) if axis >= 0 else x
        for x, axis in found
    ]


def _common_size(b: Builder, op: str, sizes: Sequence[DimExpr]) -> DimExpr:
    """Return the size to which these, equal or 1, broadcast; it is checked at every call."""
    common = sympy.sympify(sizes[0])
    for size in map(sympy.sympify, sizes[1:]):
        message = f"{op}: sizes {format_dim(common)} and {format_dim(size)} must be equal, or one of them 1"
        add_guard(b, sympy.Or(equation(common, size), equation(common, 1), equation(size, 1)), message)
        if sum(each.count(kind) for each in (common, size) for kind in (sympy.Min, sympy.Max)) > MAX_CLAMPS:
            common = sympy.sympify(_computed_common_size(b, common, size))
        else:
            common = sympy.Max(common, size) * sympy.Min(1, common, size)
    return simplify(common)


def _computed_common_size(b: Builder, one: DimExpr, other: DimExpr) -> DimExpr:
    """Return the size to which two broadcast as a name for what a call computes, which does not grow."""
    sizes = [full(b, size, "i64") for size in (one, other)]
    least, most = pointwise(b, "minimum", *sizes), pointwise(b, "maximum", *sizes)
    return size_of(b, pointwise(b, "mul", most, pointwise(b, "minimum", least, 1)))


def repeated(b: Builder, x: Value, axis: int, size: DimExpr) -> Value:
    """Return `x` repeated along an axis to `size`, if its size there is 1 at run time."""
    if equal(shape_of(x)[axis], size):
        return x
    return b.one("gather", x, pointwise(b, "mod", iota(b, size), shape_of(x)[axis]), axis=axis)


def is_known(dim: DimExpr) -> bool:
    """Whether a size expression is a number."""
    return not isinstance(simplify(dim), sympy.Expr) or bool(sympy.sympify(simplify(dim)).is_number)


def of_size(b: Builder, op: str, x: Value, axis: int, size: DimExpr) -> Value:
    """Return `x` whose size along an axis is `size`, which is checked at every call."""
    found = shape_of(x)[axis]
    if equal(found, size):
        return x
    message = f"{op}: sizes {format_dim(found)} and {format_dim(size)} must be equal"
    add_guard(b, equation(found, size), message)
    return take(b, x, axis, 0, size)


def of_matching_size(b: Builder, op: str, x: Value, axis: int, size: DimExpr) -> Value:
    """Return `of_size` of an axis, which may count from the end, where it is only known at run time whether
    the sizes are equal; else `x`, which `op` itself checks."""
    axis %= len(shape_of(x))
    return x if is_known(shape_of(x)[axis] - size) else of_size(b, op, x, axis, size)


def bounds_of(b: Builder, dim: DimExpr) -> tuple[int | None, int | None]:
    """Return the lowest and highest value of a size expression under the graph's contract."""
    return bounds(dim, b.graph.symbols)


# Computing ----------------------------------------------------------------------------------------


#: For f16 and bf16 PyTorch computes these in f32, with an unrounded number.
_BY_EXACT_NUMBERS = ("mul", "div")
_STEPS = {"f16": 2.0**11, "bf16": 2.0**8}  # from 0 to a power of 2


def pointwise(b: Builder, op: str, *args: Tensorlike, dtype: str | None = None, **attrs: Any) -> Value:
    """Apply a pointwise op to operands converted to one dtype (theirs in common, or `dtype`) and one
    shape."""
    dtype = dtype or common_dtype(*args)
    is_wide = op in _BY_EXACT_NUMBERS and dtype in ("f16", "bf16") and any(_is_finer(x, dtype) for x in args)
    values = broadcast(b, op, [tensor_of(b, x, "f32" if is_wide else dtype) for x in args])
    result = b.one(op, *values, **attrs)
    return cast_to(b, result, dtype) if is_wide else result


def _is_finer(x: Tensorlike, dtype: str) -> bool:
    """Return True for a number that may have more digits than f16 or bf16."""
    if isinstance(x, Value) and isinstance(x.type, TensorType):
        return not x.type.shape and x.type.dtype in ("f32", "f64", "i32", "i64")
    if not isinstance(x, float):
        return isinstance(x, Value)
    return math.isfinite(x) and not (math.frexp(x)[0] * _STEPS[dtype]).is_integer()


def where(b: Builder, condition: Value, x: Tensorlike, y: Tensorlike) -> Value:
    """Return x where `condition` holds, else y, in their common dtype."""
    dtype = common_dtype(x, y)
    return b.one(
        "where",
        *broadcast(
            b, "where", [cast_to(b, condition, "bool"), tensor_of(b, x, dtype), tensor_of(b, y, dtype)]
        ),
    )


def in_f32(b: Builder, compute: Callable[..., Value], *args: Value | None) -> Value:
    """Return compute(*args) with f16 and bf16 arguments as f32 and the result rounded back once."""
    assert args[0] is not None
    dtype = dtype_of(args[0])
    if dtype not in ("f16", "bf16"):
        return compute(*args)
    return cast_to(b, compute(*(None if x is None else cast_to(b, x, "f32") for x in args)), dtype)


def reduce(b: Builder, op: str, x: Value, axes: Sequence[int], keepdim: bool) -> Value:
    """Reduce `x` over `axes` (ascending, from the front): they are moved last, merged to one axis, and
    removed or kept with size 1."""
    shape, rank = shape_of(x), len(shape_of(x))
    kept = [axis for axis in range(rank) if axis not in axes]
    x = permute(b, x, [*kept, *axes])
    x = reshape(b, x, [*(shape[axis] for axis in kept), product(shape[axis] for axis in axes)])
    result = b.one(op, x)
    wanted = (
        [1 if axis in axes else size for axis, size in enumerate(shape)]
        if keepdim
        else [shape[axis] for axis in kept]
    )
    return reshape(b, result, wanted)
