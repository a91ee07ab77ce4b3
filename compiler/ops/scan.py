"""Running sums, products and extrema: `scan` and torch's overloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...jit.families.scan import reference
from ..ir.errors import ShapeError
from ..ir.graph import Builder, Value
from ..ir.promotion import to_sum
from ..ir.types import FLOAT_DTYPES, TensorType, Type
from . import build as B
from .declare import Composite, Op, Sample
from .rules import Attrs, Types, check_dtype, show, tensors

WITH_PLACES = ("max", "min")


def _infer(types: Types, attrs: Attrs) -> Sequence[Type]:
    (x,) = tensors("scan", types, 1)
    if x.rank != 3:
        raise ShapeError(
            f"scan: x is {show(x.shape)}; it must be rows, their positions and columns, three axes"
        )
    if attrs["function"] == "logsumexp":
        check_dtype("scan", x.dtype, FLOAT_DTYPES)
    places = (TensorType("i64", x.shape),) if attrs["function"] in WITH_PLACES else ()
    return (TensorType(x.dtype, x.shape), *places)


def _reference(args: Sequence[Any], attrs: Attrs) -> Any:
    results = reference.scan(args[0], attrs["function"])
    return results if len(results) > 1 else results[0]


OPS: tuple[Op, ...] = (
    Op(
        "scan",
        "standalone",
        "scan(Tensor x; function) -> (Tensor, Tensor?)",
        "The running sum, prod, max, min or logsumexp along the middle of three axes; of max and min also "
        "the latest place (i64) of the extremum, where a NaN is one.",
        _infer,
        _reference,
        samples=(
            Sample(("f32[2, s0, 3]",), {"function": "sum"}),
            Sample(("i64[s0, 5, 1]",), {"function": "prod"}),
            Sample(("f32[2, s0, 1]",), {"function": "max"}),
            Sample(("i64[1, 4, s0]",), {"function": "min"}),
            Sample(("f32[3, s0, 1]",), {"function": "logsumexp"}),
        ),
        errors=(
            (
                Sample(("f32[2, 3]",), {"function": "sum"}),
                "scan: x is [2, 3]; it must be rows, their positions and columns, three axes",
            ),
            (
                Sample(("i64[2, 3, 1]",), {"function": "logsumexp"}),
                "scan: the dtype is i64; it takes bf16, f16, f32, f64",
            ),
        ),
    ),
)


# torch's overloads --------------------------------------------------------------------------------


def _scan(b: Builder, name: str, op: str, x: Value, dim: int) -> Sequence[Value]:
    """Apply the op to x as [rows, length, columns] and reshape its results to x's shape."""
    shape = B.shape_of(x)
    axis = B.axis_of(name, dim, len(shape))
    sizes = shape or (1,)
    lines = B.reshape(b, x, [B.product(sizes[:axis]), sizes[axis], B.product(sizes[axis + 1 :])])
    return [B.reshape(b, result, shape) for result in b.apply("scan", lines, function=op)]


def _running(name: str, op: str) -> Callable[..., Value]:
    def expand(b: Builder, x: Value, dim: int, *, dtype: str | None = None) -> Value:
        return _scan(b, name, op, B.cast_to(b, x, dtype or to_sum(B.dtype_of(x))), dim)[0]

    expand.__doc__ = f"The {op} of all positions up to each, along an axis; integers and bool in i64."
    return expand


def _extremum(name: str, op: str) -> Callable[..., tuple[Value, Value]]:
    def expand(b: Builder, x: Value, dim: int) -> tuple[Value, Value]:
        dtype = B.dtype_of(x)
        values, places = _scan(b, name, op, B.cast_to(b, x, "u8") if dtype == "bool" else x, dim)
        return B.cast_to(b, values, dtype), places

    expand.__doc__ = f"The {op} of all positions up to each along an axis, and its latest place."
    return expand


def logcumsumexp(b: Builder, x: Value, dim: int) -> Value:
    """The log of the running sum of exp(x) along an axis."""
    return _scan(b, "logcumsumexp", "logsumexp", x, dim)[0]


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.cumsum.default",), _running("cumsum", "sum")),
    Composite(("aten.cumprod.default",), _running("cumprod", "prod")),
    Composite(("aten.cummax.default",), _extremum("cummax", "max")),
    Composite(("aten.cummin.default",), _extremum("cummin", "min")),
    Composite(("aten.logcumsumexp.default",), logcumsumexp),
)
