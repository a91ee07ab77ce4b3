"""Quantised weights: their scales move after their readers.

x @ ((q - zero) * scale) is (x @ (q - zero)) * scale if each column has one scale. The product then reads a
weight of small integers, which `compiler.lower.weights` holds in one byte each. If groups of its rows have
separate scales, the product has both as operands. If x is quantised too, with one scale a row, the product is
one of integers, and so is a convolution if x has one scale. Rows of a quantised table are gathered first and
then dequantised. Other weights of products and convolutions become constants in f32, and so do those of
products that are faster that way (`slower_than_f32`). `READERS` lists the operators.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...jit.evaluation import from_memory, round_values
from ...jit.families.matmul import digits
from ...jit.families.matmul.grouped import NIBBLE, SIZES, dtype_for
from ..ir.dims import equal, product
from ..ir.graph import Builder, Graph, Node, Value
from ..ir.ranges import bounds
from ..ir.rounding import RoundedWeight
from ..lower.packing import takes_bytes_in_f32
from ..lower.specs import window_of
from ..lower.weights import held as held_in
from ..lower.weights import slower_than_f32
from ..ops import build as B
from ..ops.integer_conv import Image, integer_conv
from ..ops.integer_product import as_u8, integer_product, is_short_enough
from ..ops.quantize import repeated
from .fold_constants import evaluated
from .quantised_patterns import FLOATS, Quantised, quantised
from .rewrite import Rule, rewrite


class Groups(NamedTuple):
    """Integers [K, N] in i8 and the scales [groups, N] of groups of rows; `offsets`: the zero points'
    contribution, times the scales, for a sum of ones over a group."""

    integers: np.ndarray
    scales: np.ndarray
    offsets: np.ndarray | None


_LOG = logging.getLogger("shapevm")


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
        """Return the dequantised values in f32."""
        wide: np.ndarray = (self.integers() * repeated(self.scale, self.q.shape)).astype(np.float32)
        return wide

    def bytes(self) -> np.ndarray | None:
        """Return q - zero in i8, None if it does not fit, or a zero point is no integer."""
        wide = self.integers()
        if wide.size and not (wide.min() >= -128 and wide.max() <= 127):
            return None
        integers = wide.astype(np.int8)
        return integers if np.array_equal(integers, wide) else None

    def reshaped(self, shape: Sequence[int]) -> Weight | None:
        """Return a matrix of a tensor [rows, groups, steps] with a scale for each group, else None."""
        parts = [x for x in (self.scale, self.zero) if x is not None]
        rows, *_ = self.q.shape
        is_split = self.q.ndim == 3 and len(shape) == 2 and rows == shape[0]
        if not is_split or any(x.shape[2] != 1 or x.shape[1] != self.q.shape[1] for x in parts):
            return None
        zero = None if self.zero is None else self.zero[..., 0]
        return Weight(self.q.reshape(shape), self.scale[..., 0], zero, self.name)

    def as_matrix(self, n: int) -> Weight | None:
        """Return it as a matrix of `n` columns, None if that splits its columns."""
        if self.q.size and self.q.shape[-1] != n:
            return None

        def spread(x: np.ndarray) -> np.ndarray:
            is_of_columns = x.size in (1, x.shape[-1])
            return x.reshape(1, -1) if is_of_columns else repeated(x, self.q.shape).reshape(-1, n)

        zero = None if self.zero is None else spread(self.zero)
        return Weight(self.q.reshape(-1, n), spread(self.scale), zero, self.name)

    def permuted(self, axes: Sequence[int]) -> Weight:
        """Return the weight with its axes in another order."""
        zero = None if self.zero is None else self.zero.transpose(axes)
        return Weight(self.q.transpose(axes), self.scale.transpose(axes), zero, self.name)

    def shifted(self) -> tuple[np.ndarray, np.ndarray | None] | None:
        """Return integers in i8 and the remaining zero points, in the shape of the scales: no zero points if
        the integers without them have as few bits. None if bytes do not hold them."""
        integers = self.bytes()
        low, high = (int(x) for x in (self.q.min(initial=0), self.q.max(initial=0)))
        half = 8 if high - low < 16 else 128
        if integers is not None and (half > 8 or dtype_for(integers) == NIBBLE):
            return integers, None
        zero = np.zeros((1,) * self.q.ndim) if self.zero is None else self.zero
        if any(size not in (1, n) for size, n in zip(zero.shape, self.scale.shape, strict=True)):
            return None if integers is None else (integers, None)
        middle = 0 if -half <= low and high < half else low + half
        moved = (self.q.astype(np.int16) - middle).astype(np.int8)
        return moved, np.broadcast_to(zero.astype(np.float32) - middle, self.scale.shape)

    def groups(self) -> Groups | str:
        """Return the groups of the rows of a matrix [K, N] in the form that products read, or why it has
        none."""
        (k, n), (count, width) = self.q.shape, self.scale.shape
        if not np.isfinite(self.scale).all():
            return "a scale is not finite"
        steps = k // count if count else 0
        size = next((size for size in sorted(SIZES, reverse=True) if steps and steps % size == 0), 0)
        if not size or k % count or width not in (1, n):
            return f"kernels read groups of {SIZES[0]} steps and their multiples"
        found = self.shifted()
        if found is None:
            return TOO_WIDE
        integers, zeros = found

        def of_groups(x: np.ndarray) -> np.ndarray:
            return np.repeat(np.broadcast_to(x, (count, n)), steps // size, axis=0)

        scale = self.scale.astype(np.float32)
        return Groups(integers, of_groups(scale), None if zeros is None else of_groups(zeros * scale))

    @property
    def scheme(self) -> str:
        """How a matrix [K, N] is quantised, as text."""
        count, (k, _) = len(self.scale), self.q.shape
        each = "a scale for each column" if count == 1 else "a scale for each step"
        if 1 < count < k:
            each = f"groups of {k // count}"
        zeros = "" if self.zero is None or not self.zero.any() else ", zero points"
        return f"int{dtype_for(self.q)[1:]}, {each}{zeros}"

    def scales_of_columns(self) -> np.ndarray | None:
        """Return the scale of each column of a matrix in f32, None if a column has several."""
        if self.scale.shape[0] != 1 or not np.isfinite(self.scale).all():
            return None
        return of_columns(self.scale, self.q.shape[1]).astype(np.float32)


def of_columns(factors: np.ndarray, n: int) -> np.ndarray:
    """Return the factor of each of `n` columns from the factors [1, blocks] of blocks of columns."""
    spread: np.ndarray = repeated(factors, (1, n)).reshape(-1)
    return spread


Bytes = tuple[Value, Value, "Value | None"]  # q, scale and zero point of rows
MOVES = ("permute", "reshape")
BITS = {"int4": 4, "int8": 8, "bf16": 16}  # of an element, by storage format
TOO_WIDE = "an integer without its zero point needs more than eight bits"
TOO_LONG = "sums of that many products of bytes may not fit in 32 bits"
HALF = ("f16", "bf16")


def move_scales(graph: Graph) -> None:
    """Read quantised weights as integers if possible, else as constants."""
    rewrite(graph, lambda b, node: READERS[node.op](b, node) if node.op in READERS else None)


def _linear(b: Builder, node: Node) -> Value | None:
    """x times the transposed weight [N, K], plus a bias."""
    weight = _quantised(node.arg(1))
    return None if weight is None or weight.q.ndim != 2 else _product(b, node, weight.permuted((1, 0)))


def _matmul(b: Builder, node: Node) -> Value | None:
    """x times the weight [K, N]."""
    weight = _quantised(node.arg(1))
    return None if weight is None or weight.q.ndim != 2 else _product(b, node, weight)


def _product(b: Builder, node: Node, weight: Weight) -> Value:
    """The product of a `matmul` or `linear` with a weight [K, N], computed in f32 and finally rounded to the
    node's dtype."""
    dtype, x = B.dtype_of(node.result), node.arg(0)
    shape = B.shape_of(x)
    rows = x if len(shape) > 1 else B.reshape(b, x, (1, *shape))
    result = B.reshape(b, _sums(b, node, rows, weight), (*shape[:-1], weight.q.shape[1]))
    bias = node.args[2] if len(node.args) > 2 else None
    if bias is not None:
        result = B.pointwise(b, "add", result, B.cast_to(b, bias, "f32"))
    return B.cast_to(b, result, dtype)


