"""Quantised weights: their scales move behind what reads them.

x @ ((q - zero) * scale) is (x @ (q - zero)) * scale where each column has one scale. The product then reads
a weight of small integers, which `compiler.lower.weights` holds in one byte each. Where groups of its rows
have scales of their own, the product has both as operands. Where x is quantised too, with one scale a row,
the product is one of integers, and so is a convolution where x has one scale. Rows of a quantised table are
taken first and dequantised then. Other weights of products and convolutions become constants in f32.
`READERS` says which operators are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...jit.families.matmul.grouped import SIZES
from ..ir.graph import Builder, Graph, Node, Value
from ..lower.packing import has_depthwise_kernel
from ..lower.specs import window_of
from ..ops import build as B
from ..ops.integer_conv import Image, integer_conv
from ..ops.integer_product import as_u8, integer_product, is_short_enough
from ..ops.quantize import repeated
from .rewrite import Rule, rewrite


@dataclass(frozen=True)
class Weight:
    """A constant quantised tensor: (q - zero) * scale."""

    q: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None
    name: str

    def integers(self) -> np.ndarray:
        """Return q - zero in f32, which is exact."""
        wide = self.q.astype(np.float32)
        return wide if self.zero is None else wide - repeated(self.zero, self.q.shape).astype(np.float32)

    def values(self) -> np.ndarray:
        """Return what it stands for, in f32."""
        wide: np.ndarray = (self.integers() * repeated(self.scale, self.q.shape)).astype(np.float32)
        return wide

    @property
    def is_symmetric(self) -> bool:
        """Whether its integers are those of products of bytes."""
        return (self.zero is None or not self.zero.any()) and self.q.dtype == np.int8

    def as_matrix(self, n: int) -> Weight | None:
        """Return it as a matrix of `n` columns, None where its scales and zero points belong to others."""
        if any(x is not None and x.size not in (1, x.shape[-1]) for x in (self.scale, self.zero)):
            return None
        if self.q.size and self.q.shape[-1] != n:
            return None
        zero = None if self.zero is None else self.zero.reshape(1, -1)
        return Weight(self.q.reshape(-1, n), self.scale.reshape(1, -1), zero, self.name)

    def permuted(self, axes: Sequence[int]) -> Weight:
        """Return it with its axes in another order."""
        zero = None if self.zero is None else self.zero.transpose(axes)
        return Weight(self.q.transpose(axes), self.scale.transpose(axes), zero, self.name)

    def groups(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the integers of a matrix [K, N] in i8 and the scales [groups, N] in f32 of groups of rows as
        products read them; None where it has none."""
        k, count = len(self.q), len(self.scale)
        if not count or k % count or k // count not in SIZES or not np.isfinite(self.scale).all():
            return None
        integers = self.integers()
        if integers.size and (integers.min() < -128 or integers.max() > 127):
            return None
        scale = np.broadcast_to(self.scale.astype(np.float32), (count, self.q.shape[1]))
        return integers.astype(np.int8), np.ascontiguousarray(scale)

    def scales_of_columns(self) -> np.ndarray | None:
        """Return the scale of each column of a matrix in f32, None where a column has several."""
        if self.scale.shape[0] != 1 or not np.isfinite(self.scale).all():
            return None
        scale = self.scale.reshape(-1).astype(np.float32)
        return np.ascontiguousarray(np.broadcast_to(scale, (self.q.shape[1],)))


MOVES = ("permute", "reshape")


def move_scales(graph: Graph) -> None:
    """Read quantised weights as integers where that is possible, else as constants."""
    rewrite(graph, lambda b, node: READERS[node.op](b, node) if node.op in READERS else None)


def _linear(b: Builder, node: Node) -> Value | None:
    """x times the transposed weight [N, K], plus a bias."""
    weight = _quantised(node.arg(1))
    bias = node.args[2] if len(node.args) > 2 else None
    result = None if weight is None else _product(b, node, weight.permuted((1, 0)))
    return result if result is None or bias is None else B.pointwise(b, "add", result, bias)


def _matmul(b: Builder, node: Node) -> Value | None:
    """x times the weight [K, N]."""
    weight = _quantised(node.arg(1))
    return None if weight is None or weight.q.ndim != 2 else _product(b, node, weight)


