"""Elements in order: `sort` and torch's overloads."""

from __future__ import annotations

from collections.abc import Sequence

from ...jit.families.sort import reference
from ..ir.dims import DimExpr, simplify
from ..ir.errors import ShapeError
from ..ir.graph import Builder, Value
from ..ir.promotion import is_float
from ..ir.types import TensorType, Type
from . import build as B
from .conditions import require_elements
from .declare import Composite, Op, Sample
from .gather import torch_gather
from .rules import Attrs, Types, show, tensors


def _infer_sort(types: Types, attrs: Attrs) -> Sequence[Type]:
    (x,) = tensors("sort", types, 1)
    if x.rank != 2:
        raise ShapeError(f"sort: x is {show(x.shape)}; it must be rows and their elements, two axes")
    keep, length = attrs["keep"], x.shape[1]
    if isinstance(keep, int) and isinstance(length, int) and not 0 <= keep <= length:
        raise ShapeError(f"sort: keep is {keep}; of a row of {length} it may be 0 to {length}")
    shape = (x.shape[0], keep)
    return (TensorType(x.dtype, shape), TensorType("i64", shape))


OPS: tuple[Op, ...] = (
    Op(
        "sort",
        "standalone",
        "sort(Tensor x; keep, descending) -> (Tensor, Tensor)",
        "The first `keep` elements of every row in a stable order, and their places in the row (i64); a NaN "
        "is above all others, -0 equals 0.",
        _infer_sort,
        lambda args, attrs: reference.sort(args[0], attrs["keep"], attrs["descending"]),
        samples=(
            Sample(("f32[s0, 5]",), {"keep": 5, "descending": False}),
            Sample(("i64[2, 70]",), {"keep": 3, "descending": True}),
            Sample(("bool[3, 9]",), {"keep": 9, "descending": True}),
            Sample(("bf16[1, 4]",), {"keep": 0, "descending": False}),
        ),
        errors=(
            (
                Sample(("f32[2, 3, 4]",), {"keep": 2, "descending": False}),
                "sort: x is [2, 3, 4]; it must be rows and their elements, two axes",
            ),
            (
                Sample(("f32[3, 4]",), {"keep": 5, "descending": False}),
                "sort: keep is 5; of a row of 4 it may be 0 to 4",
            ),
        ),
    ),
)


def first_of(
    b: Builder, name: str, x: Value, dim: int, keep: DimExpr | None, descending: bool
) -> tuple[Value, Value]:
    """The first `keep` elements (None: all) along an axis, and their indices there."""
    shape = B.shape_of(x)
    axis = B.axis_of(name, dim, len(shape))
    if not shape:
        values, places = first_of(b, name, B.reshape(b, x, [1]), 0, keep, descending)
        return B.reshape(b, values, []), B.reshape(b, places, [])
    others = [i for i in range(len(shape)) if i != axis]
    length = shape[axis]
    keep = length if keep is None else keep
    rows = B.reshape(b, B.permute(b, x, [*others, axis]), [B.product(shape[i] for i in others), length])
    back = [others.index(i) if i != axis else len(others) for i in range(len(shape))]
    found = b.apply("sort", rows, keep=keep, descending=descending)
    wide = [*(shape[i] for i in others), keep]
    values, places = (B.permute(b, B.reshape(b, result, wide), back) for result in found)
    return values, places


# torch's overloads --------------------------------------------------------------------------------


