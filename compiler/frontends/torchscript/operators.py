"""aten:: operators: those of plain values and containers, then those of tensors through the tables of
converters that all frontends share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch

from ...ir.dims import OPEN, product, simplify
from ...ir.errors import ShapeError, UnsupportedOp
from ...ir.graph import Builder, Value
from ...ir.promotion import is_float
from ...ir.types import TensorType
from ...ops import build as B
from ...ops.conditions import add_guard
from ..importer import find_converter
from . import arithmetic, attributes, composites, library, matching, signals, variants
from .arguments import dtype_argument, is_layout, wants_size
from .containers import container_op, content
from .decomposed import can_decompose, decomposed
from .scalars import PYTHON, decided, scalar_op, unknown_int
from .tensors import VIEWS
from .texts import text_op
from .values import (
    Dict,
    List,
    Maybe,
    Member,
    Tensor,
    Variant,
    View,
    is_run_time,
    is_run_time_list,
    is_size,
    kind_of,
)

if TYPE_CHECKING:
    from .importer import ScriptImporter


def import_operator(importer: ScriptImporter, node: Any) -> list[Any]:
    """Import a node that is an operator; return its results. Raises UnsupportedOp naming it where it
    cannot be compiled."""
    return _imported(importer, node, [importer.get(value) for value in node.inputs()])


#: Operators of their own -> which argument is an axis; where a call tells it, there is a branch for each.
_OF_AN_AXIS = {"select": 1, "slice": 1, "squeeze": 1, "squeeze_": 1, "roll": 2}


def _imported(importer: ScriptImporter, node: Any, args: Sequence[Any]) -> list[Any]:
    kind = node.kind()
    name = kind.removeprefix("aten::")
    if kind.startswith("aten::"):
        at = _OF_AN_AXIS.get(name)
        if at is not None and isinstance(args[0], Tensor) and attributes.is_told_axis(args[at : at + 1]):
            return attributes.of_each_axis(
                importer, name, args, at, lambda changed: _imported(importer, node, changed)
            )
        found = _own(importer, name, args)
        if found is not NotImplemented:
            return list(found) if node.outputsSize() > 1 else [found] if node.outputsSize() else []
    if node.schema() == "(no schema)" or kind.startswith("prim::"):
        raise UnsupportedOp(f"{kind} cannot be compiled")
    return _tensor_operator(importer, node, args)


def _own(importer: ScriptImporter, name: str, args: Sequence[Any]) -> Any:
    """Return what an operator of plain values or containers gives; NotImplemented for others."""
    found = container_op(importer, name, args)
    if found is not NotImplemented:
        return found
    found = text_op(importer, name, args)
    if found is not NotImplemented:
        return found
    special = _SPECIAL.get(name)
    if special is not None:
        return special(importer, *args)
    if name in ("eq", "ne") and all(isinstance(x, Member) for x in args):
        return (_is if name == "eq" else _is_not)(importer, *args)
    if name in library.OF_LISTS and isinstance(args[0], List) and is_run_time_list(args[0].content):
        return library.run(importer, "vstack" if name == "row_stack" else name, args)
    if name in library.OF_INTS and any(is_run_time(x) or is_size(x) for x in args):
        return library.run(importer, name, args)
    if name in PYTHON and args and all(map(kind_of, args)):
        return scalar_op(importer.builder, name, args)
    if (
        name in ("eq", "ne")
        and len(args) == 2
        and all(x is None or kind_of(x) or isinstance(x, tuple) for x in args)
    ):
        return (args[0] == args[1]) is (name == "eq")
    return NotImplemented


# Operators of their own -------------------------------------------------------------------------------


def _size(importer: ScriptImporter, x: Tensor, dim: int | None = None) -> Any:
    shape = B.shape_of(importer.tensors.read(x))
    if is_run_time(dim):
        return container_op(importer, "__getitem__", [List(list(shape)), dim])
    return List(list(shape)) if dim is None else shape[B.axis_of("size", dim, len(shape))]


def _roll(importer: ScriptImporter, x: Tensor, shifts: List, dims: List) -> Any:
    """aten::roll by what only a call tells, which may be negative."""
    if is_run_time_list(shifts.content) or not any(map(is_run_time, shifts.content)):
        return NotImplemented
    shape = B.shape_of(importer.tensors.read(x))
    if not dims.content:
        return library.run(importer, "roll", [x, shifts.content[0]])
    sizes = [shape[B.axis_of("roll", dim, len(shape))] for dim in dims.content]
    pairs = zip(shifts.content, sizes, strict=True)
    within = [scalar_op(importer.builder, "remainder", (shift, size)) for shift, size in pairs]
    args = [importer.tensors.read(x), [importer.size_of(each) for each in within], dims.content]
    return importer.tensors.fresh(run(importer, "aten.roll.default", args, {}))


def _tile(importer: ScriptImporter, x: Tensor, times: List) -> Any:
    """x.tile(times): x.repeat(times), which has a number for every axis."""
    rank = len(B.shape_of(importer.tensors.read(x)))
    counts = [importer.size_of(n) for n in content(importer, times)]
    args = [importer.tensors.read(x), [1] * (rank - len(counts)) + counts]
    return importer.tensors.fresh(run(importer, "aten.repeat.default", args, {}))


def _expand(importer: ScriptImporter, x: Tensor, sizes: List, *_: Any) -> Any:
    """x.expand(sizes), of which a call tells one: an axis of size 1 in the example has size 1."""
    shape, wanted = B.shape_of(importer.tensors.read(x)), content(importer, sizes)
    if any(map(is_run_time, wanted)):
        for size, other in zip(shape[::-1], wanted[::-1], strict=False):
            if is_size(size) and importer.inputs.example_of(size) == 1:
                importer.require_equal(size, 1)
            elif is_size(size) and not is_run_time(other) and other != -1:
                importer.require_equal(size, other)
    return NotImplemented


def _length(importer: ScriptImporter, x: Any) -> Any:
    if isinstance(x, Tensor):
        return B.shape_of(importer.tensors.read(x))[0]
    return len(x) if isinstance(x, tuple) else NotImplemented


def _item(importer: ScriptImporter, x: Any) -> Any:
    """Return a tensor's only element; what is known of it stays known."""
    if not isinstance(x, Tensor):
        return x
    value = importer.tensors.read(x)
    known = B.uniform(value)
    return known if known is not None else importer.builder.one("item", value)


