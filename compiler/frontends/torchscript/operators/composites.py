"""Operators that only TorchScript programs have, in terms of others: torch.export decomposes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy

from ....ir.dims import OPEN, DimExpr, format_dim, simplify, symbol
from ....ir.errors import ShapeError, UnsupportedOp
from ....ir.graph import Block, Builder, Node, Value
from ....ir.types import INT, ListType, ScalarType, TensorType
from ....ops import COMPOSITES as SHARED
from ....ops import build as B
from ....ops.complex import Complex, given, imaginary_of, real_of
from ....ops.conditions import add_guard
from ....ops.loops import block, for_each, with_row
from ....ops.recurrent import STEPS
from ..values import elements


def _convert(b: Builder, overload: str, *args: Any, **kwargs: Any) -> Any:
    return SHARED[overload].expand(b, *args, **kwargs)


def choose(b: Builder, condition: Value, one: Value, other: Value) -> Value:
    """Return one of two ints."""
    regions: list[Block] = [block(b, [], lambda value=value: [value]) for value in (one, other)]  # type: ignore[misc]
    return b.insert(Node("if", [condition], regions=regions), [INT])[0]


def pad(
    b: Builder, x: Value, pad: Sequence[Any], mode: str = "constant", value: float | None = None
) -> Value:
    """torch.nn.functional.pad."""
    if mode == "constant":
        return _convert(b, "aten.constant_pad_nd.default", x, pad, 0 if value is None else value)
    if mode == "circular":
        return _circular(b, x, pad)
    kind = {"reflect": "reflection", "replicate": "replication"}.get(mode)
    overload = f"aten.{kind}_pad{len(pad) // 2}d.default"
    if overload not in SHARED:
        raise UnsupportedOp(f"pad: mode {mode!r} of {len(pad) // 2} axes cannot be compiled")
    return _convert(b, overload, x, pad)


def _circular(b: Builder, x: Value, pad: Sequence[Any]) -> Value:
    """x continued beyond the ends of its last axes by the elements at the other end."""
    for i in range(len(pad) // 2):
        axis, low, high = len(B.shape_of(x)) - 1 - i, pad[2 * i], pad[2 * i + 1]
        size = B.shape_of(x)[axis]
        for n in (low, high):
            inside = sympy.And(sympy.Ge(sympy.sympify(n), 0), sympy.Ge(sympy.sympify(size), n))
            message = (
                f"pad: {format_dim(n)} positions are added in circles to an axis of size {format_dim(size)}"
            )
            add_guard(b, inside, message)
        before = B.take(b, x, axis, simplify(size - low), low)
        x = B.concat(b, [before, x, B.take(b, x, axis, 0, high)], axis)
    return x


def _cell(overload: str) -> Callable[..., Any]:
    """Return one time of a layer, of rows or of one alone."""

    def cell(
        b: Builder, x: Value, state: Any, w_ih: Value, w_hh: Value, b_ih: Any = None, b_hh: Any = None
    ) -> Any:
        given = state if isinstance(state, list) else [state]
        made = STEPS[overload](b, b.one("linear", x, w_ih, b_ih), given, [w_hh, b_hh, None])
        return tuple(made) if isinstance(state, list) else made[0]

    return cell


def take_along_dim(b: Builder, x: Value, indices: Value, dim: int | None = None) -> Value:
    """torch.take_along_dim: elements at positions along an axis; the other axes are broadcast."""
    if dim is None:
        x, indices = (B.reshape(b, each, [B.product(B.shape_of(each))]) for each in (x, indices))
    axis = B.axis_of("take_along_dim", dim or 0, len(B.shape_of(x)))
    others = [tuple(n for i, n in enumerate(B.shape_of(each)) if i != axis) for each in (x, indices)]
    shape = B.broadcast_shape("take_along_dim", others)
    x, indices = (
        B.expand(b, each, [*shape[:axis], B.shape_of(each)[axis], *shape[axis:]]) for each in (x, indices)
    )
    return _convert(b, "aten.gather.default", x, axis, indices)


def stack(b: Builder, xs: Any, dim: int = 0) -> Value:
    """torch.stack, also of a list of run-time length."""
    if not isinstance(xs, Value):
        return _convert(b, "aten.stack.default", xs, dim)
    made = stacked(b, xs)
    rank = len(B.shape_of(made))
    axis = B.axis_of("stack", dim, rank)
    return B.permute(b, made, [*range(1, axis + 1), 0, *range(axis + 1, rank)])


def cat(b: Builder, xs: Any, dim: int = 0) -> Value:
    """torch.cat, also of a list of run-time length."""
    if not isinstance(xs, Value):
        return _convert(b, "aten.cat.default", xs, dim)
    made = stack(b, xs, dim)
    shape = B.shape_of(made)
    axis = B.axis_of("cat", dim, len(shape) - 1)
    return B.reshape(b, made, [*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]])


def stacked(b: Builder, xs: Value) -> Value:
    """Return the tensors, or numbers, of a list as the rows of one tensor."""
    assert isinstance(xs.type, ListType)
    element: Any = xs.type.element
    if isinstance(element, TensorType) and OPEN in element.shape:
        element = elements.got(b, xs, b.size(0)).type
    dtypes = {"int": "i64", "float": "f64", "bool": "bool"}
    is_number = isinstance(element, ScalarType) and element.kind in dtypes
    if not is_number and not isinstance(element, TensorType):
        raise UnsupportedOp(f"a list of {element} of run-time length makes no tensor")
    dtype, shape = (dtypes[element.kind], ()) if is_number else (element.dtype, element.shape)
    name = symbol(b.graph.new_name("n"))
    b.insert(Node("int_max", [b.one("len", xs), b.size(0)]), [ScalarType("int", name)])
    start = B.full(b, 0, dtype, (name, *shape))

    def step(row: Value, made: list[Value]) -> list[Value]:
        value = elements.got(b, xs, b.one("item", row))
        for axis, size in enumerate(shape):
            value = B.of_size(b, "stack", value, axis, size)
        return [with_row(b, made[0], b.one("scalar", value, dtype=dtype) if is_number else value, row)]

    return for_each(b, name, [start], step, "stack")[0]


def fitted(b: Builder, op: str, made: Any, old: Any) -> Any:
    """Return a new value of `old` in its dtype and shape; sizes that may differ are checked at run time."""
    if isinstance(old, Complex):
        made = given(made)
        return Complex(*(fitted(b, op, *pair) for pair in zip(made.parts, old.parts, strict=True)))
    made, shape = B.cast_to(b, made, B.dtype_of(old)), B.shape_of(old)
    before = len(shape) - len(B.shape_of(made))
    for axis, size in enumerate(B.shape_of(made)):
        if axis + before >= 0 and not B.is_one(size):
            made = B.of_size(b, op, made, axis, shape[axis + before])
    return B.expand(b, made, shape)


def chunk(b: Builder, x: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    """torch.chunk: an axis of run-time size must have exactly the requested number of chunks."""
    if not isinstance(chunks, int):
        raise UnsupportedOp("chunk: the number of chunks is known at run time only; it must be a constant")
    axis = B.axis_of("chunk", dim, len(B.shape_of(x)))
    size = B.shape_of(x)[axis]
    if isinstance(size, int):
        return tuple(_convert(b, "aten.chunk.default", x, chunks, dim))
    each = B.divide(size + chunks - 1, chunks)
    before = simplify(each * (chunks - 1))
    message = f"chunk: an axis of size {format_dim(size)} must have {chunks} chunks"
    add_guard(b, sympy.Or(sympy.Gt(sympy.sympify(size), before), sympy.Eq(size, 0)), message)
    parts = [B.take(b, x, axis, simplify(each * i), each) for i in range(chunks - 1)]
    return *parts, B.take(b, x, axis, before, simplify(size - before))


def tensor_split(b: Builder, x: Value, sections: int, dim: int = 0) -> tuple[Value, ...]:
    """torch.tensor_split: parts whose sizes differ by at most 1, the longer ones first."""
    if not isinstance(sections, int) or sections < 1:
        raise ShapeError(f"tensor_split: the number of parts is {sections}; it must be 1 or more")
    axis = B.axis_of("tensor_split", dim, len(B.shape_of(x)))
    sizes = [B.divide(B.shape_of(x)[axis] + sections - 1 - i, sections) for i in range(sections)]
    return tuple(B.take(b, x, axis, simplify(sum(sizes[:i])), size) for i, size in enumerate(sizes))


def kron(b: Builder, x: Value, y: Value) -> Value:
    """torch.kron: each element of x times all of y."""
    rank = max(len(B.shape_of(each)) for each in (x, y))
    one, other = ([1] * (rank - len(B.shape_of(each))) + list(B.shape_of(each)) for each in (x, y))
    x = B.reshape(b, x, [n for size in one for n in (size, 1)])
    y = B.reshape(b, y, [n for size in other for n in (1, size)])
    sizes = [simplify(n * m) for n, m in zip(one, other, strict=True)]
    return B.reshape(b, _convert(b, "aten.mul.Tensor", x, y), sizes)


def linalg_norm(
    b: Builder, x: Value, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """torch.linalg.norm of matrices, from `matrix_norm`; NotImplemented for others."""
    axes = list(range(len(B.shape_of(x)))) if dim is None else dim
    if ord is None or len(axes) != 2:
        return NotImplemented
    return matrix_norm(b, x, ord, axes, keepdim, dtype=dtype)


def matrix_norm(
    b: Builder, x: Value, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """torch.linalg.matrix_norm by sums; NotImplemented for orders of singular values."""
    axes = [B.axis_of("matrix_norm", axis, len(B.shape_of(x))) for axis in dim]
    if ord == "fro":
        return _convert(b, "aten.linalg_vector_norm.default", x, 2, axes, keepdim, dtype=dtype)
    if isinstance(ord, str) or B.is_run_time(ord) or abs(ord) not in (1, float("inf")):
        return NotImplemented
    summed, compared = axes if abs(ord) == 1 else axes[::-1]
    x = _convert(b, "aten.abs.default", B.cast_to(b, x, dtype or B.dtype_of(x)))
    sums = _convert(b, "aten.sum.dim_IntList", x, [summed], True)
    made = _convert(b, "aten.amax.default" if ord > 0 else "aten.amin.default", sums, [compared], True)
    return made if keepdim else B.drop_axis(b, B.drop_axis(b, made, max(axes)), min(axes))


def movedim(b: Builder, x: Value, source: Sequence[int], destination: Sequence[int]) -> Value:
    """torch.movedim of several axes."""
    rank = len(B.shape_of(x))
    old, new = ([B.axis_of("movedim", axis, rank) for axis in axes] for axes in (source, destination))
    if len(set(old)) < len(old) or len(set(new)) < len(new) or len(old) != len(new):
        raise ShapeError(f"movedim: axes {old} do not go to {new}; each may be named once")
    rest = iter(axis for axis in range(rank) if axis not in old)
    return B.permute(b, x, [old[new.index(axis)] if axis in new else next(rest) for axis in range(rank)])


def meshgrid(b: Builder, xs: Sequence[Value], *, indexing: str = "ij") -> tuple[Value, ...]:
    """torch.meshgrid: each line of numbers along a separate axis of one grid."""
    lines = [B.reshape(b, x, [B.product(B.shape_of(x))]) for x in xs]
    axes = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        axes[:2] = 1, 0
    shape = [B.shape_of(lines[axis])[0] for axis in axes]
    made = []
    for line, axis in zip(lines, axes, strict=True):
        along = [B.shape_of(line)[0] if i == axis else 1 for i in range(len(lines))]
        made.append(B.expand(b, B.reshape(b, line, along), shape))
    return tuple(made)


def tensordot(b: Builder, x: Value, y: Value, dims_self: list[int], dims_other: list[int]) -> Value:
    """torch.tensordot: of two axes that are summed together, one may have size 1; the other's sum counts."""
    if len(dims_self) != len(dims_other):
        raise ShapeError("tensordot: as many axes of one tensor as of the other must be given")
    x, of_x = _axes_last(b, x, dims_self)
    y, of_y = _axes_last(b, y, dims_other)
    lines = [B.add_axis(b, x, 1), B.add_axis(b, y, 0)]  # [of x, 1, summed ...] and [1, of y, summed ...]
    made = B.agreeing(b, "tensordot", lines, or_one=True)
    for axis in range(2, 2 + len(dims_self)):
        ones = [B.is_one(B.shape_of(each)[axis]) for each in made]
        for i in (0, 1) if any(ones) else ():
            made[i] = _convert(b, "aten.sum.dim_IntList", made[i], [axis], True, dtype=B.dtype_of(x))
    steps = B.product(B.shape_of(made[0])[2:])
    left, right = (B.reshape(b, each, [B.shape_of(each)[i], steps]) for i, each in enumerate(made))
    return B.reshape(b, _convert(b, "aten.matmul.default", left, B.permute(b, right, [1, 0])), [*of_x, *of_y])


