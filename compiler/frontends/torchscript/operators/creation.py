"""Tensors that are made of numbers, casts of tensors, and operators that return the tensor itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.graph import Value
from ....ops import build as B
from ....ops.complex import Complex, dtype_of, is_complex
from ...importer import find_converter
from ..values.scalars import scalar_op
from ..values.values import List, Tensor, is_run_time, is_run_time_list, is_size, kind_of
from ..walk import Walk
from . import composites, library
from .arguments import dtype_argument
from .containers import content
from .converters import run
from .library import signals


def _tensor(importer: Walk, data: Any, dtype: Any = None, *_: Any) -> Tensor:
    """torch.tensor of numbers or nested lists of them."""
    value, kind = _stacked(importer, data)
    default = {"int": "i64", "float": "f32", "bool": "bool"}[kind]
    return _cast(importer, value, dtype_argument(dtype) or default)


def _as_tensor(importer: Walk, data: Any, dtype: Any = None, *rest: Any) -> Tensor:
    """torch.as_tensor: of a tensor that has the dtype already, itself."""
    if not isinstance(data, Tensor):
        return _tensor(importer, data, dtype)
    return data if dtype is None else _to(importer, data, dtype)


def _stacked(importer: Walk, data: Any) -> tuple[Value, str]:
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


def _to(importer: Walk, x: Tensor, *rest: Any) -> Tensor:
    """aten::to: a cast, or the tensor itself."""
    if not isinstance(x, Tensor):
        return NotImplemented
    value = importer.tensors.read(x)
    numbers = [each for each in rest[:2] if type(each) is int]
    dtype = dtype_argument(numbers[0]) if numbers else None
    if isinstance(rest[0], Tensor):
        dtype = dtype_of(importer.tensors.read(rest[0]))
    is_copied = len(rest) >= 3 and rest[-2 if rest[-1] is None else -1] is True
    if dtype in (None, dtype_of(value)) and not is_copied:
        return x
    return _cast(importer, value, dtype or dtype_of(value))


def _cast_like(importer: Walk, x: Tensor, other: Tensor) -> Tensor:
    return _to(importer, x, other)


def _dropout(importer: Walk, x: Tensor, p: Any, train: Any) -> Any:
    if train is False or p == 0:
        return x
    return NotImplemented


def created(importer: Walk, name: str, given: dict[str, Any]) -> Tensor | None:
    """Return the tensor that an operator makes from numbers, one of which is a run-time value; None for
    others."""
    if name == "arange" and any(map(is_run_time, given.values())):
        return _arange(importer, given)
    if name == "eye" and any(is_run_time(x) or is_size(x) for x in given.values()):
        found = library.run(importer, "eye", [given["n"], given.get("m", given["n"])])
        return _in_dtype(importer, found, dtype_argument(given["dtype"]) or "f32")
    if name in ("tril_indices", "triu_indices") and any(is_run_time(x) or is_size(x) for x in given.values()):
        found = library.run(importer, name, [given["row"], given["col"], given["offset"]])
        return _in_dtype(importer, found, dtype_argument(given["dtype"]) or "i64")
    if name in signals.CREATED:
        numbers = [given.get(argument, value) for argument, value in signals.CREATED[name].items()]
        if find_converter(f"aten.{name}.default") is None or any(map(is_run_time, numbers)):
            found = library.run(importer, name, numbers)
            return _in_dtype(importer, found, dtype_argument(given["dtype"]) or "f32")
    return None


def _in_dtype(importer: Walk, x: Tensor, dtype: str) -> Tensor:
    return _cast(importer, importer.tensors.read(x), dtype)


def _cast(importer: Walk, value: Value | Complex, dtype: str) -> Tensor:
    if isinstance(value, Complex) or is_complex(dtype):
        return importer.tensors.fresh(run(importer, "aten.to.dtype", [value, dtype], {}))
    return importer.tensors.fresh(B.cast_to(importer.builder, value, dtype))


def _arange(importer: Walk, given: dict[str, Any]) -> Any:
    """torch.arange with a run-time number."""
    numbers = [given.get("start", 0), given["end"], given.get("step", 1)]
    dtype, is_int = dtype_argument(given["dtype"]), all(kind_of(x) == "int" for x in numbers)
    if numbers[::2] == [0, 1] and is_int:
        made = run(importer, "aten.arange.default", [importer.size_of(numbers[1])], {"dtype": dtype or "i64"})
        return importer.tensors.fresh(made)
    if dtype == "i64" and not is_int:
        numbers, is_int = [scalar_op(importer.builder, "Int", (x,)) for x in numbers], True
    found = library.run(importer, "arange.ints" if is_int else "arange.floats", numbers)
    return _in_dtype(importer, found, dtype or ("i64" if is_int else "f32"))


OPERATORS: dict[str, Callable[..., Any]] = {
    "tensor": _tensor, "as_tensor": _as_tensor, "to": _to, "type_as": _cast_like,
    "dropout": _dropout, "dropout_": _dropout, "feature_dropout": _dropout, "alpha_dropout": _dropout,
    "cpu": lambda importer, x: x, "detach": lambda importer, x: x, "detach_": lambda importer, x: x,
    "requires_grad_": lambda importer, x, *_: x,
    "_shape_as_tensor": lambda importer, x: _tensor(importer, List([*B.shape_of(importer.tensors.read(x))])),
}  # fmt: skip