def _sums(b: Builder, node: Node, x: Value, weight: Weight) -> Value:
    """The product of x [.., M, K] in f32: by the weight's integers if each column, or each group of its rows,
    has one scale."""

    def by(array: np.ndarray) -> Value:
        wide = B.cast_to(b, x, "f32")
        if node.op == "linear":
            return b.one("linear", wide, b.constant(array.T, "f32", weight.name), None)
        return b.one("matmul", wide, b.constant(array, "f32", weight.name))

    scales, found = weight.scales_of_columns(), _bytes_of(b, x)
    if scales is None:
        return _sums_of_groups(b, node, x, weight, found) or by(weight.values())
    whole = weight.bytes()
    moved = weight.shifted() if whole is None else (whole, None)
    zeros = None if moved is None else moved[1]
    why = TOO_WIDE if moved is None else "" if found is None or is_short_enough(len(weight.q)) else TOO_LONG
    if moved is None:
        _note(b, node, weight, "f32", why)
        result = by(weight.integers())
    elif found is None and (slower := _slower(b, x, weight, digits.steps(len(weight.q)))):
        _keep_in_f32(b, weight, slower)
        return by(weight.values())
    elif found is None or why:
        _note(b, node, weight, "int8", why)
        result = by(moved[0].astype(np.float32))
    else:
        _note(b, node, weight, "u8 x int8")
        result = _of_bytes(b, found, moved[0], weight.name)
    if zeros is not None:
        taken = b.constant(of_columns(zeros, weight.q.shape[1]), "f32", f"{weight.name}.zeros")
        result = B.pointwise(b, "sub", result, B.pointwise(b, "mul", _sum_of_groups(b, x, 1), taken))
    if (scales == 1).all():
        return result
    return B.pointwise(b, "mul", result, b.constant(scales, "f32", f"{weight.name}.scale"))