def sort(b: Builder, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    """All elements along an axis in a stable order, and their indices."""
    return first_of(b, "sort", x, dim, None, descending)


def sort_stable(
    b: Builder, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    """As `sort`, which is always stable."""
    return sort(b, x, dim, descending)


def argsort(b: Builder, x: Value, dim: int = -1, descending: bool = False) -> Value:
    """The indices of the elements in a stable order."""
    return sort(b, x, dim, descending)[1]


def argsort_stable(b: Builder, x: Value, *, stable: bool, dim: int = -1, descending: bool = False) -> Value:
    """As `argsort`, which is always stable."""
    return argsort(b, x, dim, descending)


def msort(b: Builder, x: Value) -> Value:
    """All elements in order along the first axis."""
    return sort(b, x, 0)[0]


def topk(
    b: Builder, x: Value, k: DimExpr, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    """The k largest or smallest elements along an axis, in order (the first of equal ones), and their
    indices."""
    return first_of(b, "topk", x, dim, k, largest)


def _at(b: Builder, found: tuple[Value, Value], axis: int, place: DimExpr | Value) -> tuple[Value, Value]:
    """The sorted values and indices at one position along an axis, which stays with size 1."""
    if isinstance(place, Value):
        values, places = (torch_gather(b, x, axis, place) for x in found)
    else:
        values, places = (B.take(b, x, axis, place, 1) for x in found)
    return values, places


def _without(b: Builder, pair: tuple[Value, Value], axis: int, keepdim: bool) -> tuple[Value, Value]:
    first, second = (x if keepdim else B.drop_axis(b, x, axis) for x in pair)
    return first, second


def kthvalue(b: Builder, x: Value, k: DimExpr, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The k-th smallest element along an axis (k from 1), and its index."""
    if not B.shape_of(x):
        return first_of(b, "kthvalue", x, dim, 1, False)
    axis = B.axis_of("kthvalue", dim, len(B.shape_of(x)))
    found = first_of(b, "kthvalue", x, axis, k, False)
    return _without(b, _at(b, found, axis, simplify(k - 1)), axis, keepdim)


def _middle(b: Builder, name: str, x: Value, dim: int, keepdim: bool, skip_nan: bool) -> tuple[Value, Value]:
    """The lower median along an axis, and its index: a NaN if there is one, or ignoring NaNs."""
    if not B.shape_of(x):
        return first_of(b, name, x, dim, 1, False)
    shape = B.shape_of(x)
    axis = B.axis_of(name, dim, len(shape))
    require_elements(b, name, shape[axis])
    found = first_of(b, name, x, axis, None, False)
    half = B.divide(shape[axis] - 1, 2)
    if not is_float(B.dtype_of(x)):
        return _without(b, _at(b, found, axis, half), axis, keepdim)
    numbers = B.cast_to(b, B.pointwise(b, "eq", x, x), "i64")  # a NaN differs from itself
    count = B.reduce(b, "reduce_sum", numbers, [axis], True)
    if skip_nan:
        least = B.pointwise(b, "maximum", B.pointwise(b, "sub", count, 1), 0)
        place = B.pointwise(b, "floordiv", least, 2)
    else:
        place = B.where(b, B.pointwise(b, "lt", count, shape[axis]), count, half)
    return _without(b, _at(b, found, axis, place), axis, keepdim)


def median(b: Builder, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower median along an axis, NaN if there is one, and its index."""
    return _middle(b, "median", x, dim, keepdim, skip_nan=False)


def nanmedian(b: Builder, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower median along an axis, ignoring NaNs, and its index."""
    return _middle(b, "nanmedian", x, dim, keepdim, skip_nan=True)


def median_of_all(b: Builder, x: Value) -> Value:
    """The lower median of all elements."""
    return median(b, B.reshape(b, x, [B.product(B.shape_of(x))]), 0)[0]


def nanmedian_of_all(b: Builder, x: Value) -> Value:
    """The lower median of all elements, ignoring NaNs."""
    return nanmedian(b, B.reshape(b, x, [B.product(B.shape_of(x))]), 0)[0]


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.sort.default",), sort),
    Composite(("aten.sort.stable",), sort_stable),
    Composite(("aten.argsort.default",), argsort),
    Composite(("aten.argsort.stable",), argsort_stable),
    Composite(("aten.msort.default",), msort),
    Composite(("aten.topk.default",), topk),
    Composite(("aten.kthvalue.default",), kthvalue),
    Composite(("aten.median.dim",), median),
    Composite(("aten.median.default",), median_of_all),
    Composite(("aten.nanmedian.dim",), nanmedian),
    Composite(("aten.nanmedian.default",), nanmedian_of_all),
)
