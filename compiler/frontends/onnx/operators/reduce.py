"""Reductions, searches for extrema, sorting and running sums."""

from __future__ import annotations

from typing import Any

from ....ir.graph import Value
from ....ir.promotion import is_float
from ....ops import build as B
from ....ops.pool import lowest
from ..rows import ROWS, Call, row


def _over(call: Call) -> tuple[list[int], bool]:
    """Return the axes of a reduction, and whether they are kept."""
    rank, axes = len(call.shape(0)), call.ints(1, "axes")
    if not axes and call.attr("noop_with_empty_axes", 0):
        return [], True
    return B.axes_of(call.op, axes, rank) if rank else [], bool(call.attr("keepdims", 1))


def _reduction(compute: Any) -> Any:
    def run(call: Call) -> Value:
        return compute(call, call.value(0), *_over(call))

    return run


def _sum(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    return B.reduce(call.b, "reduce_sum", x, axes, keep) if axes else x


def _total(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    """A sum in x's dtype."""
    made = B.in_f32(call.b, lambda v: _sum(call, v, axes, keep), x)
    return B.cast_to(call.b, made, B.dtype_of(x))


def _mean(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    if not axes:
        return x
    return call.aten("mean.dim", x, axes, keep) if is_float(B.dtype_of(x)) else call.aten(
        "div.Tensor_mode", _total(call, x, axes, keep), _count(call, x, axes), rounding_mode="trunc"
    )  # fmt: skip


def _count(call: Call, x: Value, axes: list[int]) -> Value:
    ones = B.full(call.b, 1, B.dtype_of(x), tuple(B.shape_of(x)[axis] for axis in axes))
    return B.cast_to(call.b, _sum(call, ones, list(range(len(axes))), False), B.dtype_of(x))


def _extremum(name: str) -> Any:
    def compute(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
        if not axes:
            return x
        if any(B.equal(B.shape_of(x)[axis], 0) for axis in axes):
            return _of_nothing(call, x, axes, keep, name == "reduce_max")
        if B.dtype_of(x) == "bool":
            return B.reduce(call.b, "reduce_any" if name == "reduce_max" else "reduce_all", x, axes, keep)
        return B.reduce(call.b, name, x, axes, keep)

    return compute


def _of_nothing(call: Call, x: Value, axes: list[int], keep: bool, is_max: bool) -> Value:
    """Return the extremum of no elements: the other end of the dtype."""
    dtype, shape = B.dtype_of(x), B.shape_of(x)
    least = False if dtype == "bool" else lowest(dtype)
    most = True if dtype == "bool" else -least if is_float(dtype) else ~int(least)
    kept = [1 if i in axes else size for i, size in enumerate(shape) if keep or i not in axes]
    return B.full(call.b, least if is_max else most, dtype, tuple(kept))


def _product(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    made = B.in_f32(call.b, lambda v: B.reduce(call.b, "reduce_prod", v, axes, keep), x) if axes else x
    return B.cast_to(call.b, made, B.dtype_of(x))


def _squares(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    return _total(call, B.pointwise(call.b, "mul", x, x), axes, keep)


def _length(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    b = call.b
    wide = x if B.dtype_of(x) in ("f32", "f64") else B.cast_to(b, x, "f32")
    return B.cast_to(b, b.one("sqrt", _squares(call, wide, axes, keep)), B.dtype_of(x))


def _absolute(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    return _total(call, call.b.one("abs", x), axes, keep)


def _log_sum(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    return call.aten("log", _total(call, x, axes, keep))


def _log_sum_exp(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    b = call.b
    if not axes:
        return x
    most = _extremum("reduce_max")(call, x, axes, True)
    most = B.where(b, b.one("isfinite", most), most, B.full(b, 0, B.dtype_of(x)))
    total = _total(call, b.one("exp", B.pointwise(b, "sub", x, most)), axes, True)
    made = B.pointwise(b, "add", b.one("log", total), most)
    return made if keep else B.reshape(b, made, [s for i, s in enumerate(B.shape_of(x)) if i not in axes])


_COMPUTE = {
    "ReduceSum": _total, "ReduceMean": _mean, "ReduceMax": _extremum("reduce_max"),
    "ReduceMin": _extremum("reduce_min"), "ReduceProd": _product, "ReduceSumSquare": _squares,
    "ReduceL1": _absolute, "ReduceL2": _length, "ReduceLogSum": _log_sum, "ReduceLogSumExp": _log_sum_exp,
}  # fmt: skip
ROWS.update({("", name): _reduction(compute) for name, compute in _COMPUTE.items()})


@row("ArgMax", "ArgMin")
def _argument(call: Call) -> Value:
    x = call.value(0)
    axis = call.axis("axis", len(B.shape_of(x)), 0)
    name = call.op.lower()
    if not call.attr("select_last_index", 0):
        return call.aten(name, x, axis, bool(call.attr("keepdims", 1)))
    b, size = call.b, B.shape_of(x)[axis]
    found = call.aten(name, B.flip(b, x, [axis]), axis, bool(call.attr("keepdims", 1)))
    return B.pointwise(b, "sub", B.full(b, size - 1, "i64"), found)


@row("CumSum", "CumProd")
def _running(call: Call) -> Value:
    b, x = call.b, call.value(0)
    axis = B.axis_of(call.op, int(call.numbers(1).reshape(-1)[0]), len(B.shape_of(x)))
    name = call.op.lower()
    x = B.flip(b, x, [axis]) if call.attr("reverse", 0) else x
    if call.attr("exclusive", 0):
        size = B.shape_of(x)[axis]
        amounts: list[Any] = [(0, 0)] * len(B.shape_of(x))
        amounts[axis] = (1, -1)
        x = B.pad(b, x, amounts, 0 if name == "cumsum" else 1)
        x = B.of_size(b, call.op, x, axis, size)
    made = call.aten(name, x, axis, dtype=B.dtype_of(x))
    return B.flip(b, made, [axis]) if call.attr("reverse", 0) else made


@row("TopK")
def _top_k(call: Call) -> Any:
    x = call.value(0)
    axis = call.axis("axis", len(B.shape_of(x)), -1)
    count = call.size(1) if call.has(1) else call.attr("k")
    return call.aten("topk", x, count, axis, bool(call.attr("largest", 1)), True)