def _product(b: Builder, node: Node, weight: Weight) -> Value:
    """The product of a `matmul` or `linear` with a weight [K, N], by its integers where each column has one
    scale; without a bias."""

    def by(array: np.ndarray) -> Value:
        if node.op == "linear":
            return b.one("linear", node.arg(0), b.constant(array.T, "f32", weight.name), None)
        return b.one("matmul", node.arg(0), b.constant(array, "f32", weight.name))

    scales = weight.scales_of_columns()
    if scales is None:
        grouped = weight.groups()
        if grouped is None:
            return by(weight.values())
        found = _bytes_of(node.arg(0))
        if found is None:
            return by_groups(b, node.arg(0), weight.name, *grouped)
        return of_bytes_in_groups(b, *found, weight.name, *grouped)
    result = _of_bytes(b, node.arg(0), weight)
    if result is None:
        result = by(weight.integers())
    return B.pointwise(b, "mul", result, b.constant(scales, "f32", f"{weight.name}.scale"))


def by_groups(b: Builder, x: Value, name: str, integers: np.ndarray, scales: np.ndarray) -> Value:
    """Return x [.., K] times the integers [K, N], whose groups of rows have scales [groups, N]."""
    shape = B.shape_of(x)
    rows = x if len(shape) > 1 else B.reshape(b, x, (1, *shape))
    operands = b.constant(integers, "i8", name), b.constant(scales, "f32", f"{name}.scale")
    return B.reshape(b, b.one("matmul", rows, *operands), (*shape[:-1], integers.shape[1]))


def _of_bytes(b: Builder, x: Value, weight: Weight) -> Value | None:
    """Return x @ the weight's integers in f32, where x is dequantised too, by an exact product of integers;
    None where it is not, or has several scales in a row."""
    found = _bytes_of(x)
    if found is None or not weight.is_symmetric or not is_short_enough(len(weight.q)):
        return None
    q, scale, zero = found
    product = B.cast_to(b, integer_product(b, q, weight.q, weight.name, zero), "f32")
    return B.pointwise(b, "mul", product, B.cast_to(b, scale, "f32"))


def of_bytes_in_groups(
    b: Builder,
    q: Value,
    scale: Value,
    zero: Value | None,
    name: str,
    integers: np.ndarray,
    scales: np.ndarray,
) -> Value:
    """Return ((q - zero) * scale) @ integers [K, N] whose groups of rows have scales: the sums of groups are
    exact. q: bytes [.., K]."""
    q, zero = as_u8(b, q, zero)
    product = by_groups(b, q, name, integers, scales)
    if zero is not None:
        wide = integers.reshape(len(scales), -1, integers.shape[1]).sum(1, dtype=np.float64) * scales
        columns = b.constant(wide.sum(0).astype(np.float32), "f32", f"{name}.sums")
        product = B.pointwise(b, "sub", product, B.pointwise(b, "mul", B.cast_to(b, zero, "f32"), columns))
    return B.pointwise(b, "mul", product, B.cast_to(b, scale, "f32"))


def _bytes_of(x: Value) -> tuple[Value, Value, Value | None] | None:
    """Return the bytes, the scale and the zero point of a dequantised tensor whose rows have one each; else
    None."""
    source = x.node
    if source is None or source.op != "dequantize" or x.tensor.dtype != "f32" or x.tensor.rank < 2:
        return None
    q, scale = source.arg(0), source.arg(1)
    zero = source.args[2] if len(source.args) > 2 else None
    has_one_each = all(B.is_one(B.shape_of(part)[-1]) for part in (scale, zero) if part is not None)
    return (q, scale, zero) if has_one_each and q.tensor.dtype in ("u8", "i8") else None


def _gather(b: Builder, node: Node) -> Value | None:
    """Rows of a table: of its integers, and of its scales where rows have their own; dequantised then."""
    table, index = node.arg(0).node, node.arg(1)
    if table is None or table.op != "dequantize" or node.attrs["axis"] != 0:
        return None
    rows = B.shape_of(table.arg(0))[0]
    if any(x is not None and B.shape_of(x)[0] not in (1, rows) for x in table.args):
        return None

    def taken(x: Value | None) -> Value | None:
        if x is None or B.shape_of(x)[0] == rows:
            return x and b.one("gather", x, index, axis=0)
        return B.reshape(b, x, (*(1 for _ in range(index.tensor.rank)), *B.shape_of(x)[1:]))

    return b.one("dequantize", *map(taken, table.args), **table.attrs)


def _conv(b: Builder, node: Node) -> Value | None:
    """A convolution of bytes where x is quantised as well, with one scale; else by a constant in f32."""
    exact = _conv_of_bytes(b, node)
    if exact is not None:
        return exact
    found = _values(node.arg(1))
    if found is None:
        return None
    array, name = found
    return b.one("conv", node.arg(0), b.constant(array, "f32", name), **node.attrs)


