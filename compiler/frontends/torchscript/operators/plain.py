"""Special operators with plain results: sizes, numbers of tensors, tests of identity, ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.dims import product
from ....ir.errors import ShapeError
from ....ir.graph import Builder, Value
from ....ir.promotion import is_float
from ....ops import build as B
from ....ops.complex import Complex
from ..values.scalars import scalar_op
from ..values.values import Dict, List, Maybe, Member, Tensor, is_run_time, is_run_time_list, is_size
from ..walk import Walk
from . import composites, matching
from .containers import container_op


def _size(importer: Walk, x: Tensor, dim: int | None = None) -> Any:
    shape = B.shape_of(importer.tensors.read(x))
    if is_run_time(dim):
        return container_op(importer, "__getitem__", [List(list(shape)), dim])
    return List(list(shape)) if dim is None else shape[B.axis_of("size", dim, len(shape))]


def _length(importer: Walk, x: Any) -> Any:
    if isinstance(x, Tensor):
        return B.shape_of(importer.tensors.read(x))[0]
    return len(x) if isinstance(x, tuple) else NotImplemented


def _dim(importer: Walk, x: Tensor) -> int:
    return len(B.shape_of(importer.tensors.read(x)))


def _numel(importer: Walk, x: Tensor) -> Any:
    return product(B.shape_of(importer.tensors.read(x)))


def _item(importer: Walk, x: Any) -> Any:
    """Return a tensor's only element, with its known value if any."""
    if not isinstance(x, Tensor):
        return x
    value = importer.tensors.read(x)
    known = B.uniform(value)
    return known if known is not None else importer.builder.one("item", value)


def _as_kind(kind: str) -> Callable[..., Any]:
    def convert(importer: Walk, x: Any) -> Any:
        if isinstance(x, str) and kind != "bool":
            return {"int": int, "float": float}[kind](x)
        return scalar_op(importer.builder, kind.capitalize(), (_item(importer, x),))

    return convert


def _is(importer: Walk, x: Any, y: Any) -> Any:
    if isinstance(x, Maybe) and y is None:
        return importer.builder.one("bool_not", x.is_there)
    if isinstance(x, Member) and isinstance(y, Member):
        return _members_equal(importer, x, y)
    return x is y or (not isinstance(x, Tensor | List | Dict) and x is None and y is None)


def _members_equal(importer: Walk, x: Member, y: Member) -> Any:
    return scalar_op(importer.builder, "eq", (x.index, y.index)) if x.kind is y.kind else False


def _is_not(importer: Walk, x: Any, y: Any) -> Any:
    found = _is(importer, x, y)
    return (not found) if isinstance(found, bool) else importer.builder.one("bool_not", found)


def _get_position(importer: Walk, x: Any, index: Any) -> Any:
    if isinstance(x, tuple):
        return x[index]
    return NotImplemented


def _divmod(importer: Walk, a: Any, c: Any) -> tuple[Any, Any]:
    whole, rest = (scalar_op(importer.builder, name, (a, c)) for name in ("floordiv", "remainder"))
    return whole, rest


def _range_length(importer: Walk, low: Any, high: Any, step: Any) -> Any:
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
    """Return how many numbers a range with a run-time step has: distance + step - 1 or + 1 by the step."""
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


def _derived_index(importer: Walk, index: Any, start: Any, step: Any) -> Any:
    b = importer.builder
    return scalar_op(b, "add", (start, scalar_op(b, "mul", (index, step))))


def _is_complex(importer: Walk, x: Tensor) -> bool:
    return isinstance(importer.tensors.read(x), Complex)


def _is_floating_point(importer: Walk, x: Tensor) -> bool:
    return not _is_complex(importer, x) and is_float(B.dtype_of(importer.tensors.read(x)))


def _broadcast_shapes(importer: Walk, one: List, other: List) -> Any:
    if any(is_run_time_list(shape.content) or any(map(is_run_time, shape.content)) for shape in (one, other)):
        return NotImplemented
    for pair in matching.broadcast(one.content, other.content):
        importer.require_equal(*pair)
    return List(list(B.broadcast_shape("broadcast_shapes", (one.content, other.content))))


OPERATORS: dict[str, Callable[..., Any]] = {
    "size": _size, "len": _length, "dim": _dim, "numel": _numel, "item": _item, "Int": _as_kind("int"),
    "Float": _as_kind("float"), "Bool": _as_kind("bool"), "IntImplicit": _as_kind("int"),
    "FloatImplicit": _as_kind("float"), "ScalarImplicit": _item, "__is__": _is, "__isnot__": _is_not,
    "__getitem__": _get_position, "dict": lambda importer: Dict({}), "device": lambda importer, text: text,
    "is_floating_point": _is_floating_point, "is_complex": _is_complex,
    "broadcast_shapes": _broadcast_shapes, "divmod": _divmod, "__range_length": _range_length,
    "__derive_index": _derived_index,
}  # fmt: skip