def _as_kind(kind: str) -> Callable[..., Any]:
    def convert(importer: ScriptImporter, x: Any) -> Any:
        if isinstance(x, str) and kind != "bool":
            return {"int": int, "float": float}[kind](x)
        return scalar_op(importer.builder, kind.capitalize(), (_item(importer, x),))

    return convert


def _is(importer: ScriptImporter, x: Any, y: Any) -> Any:
    if isinstance(x, Maybe) and y is None:
        return importer.builder.one("bool_not", x.is_there)
    if isinstance(x, Member) and isinstance(y, Member):
        return _members_equal(importer, x, y)
    return x is y or (not isinstance(x, Tensor | List | Dict) and x is None and y is None)


def _members_equal(importer: ScriptImporter, x: Member, y: Member) -> Any:
    return scalar_op(importer.builder, "eq", (x.index, y.index)) if x.kind is y.kind else False


def _is_not(importer: ScriptImporter, x: Any, y: Any) -> Any:
    found = _is(importer, x, y)
    return (not found) if isinstance(found, bool) else importer.builder.one("bool_not", found)


def _to(importer: ScriptImporter, x: Tensor, *rest: Any) -> Tensor:
    """aten::to: a cast, or the tensor itself."""
    if not isinstance(x, Tensor):
        return NotImplemented
    value = importer.tensors.read(x)
    numbers = [each for each in rest[:2] if type(each) is int]
    dtype = dtype_argument(numbers[0]) if numbers else None
    if isinstance(rest[0], Tensor):
        dtype = B.dtype_of(importer.tensors.read(rest[0]))
    is_copied = len(rest) >= 3 and rest[-2 if rest[-1] is None else -1] is True
    if dtype in (None, B.dtype_of(value)) and not is_copied:
        return x
    return importer.tensors.fresh(B.cast_to(importer.builder, value, dtype or B.dtype_of(value)))