def _conv_of_bytes(b: Builder, node: Node) -> Value | None:
    """A convolution of two quantised tensors, by an exact one of integers."""
    weight, found = _matrix(node.arg(1)), _image_of(b, node.arg(0))
    scales = None if weight is None else weight.scales_of_columns()
    if weight is None or scales is None or found is None or not weight.is_symmetric:
        return None
    image, scale = found
    channels, columns = B.shape_of(node.arg(0))[-1], weight.q.shape[1]
    is_narrow = has_depthwise_kernel(window_of(node), node.attrs["planes"], channels, columns)
    result = integer_conv(b, image, weight.q, weight.name, node.attrs, is_narrow)
    if result is None:
        return None
    factor = B.pointwise(b, "mul", b.constant(scales, "f32", f"{weight.name}.scale"), scale)
    return B.pointwise(b, "mul", result, factor)


def _image_of(b: Builder, x: Value) -> tuple[Image, Value] | None:
    """Return the bytes of a dequantised image, perhaps permuted, and its scale [] in f32; None where it is
    none, or has several scales or a zero point that only a call tells."""
    source = x.node
    if source is not None and source.op == "permute":
        found = _image_of(b, source.arg(0))
        if found is None:
            return None
        image, scale = found
        return Image(B.permute(b, image.q, source.attrs["axes"]), image.zero), scale
    if source is None or source.op != "dequantize" or x.tensor.dtype != "f32":
        return None
    q, scale = source.arg(0), source.arg(1)
    zero = source.args[2] if len(source.args) > 2 else None
    known = np.zeros(1) if zero is None else _constant(zero)
    if known is None or known.size != 1 or not all(map(B.is_one, B.shape_of(scale))):
        return None
    if q.tensor.dtype not in ("u8", "i8"):
        return None
    return Image(q, int(known.item())), B.cast_to(b, B.reshape(b, scale, ()), "f32")


def _matrix(value: Value) -> Weight | None:
    """Return the constant quantised tensor that a convolution's weight [K, F] is, else None."""
    node = value.node
    found = _quantised(node.arg(0)) if node is not None and node.op == "reshape" else None
    return None if found is None else found.as_matrix(int(B.shape_of(value)[-1]))


#: How an operator reads a quantised tensor: its result, None where its argument is no such tensor.
READERS: dict[str, Rule] = {"linear": _linear, "matmul": _matmul, "conv": _conv, "gather": _gather}


def _quantised(value: Value) -> Weight | None:
    """Return the constant quantised tensor in f32 that a value is, perhaps permuted, else None."""
    node = value.node
    if node is None or value.tensor.dtype != "f32":
        return None
    if node.op == "permute":
        weight = _quantised(node.arg(0))
        return None if weight is None else weight.permuted(node.attrs["axes"])
    arrays = [_constant(arg) for arg in node.args if arg is not None] if node.op == "dequantize" else [None]
    if any(array is None for array in arrays):
        return None
    q, scale, *zeros = (array for array in arrays if array is not None)
    is_float = scale.dtype in (np.float32, np.float64)  # not the bits of a bf16
    return Weight(q, scale, zeros[0] if zeros else None, _name(node)) if is_float else None


def _values(value: Value) -> tuple[np.ndarray, str] | None:
    """Return what a constant quantised tensor, perhaps moved, stands for in f32, and its name; else None."""
    node = value.node
    if node is not None and node.op in MOVES and (found := _values(node.arg(0))) is not None:
        array, name = found
        is_permuted = node.op == "permute"
        return array.transpose(node.attrs["axes"]) if is_permuted else array.reshape(value.tensor.shape), name
    weight = _quantised(value)
    return None if weight is None else (weight.values(), weight.name)


def _constant(value: Value) -> np.ndarray | None:
    """Return the array of a constant: as it is, reshaped, converted to f32, or one number everywhere."""
    node, type = value.node, value.tensor
    if node is None or not all(isinstance(size, int) for size in type.shape):
        return None
    if node.op == "constant":
        array: np.ndarray = node.attrs["array"]
        return array
    if node.op == "full":
        return np.full([int(size) for size in type.shape], node.attrs["value"])
    inner = _constant(node.arg(0)) if node.op in ("reshape", "cast") else None
    if inner is None or (node.op == "cast" and type.dtype != "f32"):
        return None
    return inner.reshape(type.shape) if node.op == "reshape" else inner.astype(np.float32)


def _name(node: Node) -> str:
    """Return the name of the constant whose elements a node dequantises."""
    q = node.arg(0).node
    while q is not None and q.op != "constant":
        q = q.arg(0).node if q.args else None
    return "" if q is None else str(q.attrs["name"])