def _axes_last(b: Builder, x: Value, dims: Sequence[int]) -> tuple[Value, list[DimExpr]]:
    """Return a tensor [others, *dims], and the sizes of the other axes."""
    shape = B.shape_of(x)
    last = [B.axis_of("tensordot", axis, len(shape)) for axis in dims]
    others = [axis for axis in range(len(shape)) if axis not in last]
    if len(others) + len(last) != len(shape):
        raise ShapeError(f"tensordot: axes {list(dims)} name one twice")
    kept = [shape[axis] for axis in others]
    made = B.permute(b, x, [*others, *last])
    return B.reshape(b, made, [B.product(kept), *(shape[axis] for axis in last)]), kept


def _copy(b: Builder, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return fitted(b, "copy_", source, x)


def _fill(b: Builder, x: Any, value: Any) -> Any:
    if isinstance(x, Complex):
        return Complex(_fill(b, x.real, real_of(value)), _fill(b, x.imaginary, imaginary_of(b, value)))
    return _convert(b, "aten.fill.Scalar", x, value)


#: By overload; with the arguments of converters.
COMPOSITES: dict[str, Callable[..., Any]] = {
    "aten.pad.default": pad,
    "aten.lstm_cell.default": _cell("aten.lstm.input"),
    "aten.gru_cell.default": _cell("aten.gru.input"),
    "aten.rnn_tanh_cell.default": _cell("aten.rnn_tanh.input"),
    "aten.rnn_relu_cell.default": _cell("aten.rnn_relu.input"),
    "aten.take_along_dim.default": take_along_dim,
    "aten.chunk.default": chunk,
    "aten.unsafe_chunk.default": chunk,
    "aten.tensor_split.sections": tensor_split,
    "aten.kron.default": kron,
    "aten.linalg_norm.default": linalg_norm,
    "aten.linalg_norm.ord_str": linalg_norm,
    "aten.linalg_matrix_norm.default": matrix_norm,
    "aten.linalg_matrix_norm.str_ord": matrix_norm,
    "aten.stack.default": stack,
    "aten.movedim.intlist": movedim,
    "aten.moveaxis.intlist": movedim,
    "aten.meshgrid.default": meshgrid,
    "aten.meshgrid.indexing": meshgrid,
    "aten.cat.default": cat,
    "aten.tensordot.default": tensordot,
    "aten.broadcast_to.default": lambda b, x, size: _convert(b, "aten.expand.default", x, size),
}
#: In-place operators without a functional operator of their name.
IN_PLACE: dict[str, Callable[..., Any]] = {
    "aten.copy_.default": _copy,
    "aten.fill_.Scalar": _fill,
    "aten.fill_.Tensor": _fill,
    "aten.zero_.default": lambda b, x: _fill(b, x, 0),
}