def _cast_like(importer: ScriptImporter, x: Tensor, other: Tensor) -> Tensor:
    return _to(importer, x, other)


def _dropout(importer: ScriptImporter, x: Tensor, p: Any, train: Any) -> Any:
    if train is False or p == 0:
        return x
    return NotImplemented


def _get_position(importer: ScriptImporter, x: Any, index: Any) -> Any:
    if isinstance(x, tuple):
        return x[index]
    return NotImplemented


def _tensor(importer: ScriptImporter, data: Any, dtype: Any = None, *_: Any) -> Tensor:
    """torch.tensor of numbers or nested lists of them."""
    b = importer.builder
    value, kind = _stacked(importer, data)
    default = {"int": "i64", "float": "f32", "bool": "bool"}[kind]
    return importer.tensors.fresh(B.cast_to(b, value, dtype_argument(dtype) or default))


def _as_tensor(importer: ScriptImporter, data: Any, dtype: Any = None, *rest: Any) -> Tensor:
    """torch.as_tensor: of a tensor that has the dtype already, itself."""
    if not isinstance(data, Tensor):
        return _tensor(importer, data, dtype)
    return data if dtype is None else _to(importer, data, dtype)


def _stacked(importer: ScriptImporter, data: Any) -> tuple[Value, str]:
    b = importer.builder
    if isinstance(data, List) and is_run_time_list(data.content):
        return composites.stacked(b, data.read()), str(data.content.type.element)
    if isinstance(data, List):
        parts = [_stacked(importer, item) for item in content(importer, data)]
        if not parts:
            return B.full(b, 0.0, "f32", (0,)), "float"
        return B.concat(b, [B.add_axis(b, value, 0) for value, _ in parts], 0), parts[0][1]
    kind = kind_of(data)
    dtype = {"int": "i64", "float": "f64", "bool": "bool"}[kind]
    return (b.one("scalar", data, dtype=dtype) if is_run_time(data) else B.full(b, data, dtype)), kind


def _parts_of(name: str) -> Callable[..., Any]:
    """Return the handler of an operator that takes a tensor into as many parts as only a call tells."""

    def parts(importer: ScriptImporter, x: Tensor, how: Any, dim: Any = 0) -> Any:
        if not isinstance(x, Tensor):
            return NotImplemented
        if isinstance(how, List):
            own = "tensor_split_at" if name == "tensor_split" else "split_sizes"
            return (
                library.run(importer, own, [x, how, dim]) if is_run_time_list(how.content) else NotImplemented
            )
        if (
            is_run_time(how)
            or is_size(how)
            or (name == "split" and not _is_known_split(importer, x, how, dim))
        ):
            return library.run(importer, name, [x, how, dim])
        return NotImplemented

    return parts


def _is_known_split(importer: ScriptImporter, x: Tensor, size: int, dim: Any) -> bool:
    """Return True where it is known how many parts of a size an axis has."""
    if is_run_time(dim):
        return False
    shape = B.shape_of(importer.tensors.read(x))
    return isinstance(shape[B.axis_of("split", dim, len(shape))], int)


def _dim(importer: ScriptImporter, x: Tensor) -> int:
    return len(B.shape_of(importer.tensors.read(x)))


def _numel(importer: ScriptImporter, x: Tensor) -> Any:
    return product(B.shape_of(importer.tensors.read(x)))