def _slower(b: Builder, x: Value, weight: Weight, group: int) -> str:
    """Return why integers do not pay for products of x [.., M, K] in f32, "" if they do. `group`: the
    steps that share scales."""
    (k, n), rows = weight.q.shape, bounds(product(B.shape_of(x)[:-1]), b.graph.symbols)[0] or 0
    return slower_than_f32(k, n, group, rows, b.graph.rounding.targets)


def _sums_of_groups(b: Builder, node: Node, x: Value, weight: Weight, found: Bytes | None) -> Value | None:
    """The product in f32 with a weight whose groups of rows have scales; None if no kernel reads these, or
    not as fast as f32."""
    name, groups = weight.name, weight.groups()
    if isinstance(groups, str):
        _note(b, node, weight, "f32", groups)
        return None
    integers, scales, offsets = groups
    if found is None and (slower := _slower(b, x, weight, len(integers) // len(scales))):
        _keep_in_f32(b, weight, slower)
        return None
    text = f"int{dtype_for(integers)[1:]}, groups of {len(integers) // len(scales)}"
    _note(b, node, weight, text if found is None else f"u8 x {text}")
    if found is None:
        result = by_groups(b, B.cast_to(b, x, "f32"), name, integers, scales)
    else:
        result = of_bytes_in_groups(b, *found, name, integers, scales)
    if offsets is None:
        return result
    taken = b.one("matmul", _sum_of_groups(b, x, len(scales)), b.constant(offsets, "f32", f"{name}.zeros"))
    return B.pointwise(b, "sub", result, taken)


def _sum_of_groups(b: Builder, x: Value, count: int) -> Value:
    """Return the sums of `count` parts of each row of x [.., K] in f32: [.., count]."""
    shape = B.shape_of(x)
    steps = int(shape[-1]) // count
    parts = B.reshape(b, B.cast_to(b, x, "f32"), (*shape[:-1], count, steps))
    return B.reduce(b, "reduce_sum", parts, [len(shape)], keepdim=False)


def by_groups(b: Builder, x: Value, name: str, integers: np.ndarray, scales: np.ndarray) -> Value:
    """Return x [.., K] times the integers [K, N], whose groups of rows have scales [groups, N]."""
    shape = B.shape_of(x)
    rows = x if len(shape) > 1 else B.reshape(b, x, (1, *shape))
    operands = b.constant(integers, "i8", name), b.constant(scales, "f32", f"{name}.scale")
    return B.reshape(b, b.one("matmul", rows, *operands), (*shape[:-1], integers.shape[1]))


def _of_bytes(b: Builder, found: Bytes, integers: np.ndarray, name: str) -> Value:
    """Return ((q - zero) * scale) @ integers in f32, by an exact product of integers."""
    q, scale, zero = found
    product = B.cast_to(b, integer_product(b, q, integers, name, zero), "f32")
    return B.pointwise(b, "mul", product, B.cast_to(b, scale, "f32"))


def _note(b: Builder, node: Node, weight: Weight, held: str, why: str = "") -> None:
    """Note the storage format of a node's weight; `why`: why no kernel reads it in the program's format,
    which is also logged."""
    reason = ""
    if why:
        word = "of" if node.source.startswith("module ") else "at"
        what = f"{node.op} by {weight.name!r}" + (f" {word} {node.source}" if node.source else "")
        scheme = f"a weight in {weight.scheme}"
        reason = f"{what}: no kernel reads {scheme}, as it is, since {why}; it is held in {held}"
        _LOG.warning("%s", reason)
    _keep(b, weight, held, reason)


def _keep_in_f32(b: Builder, weight: Weight, reason: str) -> None:
    """Note that products are faster by a weight in f32, so that it is held in f32 even if a byte suffices."""
    b.graph.rounding.in_f32.add(weight.name)
    _keep(b, weight, "f32", reason)


def _keep(b: Builder, weight: Weight, held: str, reason: str) -> None:
    """Note the storage format of a weight, and the reason if it differs from the program's."""
    shape = tuple(map(int, weight.q.shape))
    bits = next((n for name, n in BITS.items() if name in held.removeprefix("u8 x ")), 32)
    n_bytes = weight.q.size * bits // 8 + (4 * weight.scale.size if "int" in held else 0)
    b.graph.rounding.weights[weight.name] = RoundedWeight(weight.name, shape, held, n_bytes, 0.0, reason)


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


def _bytes_of(b: Builder, x: Value) -> Bytes | None:
    """Return the bytes, the scale and the zero point of a dequantised tensor whose rows have one each; else
    None."""
    if x.tensor.dtype not in FLOATS or not x.tensor.rank:
        return None
    if x.node is not None and x.node.op == "reshape":
        return _of_rows(b, x, _bytes_of(b, x.node.arg(0)))
    found = quantised(x)
    if found is None or B.dtype_of(found.q) not in ("u8", "i8"):
        return None
    if not all(B.is_one(B.shape_of(part)[-1]) for part in found.factors):
        return None
    scale = B.full(b, 1.0, "f32", (1,) * x.tensor.rank) if found.scale is None else found.scale
    return found.q, scale, found.zero


def _of_rows(b: Builder, x: Value, found: Bytes | None) -> Bytes | None:
    """Return the parts of a tensor for `x`, which has the same rows in different axes; None if the rows
    differ, or if some of the axes have separate scales."""
    if found is None:
        return None
    q, shape = found[0], B.shape_of(x)
    if not equal(B.shape_of(q)[-1], shape[-1]):
        return None

    def moved(part: Value) -> Value | None:
        before = B.shape_of(part)[:-1]
        if all(map(B.is_one, before)):
            return B.reshape(b, part, (1,) * len(shape))
        is_whole = all(map(equal, before, B.shape_of(q)[:-1]))
        return B.reshape(b, part, (*shape[:-1], 1)) if is_whole else None

    scale, zero = moved(found[1]), None if found[2] is None else moved(found[2])
    if scale is None or (zero is None and found[2] is not None):
        return None
    return B.reshape(b, q, shape), scale, zero


def _gather(b: Builder, node: Node) -> Value | None:
    """Rows of a table: of its integers, and of its scales if rows have separate ones; then dequantised."""
    found, index = _table_of(b, node.arg(0)), node.arg(1)
    if found is None or found.scale is None or node.attrs["axis"] != 0:
        return None
    parts, rows = (found.q, found.scale, found.zero), B.shape_of(found.q)[0]
    if any(x is not None and B.shape_of(x)[0] not in (1, rows) for x in parts):
        return None

    def taken(x: Value | None) -> Value | None:
        if x is None or B.shape_of(x)[0] == rows:
            return x and b.one("gather", x, index, axis=0)
        return B.reshape(b, x, (*(1 for _ in range(index.tensor.rank)), *B.shape_of(x)[1:]))

    return b.one("dequantize", *map(taken, parts), dtype=B.dtype_of(node.result))


def _table_of(b: Builder, value: Value) -> Quantised | None:
    """Return the parts of a dequantised table [rows, columns], whose columns may consist of groups."""
    node = value.node
    if node is None or node.op != "reshape":
        return quantised(value)
    found, shape = quantised(node.arg(0)), B.shape_of(value)
    if found is None or found.scale is None or found.q.tensor.rank != 3 or len(shape) != 2:
        return None
    before = B.shape_of(found.q)
    if not equal(before[0], shape[0]) or not all(B.is_one(B.shape_of(part)[2]) for part in found.factors):
        return None

    def flat(part: Value) -> Value:
        return B.reshape(b, part, B.shape_of(part)[:2])

    zero = None if found.zero is None else flat(found.zero)
    return Quantised(B.reshape(b, found.q, shape), flat(found.scale), zero)


def _conv(b: Builder, node: Node) -> Value | None:
    """A convolution of bytes if x is also quantised, with one scale; else by a constant in f32."""
    exact = _conv_of_bytes(b, node)
    if isinstance(exact, Value):
        return exact
    found, weight = _values(node.arg(1)), _matrix(node.arg(1))
    if found is None:
        return None
    array, name = found
    if weight is not None:
        _note(b, node, weight, "bf16" if held_in(array, "f32")[1] == "bf16" else "f32", exact)
    return b.one("conv", node.arg(0), b.constant(array, "f32", name), **node.attrs)


def _conv_of_bytes(b: Builder, node: Node) -> Value | str:
    """A convolution of two quantised tensors, by an exact one of integers; else why there is none."""
    weight, found = _matrix(node.arg(1)), _image_of(b, node.arg(0))
    scales = None if weight is None else weight.scales_of_columns()
    if weight is None or scales is None:
        return "a channel has several scales, or one that is not finite"
    if found is None:
        return "its image has no bytes with one scale and one zero point"
    image, scale = found
    channels, columns = B.shape_of(node.arg(0))[-1], weight.q.shape[1]
    window, targets = window_of(node), b.graph.rounding.targets
    is_narrow = takes_bytes_in_f32(window, node.attrs["planes"], channels, columns, targets)
    result = _sums_of_bytes(b, image, weight, node.attrs, is_narrow)
    if isinstance(result, str):
        return result
    _note(b, node, weight, "u8 x f32" if is_narrow else "u8 x int8")
    factor = B.pointwise(b, "mul", b.constant(scales, "f32", f"{weight.name}.scale"), scale)
    return B.pointwise(b, "mul", result, factor)


def _sums_of_bytes(
    b: Builder, image: Image, weight: Weight, attrs: dict[str, Any], is_narrow: bool
) -> Value | str:
    """The convolution of an image of bytes by a weight's integers in f32; else why there is none. If bytes do
    not hold the integers without their zero points, a column of ones adds up the image for these."""
    integers, zeros = weight.bytes(), None
    if integers is None:
        moved = weight.shifted() if attrs["groups"] == 1 else None
        if moved is None or moved[1] is None:
            return TOO_WIDE
        zeros = of_columns(moved[1], weight.q.shape[1]).astype(np.float32)
        integers = np.concatenate([moved[0], np.ones((len(moved[0]), 1), np.int8)], 1)
    result = integer_conv(b, image, integers, weight.name, attrs, is_narrow)
    if result is None:
        return "no convolution of bytes has such a window"
    if zeros is None:
        return result
    axis, n = result.tensor.rank - 1, len(zeros)
    parts, added = B.take(b, result, axis, 0, n), B.take(b, result, axis, n, 1)
    taken = B.pointwise(b, "mul", added, b.constant(zeros, "f32", f"{weight.name}.zeros"))
    return B.pointwise(b, "sub", parts, taken)


def _image_of(b: Builder, x: Value) -> tuple[Image, Value] | None:
    """Return the bytes of a dequantised image, perhaps permuted, and its scale [] in f32; None if it is not
    one, or has several scales or zero points."""
    source = x.node
    if source is not None and source.op == "permute":
        found = _image_of(b, source.arg(0))
        if found is None:
            return None
        image, scale = found
        return Image(B.permute(b, image.q, source.attrs["axes"]), image.zero), scale
    parts = quantised(x) if x.tensor.dtype == "f32" else None
    if parts is None or parts.scale is None:
        return None
    q, scale, zero = parts.q, parts.scale, parts.zero
    if not all(B.is_one(size) for part in parts.factors for size in B.shape_of(part)):
        return None
    if q.tensor.dtype not in ("u8", "i8"):
        return None
    known = np.zeros(1) if zero is None else _constant(zero)
    at: int | Value = 0 if known is None else int(known.item())
    if zero is not None and known is None:
        at = B.cast_to(b, B.reshape(b, zero, ()), "i32")
    return Image(q, at), B.cast_to(b, B.reshape(b, scale, ()), "f32")


def _matrix(value: Value) -> Weight | None:
    """Return the constant quantised tensor that a convolution's weight [K, F] is, else None."""
    node = value.node
    found = _quantised(node.arg(0)) if node is not None and node.op == "reshape" else None
    return None if found is None else found.as_matrix(int(B.shape_of(value)[-1]))


#: Rules by operator that reads a quantised tensor: each returns its result, None if its argument is not such
#: a tensor.
READERS: dict[str, Rule] = {"linear": _linear, "matmul": _matmul, "conv": _conv, "gather": _gather}


def _quantised(value: Value) -> Weight | None:
    """Return the constant quantised tensor that a value is, perhaps permuted, else None."""
    node = value.node
    if node is None or value.tensor.dtype not in FLOATS:
        return None
    if node.op == "permute":
        weight = _quantised(node.arg(0))
        return None if weight is None else weight.permuted(node.attrs["axes"])
    if node.op == "reshape":
        weight = _quantised(node.arg(0))
        shape = [int(size) for size in B.shape_of(value) if isinstance(size, int)]
        return None if weight is None or len(shape) != 2 else weight.reshaped(shape)
    parts = quantised(value)
    if parts is None and _is_widened(value):
        return _quantised(node.arg(0))
    if parts is None or (parts.scale is None and B.dtype_of(parts.q) != "i8"):
        return None
    q = _constant(parts.q)
    scale = np.ones((1,) * value.tensor.rank) if parts.scale is None else _constant(parts.scale)
    zero = None if parts.zero is None else _constant(parts.zero)
    if q is None or scale is None or (zero is None and parts.zero is not None):
        return None
    return Weight(q, scale, zero, B.name_of_constant(parts.q)) if scale.dtype.kind == "f" else None


def _is_widened(value: Value) -> bool:
    """Whether a value is a HALF value widened to f32, as read by convolutions of bf16 models."""
    node = value.node
    if node is None or node.op != "cast" or value.tensor.dtype != "f32":
        return False
    return node.arg(0).tensor.dtype in HALF


def _values(value: Value) -> tuple[np.ndarray, str] | None:
    """Return the values in f32 of a constant quantised tensor, perhaps moved, and its name; else None."""
    node = value.node
    is_moved = node is not None and (node.op in MOVES or _is_widened(value))
    if node is not None and is_moved and (found := _values(node.arg(0))) is not None:
        array, name = found
        is_permuted = node.op == "permute"
        return array.transpose(node.attrs["axes"]) if is_permuted else array.reshape(value.tensor.shape), name
    weight = _quantised(value)
    return None if weight is None else (round_values(weight.values(), value.tensor.dtype), weight.name)


def _constant(value: Value) -> np.ndarray | None:
    """Return the array of a constant, which may be moved, converted, uniform, or computed."""
    node, type = value.node, value.tensor
    if node is None or not all(isinstance(size, int) for size in type.shape):
        return None
    if node.op == "constant":
        array: np.ndarray = node.attrs["array"]
        return from_memory(array, type.dtype) if type.dtype in HALF else array
    if node.op == "full":
        return np.full([int(size) for size in type.shape], node.attrs["value"])
    inner = _constant(node.arg(0)) if node.op in (*MOVES, "cast") else None
    if inner is None or (node.op == "cast" and type.dtype != "f32"):
        return evaluated(value)
    if inner is not None and node.op == "permute":
        return inner.transpose(node.attrs["axes"])
    return inner.reshape(type.shape) if node.op == "reshape" else inner.astype(np.float32)
