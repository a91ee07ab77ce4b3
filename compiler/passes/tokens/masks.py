"""What a value computed from a mask of tokens is at valid tokens and at padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy

from ...ir.dims import DimExpr, equal, product, simplify
from ...ir.graph import Builder, Node, Value
from ...ir.types import TensorType
from ...ops import OPS
from ...ops import build as B
from ...ops.rules import COMPUTE

#: An additive mask of at most this much takes a key out: its weight is exactly 0.
EXCLUDES = -1e30
_LOST = -1  # an axis that is no axis of the argument, but part of one
_ABSORBING = {"and": False, "or": True, "mul": 0}


def value_at(x: Value, mask: Value, axis: int | None, valid: bool) -> Any:
    """Return the value, a NumPy scalar, that `x` has wherever the token at its axis `axis` is valid, or
    padding, and all other tokens are valid; None if it has several, or is not known.

    x: computed from `mask` [batch, length], whose elements are 1 for valid tokens, else 0. axis: the axis of
    `x` along which tokens are; None if `x` has none.
    """
    if x is mask:
        return COMPUTE[x.tensor.dtype].type(valid or axis != 1)
    node = x.node
    if node is None:
        return None
    if node.op in ("full", "constant"):
        return _uniform(node)
    if node.op in _SOURCES:
        source = _before_reshapes(node) if node.op == "reshape" else node.arg(0)
        before = None if axis is None else _SOURCES[node.op](node, axis)
        return None if before == _LOST else value_at(source, mask, before, valid)
    if node.op not in OPS or OPS[node.op].kind != "pointwise":
        return None
    values = [value_at(arg, mask, axis, valid) for arg in node.present]
    for value, other in zip(values, node.present[::-1], strict=True) if node.op == "add" else ():
        if value is not None and value <= EXCLUDES and _is_small(other):
            return value  # with a bias by distance it excludes as well
    return of_pointwise(node, values)


def _is_small(x: Value) -> bool:
    """Whether elements are those of a constant far above EXCLUDES."""
    while x.node is not None and x.node.op in (*_SOURCES, "gather"):
        x = x.node.arg(0)
    if x.node is None or x.node.op != "constant" or x.tensor.dtype != "f32":
        return False
    array = x.node.attrs["array"]
    return bool(array.size) and float(np.abs(array).max()) < -EXCLUDES / 2**24


def _uniform(node: Node) -> Any:
    """Return the only value of a source, or None."""
    if node.op == "full":
        value, dtype = node.attrs["value"], node.attrs["dtype"]
        is_known = not isinstance(value, sympy.Expr) or value.is_number
        return COMPUTE[dtype].type(value) if is_known else None
    array, dtype = node.attrs["array"], node.attrs["dtype"]
    if dtype in ("f16", "bf16") or not array.size or not (array == array.flat[0]).all():
        return None
    return array.flat[0]


def of_pointwise(node: Node, values: list[Any]) -> Any:
    """Return the element of a pointwise node's result from those of its arguments; None is an unknown one."""
    if node.op == "where" and values[0] is not None:
        return values[1 if values[0] else 2]
    absorbing = _ABSORBING.get(node.op)
    if absorbing is not None and any(value is not None and value == absorbing for value in values):
        return COMPUTE[node.result.tensor.dtype].type(absorbing)
    if any(value is None for value in values):
        return None
    with np.errstate(all="ignore"):
        found = OPS[node.op].reference([np.asarray(value) for value in values], node.attrs)
    return np.asarray(found).astype(COMPUTE[node.result.tensor.dtype])[()]


def _before_expand(node: Node, axis: int) -> int | None:
    before = node.arg(0).tensor
    at = axis - (node.result.tensor.rank - before.rank)
    return None if at < 0 or B.is_one(before.shape[at]) else at


def _before_reshape(node: Node, axis: int) -> int | None:
    found = same_axis(node.result.tensor.shape, axis, _before_reshapes(node).tensor.shape)
    return _LOST if found is None else found


def _before_reshapes(node: Node) -> Value:
    """Return what a reshape and those before it change the shape of: axes that are merged may be split
    again."""
    x = node.arg(0)
    while x.node is not None and x.node.op == "reshape":
        x = x.node.arg(0)
    return x


#: The operators that only move elements: the axis of their argument from that of their result.
_SOURCES: dict[str, Callable[[Node, int], int | None]] = {
    "expand": _before_expand,
    "permute": lambda node, axis: node.attrs["axes"][axis],
    "reshape": _before_reshape,
    "slice": lambda node, axis: axis,
}


def same_axis(shape: tuple[Any, ...], axis: int, other: tuple[Any, ...]) -> int | None:
    """Return which axis of a reshaped tensor is axis `axis` of one of `shape`; None if it is merged or
    split."""
    return axis_of(other, shape[axis], product(shape[:axis]))


def axis_of(shape: Sequence[DimExpr], size: DimExpr, before: DimExpr) -> int | None:
    """Return the axis of `size` with `before` elements in front of it, None if there is none."""
    for axis, each in enumerate(shape):
        if equal(each, size) and equal(product(shape[:axis]), before):
            return axis
    return None


def with_all_valid(b: Builder, x: Value, mask: Value) -> Value:
    """Return `x` computed anew for one row whose tokens are all valid: the size of the batch is 1."""
    batch = mask.tensor.shape[0]
    assert isinstance(batch, sympy.Symbol)
    return _Row(b, mask, batch).value(x)


class _Row:
    """Computes values anew for one row of valid tokens."""

    def __init__(self, b: Builder, mask: Value, batch: sympy.Symbol) -> None:
        self.b, self.mask, self.batch = b, mask, batch
        self.made: dict[Value, Value] = {}

    def value(self, x: Value) -> Value:
        if x not in self.made:
            self.made[x] = self._value(x)
        return self.made[x]

    def _value(self, x: Value) -> Value:
        if x is self.mask:
            return B.full(self.b, 1, x.tensor.dtype, (1, x.tensor.shape[1]))
        if x.node is None or not isinstance(x.type, TensorType):
            return x
        args = [None if arg is None else self.value(arg) for arg in x.node.args]
        attrs = {name: self._at_one(value) for name, value in x.node.attrs.items()}
        if args == x.node.args and attrs == x.node.attrs:
            return x
        made = self.b.apply(x.node.op, *args, **attrs)
        return made[x.node.results.index(x)]

    def _at_one(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._at_one, value))
        if isinstance(value, sympy.Expr):
            return simplify(value.subs(self.batch, 1))
        return value
