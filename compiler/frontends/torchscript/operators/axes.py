"""Special operators along axes, whose sizes, positions and numbers of parts may be run-time values: parts of
tensors, concatenations, repetitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from ....ir.dims import OPEN, product, simplify
from ....ir.errors import UnsupportedOp
from ....ir.ranges import always_at_most
from ....ops import build as B
from ....ops.conditions import add_guard
from ....ops.einsum import permutation
from ..values.scalars import decided, scalar_op, unknown_int
from ..values.tensors import decide_rows
from ..values.values import List, Tensor, is_run_time, is_run_time_list, is_size
from ..walk import Walk
from . import composites, library
from .arguments import items_of
from .containers import content
from .converters import run, view, views


def _roll(importer: Walk, x: Tensor, shifts: List, dims: List) -> Any:
    """aten::roll by a run-time shift, which may be negative."""
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


def _tile(importer: Walk, x: Tensor, times: List) -> Any:
    """x.tile(times): x.repeat(times), which has a number for every axis."""
    rank = len(B.shape_of(importer.tensors.read(x)))
    counts = [importer.size_of(n) for n in content(importer, times)]
    args = [importer.tensors.read(x), [1] * (rank - len(counts)) + counts]
    return importer.tensors.fresh(run(importer, "aten.repeat.default", args, {}))


def _expand(importer: Walk, x: Tensor, sizes: List, *_: Any) -> Any:
    """x.expand(sizes) with a run-time size: an axis of size 1 in the example has size 1."""
    shape, wanted = B.shape_of(importer.tensors.read(x)), content(importer, sizes)
    if any(map(is_run_time, wanted)):
        for size, other in zip(shape[::-1], wanted[::-1], strict=False):
            if is_size(size) and importer.example_of(size) == 1:
                importer.require_equal(size, 1)
            elif is_size(size) and not is_run_time(other) and other != -1:
                importer.require_equal(size, other)
    return NotImplemented


def _squeeze(importer: Walk, x: Tensor, dim: Any = None) -> Any:
    """x.squeeze(dim), of an axis that in the example is of size 1 or is not: calls must agree. A named axis
    with a run-time size, or one such as half of an input's size that is 1 in the example, must have size 1;
    the only one of a vector may have it."""
    given, shape = x, B.shape_of(importer.tensors.read(x))
    if dim is None and len(shape) == 1 and is_size(shape[0]) and importer.example_of(shape[0]) is None:
        return library.run(importer, "squeezed", [x])
    axes = B.axes_of("squeeze", content(importer, dim) if isinstance(dim, List) else dim, len(shape))
    for axis in axes if shape else ():
        if not isinstance(shape[axis], int):
            importer.require_equal(shape[axis], 1)
        if not is_size(shape[axis]):
            continue
        example = importer.example_of(shape[axis])
        if isinstance(dim, int) and example in (None, 1):
            if example:
                importer.assumptions.squeezed[str(shape[axis])] = "1"
            is_one = sympy.Eq(sympy.sympify(shape[axis]), 1)
            add_guard(importer.builder, is_one, f"squeeze: axis {axis} must have size 1")
            x = view(importer, "aten.narrow.default", x, (axis, 0, 1), {})
        elif not always_at_most(2, shape[axis], importer.graph.symbols):
            importer.assumptions.squeezed[str(shape[axis])] = "not 1"
    return NotImplemented if x is given else view(importer, "aten.squeeze.dim", x, (dim,), {})


def copied(importer: Walk, made: Any) -> Any:
    """Return what the special function of a view gives for the operator that copies: tensors with their own
    memory."""
    if isinstance(made, List) and not is_run_time_list(made.content):
        return List([copied(importer, each) for each in made.content])
    return importer.tensors.fresh(importer.tensors.read(made)) if isinstance(made, Tensor) else made


def unbind(importer: Walk, node: Any, x: Tensor, dim: int = 0) -> Any:
    """x.unbind(dim): a list of run-time length. If its parts are unpacked, or the program cannot be compiled
    this way, there are as many as in the example."""
    shape = B.shape_of(importer.tensors.read(x))
    size = shape[B.axis_of("unbind", dim, len(shape))]
    if isinstance(size, int):
        return NotImplemented
    assumptions, example = importer.assumptions, importer.example_of(size)
    if example is None or not ("unbinding" in assumptions.as_example or _is_unpacked(node)):
        assumptions.doubts.add("unbinding")
        return library.run(importer, "unbind", [x, dim])
    importer.require_equal(size, example)
    return NotImplemented


def _is_unpacked(node: Any) -> bool:
    return any(use.user.kind() == "prim::ListUnpack" for use in node.output().uses())


def _select(importer: Walk, x: Tensor, dim: int, index: Any) -> Any:
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
    return view(importer, "aten.select.int", x, (dim, index), {})


def _slice(importer: Walk, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    """x[start:end:step], with run-time bounds clamped to the axis."""
    if not isinstance(x, Tensor):
        return NotImplemented
    value = importer.tensors.read(x)
    size = B.shape_of(value)[B.axis_of("slice", dim, len(B.shape_of(value)))]
    if isinstance(start, int) and start == 0:
        start = None
    start, end = (_bound(importer, bound, size) for bound in (start, end))
    if is_run_time(step):
        step = importer.size_of(step)
    return view(importer, "aten.slice.Tensor", x, (dim, start, end, step), {})


def _bound(importer: Walk, bound: Any, size: Any) -> Any:
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


def _parts_of(name: str) -> Callable[..., Any]:
    """Return the handler of an operator that splits a tensor into a run-time number of parts."""

    def parts(importer: Walk, x: Tensor, how: Any, dim: Any = 0) -> Any:
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


def _is_known_split(importer: Walk, x: Tensor, size: int, dim: Any) -> bool:
    """Return True if it is known how many parts of a size an axis has."""
    if is_run_time(dim):
        return False
    shape = B.shape_of(importer.tensors.read(x))
    return isinstance(shape[B.axis_of("split", dim, len(shape))], int)


def _multi_dot(importer: Walk, xs: Any) -> Any:
    return library.run(importer, "multi_dot", [xs])


def _cartesian_product(importer: Walk, xs: List) -> Any:
    if is_run_time_list(xs.content) or len(xs.content) > 1:
        return library.run(importer, "cartesian_prod", [xs])
    return xs.content[0]


def _cat(importer: Walk, xs: Any, dim: Any = 0) -> Any:
    """torch.cat of a list whose tensors may differ in size along the axis."""
    if (
        not isinstance(xs, List)
        or not is_run_time_list(xs.content)
        or OPEN not in xs.content.type.element.shape
    ):
        return NotImplemented
    return library.run(importer, "cat", [xs, dim], xs.content.type.element)


def _check_rows(importer: Walk, x: Tensor, *_: Any) -> Any:
    """Require a tensor to be row-major in memory; refuse one of which that is not known."""
    inputs = decide_rows(x)
    if inputs is None:
        raise UnsupportedOp("it is not known how the tensor lies in memory; use x.contiguous() before")
    importer.builder.graph.require_rows(inputs)
    return NotImplemented


def _stride(importer: Walk, x: Tensor, dim: int | None = None) -> Any:
    """x.stride(dim): the number of elements between two positions along an axis."""
    _check_rows(importer, x)
    shape = B.shape_of(importer.tensors.read(x))
    sizes = [each if B.is_size(importer.builder, each - 1) else sympy.Max(1, each) for each in shape]
    strides = [simplify(product(sizes[axis + 1 :])) for axis in range(len(sizes))]
    return List(strides) if dim is None else strides[B.axis_of("stride", dim, len(shape))]


def _einsum(importer: Walk, equation: str, operands: List, *_: Any) -> Any:
    """Return a view where that is what PyTorch gives."""
    x, *others = items_of(operands) or [None]
    if others or not isinstance(x, Tensor) or not isinstance(equation, str):
        return NotImplemented
    order = permutation(equation, [importer.tensors.read(x)])
    return NotImplemented if order is None else views(importer, "aten.permute.default", x, [order], {})


OPERATORS: dict[str, Callable[..., Any]] = {
    "select": _select, "slice": _slice, "squeeze": _squeeze, "squeeze_": _squeeze, "expand": _expand,
    "roll": _roll, "tile": _tile, "cat": _cat, "concat": _cat, "cartesian_prod": _cartesian_product,
    "linalg_multi_dot": _multi_dot, "chain_matmul": _multi_dot,
    "chunk": _parts_of("chunk"), "split": _parts_of("split"), "split_with_sizes": _parts_of("split"),
    "unsafe_chunk": _parts_of("chunk"), "unsafe_split": _parts_of("split"),
    "unsafe_split_with_sizes": _parts_of("split"), "tensor_split": _parts_of("tensor_split"),
    "einsum": _einsum, "stride": _stride, "as_strided": _check_rows,
}  # fmt: skip