def _select(importer: ScriptImporter, x: Tensor, dim: int, index: Any) -> Any:
    """x.select(dim, index), with a check of indices that may be outside of the axis."""
    b, value = importer.builder, importer.tensors.read(x)
    size = B.shape_of(value)[B.axis_of("select", dim, len(B.shape_of(value)))]
    if is_run_time(index):
        below, above = b.one("int_lt", index, b.size(size)), b.one("int_le", b.size(simplify(-size)), index)
        message = "select: the index must be in the axis"
        b.apply("guard", b.one("bool_and", below, above), message=message)
        index = importer.size_of(b.one("int_mod", index, b.size(size)))
    elif is_size(index) or not isinstance(size, int):
        if is_size(index):
            low, _ = B.bounds_of(b, index)
            if low is None or low < 0:
                is_low = decided(b, sympy.Lt(index, 0))
                if not isinstance(is_low, bool):
                    return _select(importer, x, dim, unknown_int(b, index))
        limit = sympy.sympify(index) + 1 if is_size(index) or index >= 0 else -index
        add_guard(
            b,
            sympy.Ge(sympy.sympify(size), limit),
            f"select: index {index} must be in the axis of size {size}",
        )
    return _view(importer, "aten.select.int", x, (dim, index), {})


def _slice(
    importer: ScriptImporter, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    """x[start:end:step], with bounds that only a call tells brought into the axis."""
    if not isinstance(x, Tensor):
        return NotImplemented
    value = importer.tensors.read(x)
    size = B.shape_of(value)[B.axis_of("slice", dim, len(B.shape_of(value)))]
    if isinstance(start, int) and start == 0:
        start = None
    start, end = (_bound(importer, bound, size) for bound in (start, end))
    if is_run_time(step):
        step = importer.size_of(step)
    return _view(importer, "aten.slice.Tensor", x, (dim, start, end, step), {})


def _bound(importer: ScriptImporter, bound: Any, size: Any) -> Any:
    b = importer.builder
    if is_size(bound):
        low, high = B.bounds_of(b, bound)
        if (low is not None and low >= 0) or (high is not None and high < 0):
            return bound
        bound = b.size(bound)
    if not is_run_time(bound):
        return bound
    whole = b.size(size)
    from_end = b.one("int_max", b.size(0), b.one("int_add", bound, whole))
    is_negative = b.one("int_lt", bound, b.size(0))
    made = composites.choose(b, is_negative, from_end, b.one("int_min", bound, whole))
    return importer.size_of(made)


def _range_length(importer: ScriptImporter, low: Any, high: Any, step: Any) -> Any:
    """Return how many numbers a range has."""
    if is_run_time(step) or is_size(step):
        return _run_time_range_length(importer.builder, low, high, step)
    if not isinstance(step, int) or step == 0:
        raise ShapeError(f"range: the step is {step}; it must be an int that is not 0")
    b, distance = importer.builder, scalar_op(importer.builder, "sub", (high, low))
    if step < 0:
        distance = scalar_op(b, "neg", (distance,))
    steps = scalar_op(b, "floordiv", (scalar_op(b, "add", (distance, abs(step) - 1)), abs(step)))
    return scalar_op(b, "max", (steps, 0))


def _run_time_range_length(b: Builder, low: Any, high: Any, step: Any) -> Any:
    """Return how many numbers a range has whose step a call tells: distance + step - 1 or + 1 by the step."""
    is_known_sign = scalar_op(b, "ne", (step, 0))
    if isinstance(is_known_sign, Value):
        b.apply("guard", is_known_sign, message="range: the step must not be 0")
    is_down, distance = scalar_op(b, "lt", (step, 0)), scalar_op(b, "sub", (high, low))
    last = scalar_op(b, "add", (distance, step))
    ways = [scalar_op(b, name, (last, 1)) for name in ("add", "sub")]
    if isinstance(is_down, bool):
        rounded = ways[0] if is_down else ways[1]
    else:
        rounded = composites.choose(b, is_down, *(x if isinstance(x, Value) else b.size(x) for x in ways))
    return scalar_op(b, "max", (scalar_op(b, "floordiv", (rounded, step)), 0))


def _derived_index(importer: ScriptImporter, index: Any, start: Any, step: Any) -> Any:
    b = importer.builder
    return scalar_op(b, "add", (start, scalar_op(b, "mul", (index, step))))


def _squeeze(importer: ScriptImporter, x: Tensor, dim: Any = None) -> Any:
    """x.squeeze(dim), of an axis that in the example is of size 1 or is not: calls must agree."""
    shape = B.shape_of(importer.tensors.read(x))
    axes = B.axes_of("squeeze", content(importer, dim) if isinstance(dim, List) else dim, len(shape))
    for axis in axes if shape else ():
        if not isinstance(shape[axis], int):
            importer.require_equal(shape[axis], 1)
    return NotImplemented


def _unbind(importer: ScriptImporter, node: Any, x: Tensor, dim: int = 0) -> Any:
    """x.unbind(dim): a list of as many parts as a call tells. Where these get names of their own, or the
    program cannot be compiled so, there are as many as in the example."""
    shape = B.shape_of(importer.tensors.read(x))
    size = shape[B.axis_of("unbind", dim, len(shape))]
    if isinstance(size, int):
        return NotImplemented
    assumptions, example = importer.assumptions, importer.inputs.example_of(size)
    if example is None or not (assumptions.unbinds_as_example or _is_unpacked(node)):
        assumptions.unbinds = True
        return library.run(importer, "unbind", [x, dim])
    importer.require_equal(size, example)
    return NotImplemented


def _is_unpacked(node: Any) -> bool:
    return any(use.user.kind() == "prim::ListUnpack" for use in node.output().uses())


def _multi_dot(importer: ScriptImporter, xs: Any) -> Any:
    return library.run(importer, "multi_dot", [xs])


def _cartesian_product(importer: ScriptImporter, xs: List) -> Any:
    if is_run_time_list(xs.content) or len(xs.content) > 1:
        return library.run(importer, "cartesian_prod", [xs])
    return xs.content[0]


def _cat(importer: ScriptImporter, xs: Any, dim: Any = 0) -> Any:
    """torch.cat of a list whose tensors may differ in size along the axis."""
    if (
        not isinstance(xs, List)
        or not is_run_time_list(xs.content)
        or OPEN not in xs.content.type.element.shape
    ):
        return NotImplemented
    return library.run(importer, "cat", [xs, dim], xs.content.type.element)


def _divmod(importer: ScriptImporter, a: Any, c: Any) -> tuple[Any, Any]:
    whole, rest = (scalar_op(importer.builder, name, (a, c)) for name in ("floordiv", "remainder"))
    return whole, rest


_SPECIAL: dict[str, Callable[..., Any]] = {
    "divmod": _divmod, "linalg_multi_dot": _multi_dot, "chain_matmul": _multi_dot,
    "cartesian_prod": _cartesian_product,
    "size": _size, "len": _length, "dim": _dim, "numel": _numel, "item": _item, "Int": _as_kind("int"),
    "Float": _as_kind("float"), "Bool": _as_kind("bool"), "IntImplicit": _as_kind("int"),
    "FloatImplicit": _as_kind("float"), "ScalarImplicit": _item, "__is__": _is, "__isnot__": _is_not,
    "to": _to, "type_as": _cast_like, "dropout": _dropout, "dropout_": _dropout,
    "feature_dropout": _dropout, "alpha_dropout": _dropout, "__getitem__": _get_position, "tensor": _tensor,
    "dict": lambda importer: Dict({}),
    "as_tensor": _as_tensor,
    "select": _select, "slice": _slice, "device": lambda importer, text: text, "cpu": lambda importer, x: x,
    "is_floating_point": lambda importer, x: is_float(B.dtype_of(importer.tensors.read(x))),
    "roll": _roll, "tile": _tile, "expand": _expand,
    "squeeze": _squeeze, "squeeze_": _squeeze, "__range_length": _range_length,
    "__derive_index": _derived_index,
    "chunk": _parts_of("chunk"), "split": _parts_of("split"), "split_with_sizes": _parts_of("split"),
    "tensor_split": _parts_of("tensor_split"), "cat": _cat, "concat": _cat,
    "detach": lambda importer, x: x, "detach_": lambda importer, x: x,
    "requires_grad_": lambda importer, x, *_: x,
}  # fmt: skip


# Operators of tensors -----------------------------------------------------------------------------------


#: Operators of traced programs that compute with sizes as 0-d tensors -> the operator of ints.
_OF_SIZES = {
    "add": "add", "sub": "sub", "mul": "mul", "floor_divide": "floordiv", "remainder": "remainder",
    "rsub": "sub",
}  # fmt: skip


def _of_sizes(importer: ScriptImporter, name: str, args: Sequence[Any]) -> Tensor | None:
    """Return what an operator gives for ints that tracing made 0-d tensors; None for other arguments."""
    if name not in _OF_SIZES or len(args) < 2 or any(x != 1 for x in args[2:]):
        return None
    sides = [_known_int(importer, x) for x in args[:2]]
    if any(x is None for x in sides) or not any(isinstance(x, Tensor) for x in args):
        return None
    if name == "rsub":
        sides = sides[::-1]
    made = scalar_op(importer.builder, _OF_SIZES[name], sides)
    if is_run_time(made):
        return None
    return importer.tensors.fresh(B.full(importer.builder, made, "i64"))


def _known_int(importer: ScriptImporter, x: Any) -> Any:
    """Return an int or size, also that which is all of a 0-d tensor."""
    if isinstance(x, Tensor):
        value = importer.tensors.read(x)
        if not isinstance(value.type, TensorType) or value.type.dtype != "i64" or value.type.shape:
            return None
        return B.uniform(value)
    return x if kind_of(x) == "int" and not is_run_time(x) else None


def _tensor_operator(importer: ScriptImporter, node: Any, args: Sequence[Any]) -> list[Any]:
    sized = _of_sizes(importer, node.kind().removeprefix("aten::"), args)
    if sized is not None:
        return [sized]
    items = [importer.resolved(item) for x in args if isinstance(x, List) for item in _items(x)]
    if any(isinstance(item, Variant) for item in items):
        return variants.import_both(importer, node, items)
    schema = torch._C.parse_schema(node.schema())
    space, _, name = schema.name.partition("::")
    at = attributes.axis_at([argument.name for argument in schema.arguments], args)
    if at is not None:
        return attributes.of_each_axis(
            importer, name, args, at, lambda changed: _tensor_operator(importer, node, changed)
        )
    if name == "unbind":
        parts = _unbind(importer, node, *args)
        if parts is not NotImplemented:
            return [parts]
    choice = attributes.choice_at(schema.arguments, args)
    if choice is not None:
        return attributes.of_each_choice(
            importer, name, args, choice, lambda changed: _tensor_operator(importer, node, changed)
        )
    source = arithmetic.source_of(name, schema.overload_name, args)
    if source is not None:
        found = library.run(importer, source, args)
        return list(found) if node.outputsSize() > 1 else [found]
    made = _created(importer, name, dict(zip([a.name for a in schema.arguments], args, strict=True)))
    if made is not None:
        return [made]
    suffix = schema.overload_name or "default"
    writes = [i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    if writes:
        if writes != [0] or not name.endswith("_"):
            raise UnsupportedOp(f"{space}.{name}.{suffix} writes into another argument than its first")
        return [_in_place(importer, f"{space}.{name}.{suffix}", schema, args)]
    overload = f"{space}.{name}.{suffix}"
    positional, keywords = _converted(importer, schema, args)
    if overload in VIEWS or _returns_view(schema):
        first = args[0]
        return [_views(importer, overload, first, positional[1:], keywords)]
    made = run(importer, overload, positional, keywords)
    return [_abstract(importer, each) for each in ([made] if node.outputsSize() == 1 else made)]


def _created(importer: ScriptImporter, name: str, given: dict[str, Any]) -> Tensor | None:
    """Return the tensor that an operator makes of numbers of which only a call tells one; None for others."""
    if name == "arange" and any(map(is_run_time, given.values())):
        return _arange(importer, given)
    if name == "eye" and any(is_run_time(x) or is_size(x) for x in given.values()):
        found = library.run(importer, "eye", [given["n"], given.get("m", given["n"])])
        return _in_dtype(importer, found, dtype_argument(given["dtype"]) or "f32")
    if name in ("tril_indices", "triu_indices") and any(is_run_time(x) or is_size(x) for x in given.values()):
        found = library.run(importer, name, [given["row"], given["col"], given["offset"]])
        return _in_dtype(importer, found, dtype_argument(given["dtype"]) or "i64")
    if name in signals.CREATED and not isinstance(given.get("start"), Tensor):
        numbers = [given.get(argument, value) for argument, value in signals.CREATED[name].items()]
        if find_converter(f"aten.{name}.default") is None or any(map(is_run_time, numbers)):
            found = library.run(importer, name, numbers)
            return _in_dtype(importer, found, dtype_argument(given["dtype"]) or "f32")
    return None


def _in_dtype(importer: ScriptImporter, x: Tensor, dtype: str) -> Tensor:
    return importer.tensors.fresh(B.cast_to(importer.builder, importer.tensors.read(x), dtype))


def _arange(importer: ScriptImporter, given: dict[str, Any]) -> Any:
    """torch.arange of numbers of which only a call tells one."""
    numbers = [given.get("start", 0), given["end"], given.get("step", 1)]
    dtype, is_int = dtype_argument(given["dtype"]), all(kind_of(x) == "int" for x in numbers)
    if numbers[::2] == [0, 1] and is_int:
        made = run(importer, "aten.arange.default", [importer.size_of(numbers[1])], {"dtype": dtype or "i64"})
        return importer.tensors.fresh(made)
    if dtype == "i64" and not is_int:
        numbers, is_int = [scalar_op(importer.builder, "Int", (x,)) for x in numbers], True
    found = library.run(importer, "arange.ints" if is_int else "arange.floats", numbers)
    return _in_dtype(importer, found, dtype or ("i64" if is_int else "f32"))


def _returns_view(schema: Any) -> bool:
    return bool(schema.returns) and schema.returns[0].alias_info is not None


def run(importer: ScriptImporter, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Append an operator of graph values; sizes that it needs to be equal become so in the contract. Raises
    UnsupportedOp for a number of a call that must be constant."""
    for one, other in matching.pairs(overload, args):
        importer.require_equal(one, other)
    try:
        return _converted_by_table(importer, overload, args, kwargs)
    except (TypeError, ValueError):
        given = [item for x in (*args, *kwargs.values()) for item in (x if isinstance(x, list) else [x])]
        if not any(is_run_time(x) or is_size(x) for x in given):
            raise
        raise UnsupportedOp(
            f"{overload}: a number that only a call tells is given where a constant is needed"
        ) from None


#: Operators that take or give complex numbers.
_COMPLEX = (
    "stft", "istft", "view_as_complex", "view_as_real", "complex", "polar",
    *(f"fft_{kind}fft{axes}" for kind in ("", "i", "r", "ir", "h", "ih") for axes in ("", "2", "n")),
)  # fmt: skip


def _converted_by_table(
    importer: ScriptImporter, overload: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    own = composites.COMPOSITES.get(overload)
    if own is not None:
        return own(importer.builder, *args, **kwargs)
    if find_converter(overload) is None:
        if overload.split(".")[1] in _COMPLEX:
            raise UnsupportedOp(
                f"{overload} computes with complex numbers, which a TorchScript program cannot; compile the "
                "module that it was scripted from, where PyTorch's kernel is called"
            )
        if can_decompose(overload, args):
            return decomposed(importer, overload, args, kwargs)
        importer.require([(overload, importer.builder.source)])
    return importer.call(overload, args, kwargs)


def _abstract(importer: ScriptImporter, made: Any) -> Any:
    if isinstance(made, Value) and isinstance(made.type, TensorType):
        return importer.tensors.fresh(made)
    if isinstance(made, tuple | list):
        return List([_abstract(importer, each) for each in made])
    return made


def _view(
    importer: ScriptImporter, overload: str, x: Tensor, rest: Sequence[Any], kwargs: dict[str, Any]
) -> Tensor:
    value = run(importer, overload, [importer.tensors.read(x), *rest], kwargs)
    return importer.tensors.view_of(x, View(overload, tuple(rest), kwargs), value)


def _views(
    importer: ScriptImporter, overload: str, x: Any, rest: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    made = run(importer, overload, [importer.tensors.read(x), *rest], kwargs)
    if isinstance(made, Value):
        return importer.tensors.view_of(x, View(overload, tuple(rest), kwargs), made)
    return List(
        [
            importer.tensors.view_of(x, View(overload, tuple(rest), kwargs, i), each)
            for i, each in enumerate(made)
        ]
    )


_CHANGES_OF_AXES = ("squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_")


def _in_place(importer: ScriptImporter, overload: str, schema: Any, args: Sequence[Any]) -> Tensor:
    """Write what the operator of a name without the last _ gives into the first argument."""
    x = args[0]
    space, name, suffix = overload.split(".")
    positional, keywords = _converted(importer, schema, args)
    functional = f"{space}.{name.removesuffix('_')}.{suffix}"
    if name in _CHANGES_OF_AXES:
        raise UnsupportedOp(f"{overload}: a change of axes in place cannot be compiled; use {name[:-1]}")
    own = composites.IN_PLACE.get(overload)
    b, old = importer.builder, importer.tensors.read(x)
    source = arithmetic.source_of(name[:-1], suffix, args)
    if source is not None:
        made = importer.tensors.read(library.run(importer, source, args))
    elif own is not None:
        made = own(b, *positional, **keywords)
    else:
        made = run(importer, functional, positional, keywords)
    importer.tensors.write(x, composites.fitted(b, name, made, old))
    return x


#: Operators that take lists whose length only a call tells.
_TAKES_LISTS = ("aten::stack", "aten::cat")


def _converted(
    importer: ScriptImporter, schema: Any, args: Sequence[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments as converters take them: graph values for tensors, dtypes by name."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for argument, x in zip(schema.arguments, args, strict=True):
        if isinstance(x, List) and is_run_time_list(x.content) and schema.name not in _TAKES_LISTS:
            raise UnsupportedOp(
                f"{schema.name} is given a list whose length only a call tells; it takes one of known length"
            )
        found = _argument(importer, argument, x)
        if argument.kwarg_only:
            keywords[argument.name] = found
        else:
            positional.append(found)
    return positional, keywords


def _items(x: Any) -> list[Any]:
    found = x.content if isinstance(x, List) else x
    return found if isinstance(found, list) else [found]


def _argument(importer: ScriptImporter, argument: Any, x: Any) -> Any:
    if argument.name == "dtype":
        return dtype_argument(x)
    if is_layout(argument.name):
        return None
    if argument.name in attributes.AXES and any(is_run_time(i) or is_size(i) for i in _items(x)):
        raise UnsupportedOp(f"{argument.name} is an int that only a call tells; it must be a constant")
    return _plain(importer, x, wants_size(str(argument.type)))


def _plain(importer: ScriptImporter, x: Any, is_size_wanted: bool) -> Any:
    if isinstance(x, Tensor):
        return importer.tensors.read(x)
    if isinstance(x, List):
        if is_run_time_list(x.content):
            return x.read()
        return [_plain(importer, importer.resolved(item), is_size_wanted) for item in x.content]
    if isinstance(x, Maybe):
        raise UnsupportedOp("an optional value that only a call tells is given to an operator")
    if isinstance(x, tuple):
        return [_plain(importer, item, is_size_wanted) for item in x]
    return importer.size_of(x) if is_size_wanted and is_run_time(x) else x
