"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from ....ir.dims import DimExpr, product, simplify
from ....ir.errors import UnsupportedOp
from ....ir.graph import Builder, Value
from ....ops import build as B
from ....ops.pool import lowest
from ..rows import MAX_COUNT, Call, row
from .products import each, padding


@row("GlobalAveragePool", "GlobalMaxPool")
def _global(call: Call) -> Value:
    x = call.value(0)
    axes = list(range(2, len(B.shape_of(x))))
    if call.op == "GlobalMaxPool":
        return B.reduce(call.b, "reduce_max", x, axes, True)
    return call.aten("mean.dim", x, axes, True)


@row("GlobalLpPool")
def _global_norm(call: Call) -> Value:
    x = call.value(0)
    axes = list(range(2, len(B.shape_of(x))))
    return call.aten("linalg_vector_norm", x, float(call.attr("p", 2)), axes, True)


@dataclass(frozen=True)
class Pool:
    """The windows of a node, an entry for each axis, and whether one that ends outside counts."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[DimExpr, ...]
    high: tuple[DimExpr, ...]
    ceil: bool

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.kernel)

    @property
    def is_even(self) -> bool:
        """Whether PyTorch's pools take the padding."""
        pairs = zip(self.low, self.kernel, strict=True)
        return self.low == self.high and all(isinstance(p, int) and p <= k // 2 for p, k in pairs)

    def reaches(self) -> list[int]:
        """Return how many positions a window covers."""
        return [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]

    def counts(self, b: Builder, sizes: Sequence[DimExpr]) -> list[DimExpr]:
        """Return the number of windows: in ceil mode also those that end outside, if they start inside."""
        found = []
        rows = zip(sizes, self.low, self.high, self.stride, self.reaches(), strict=True)
        for size, low, high, stride, reach in rows:
            room = simplify(size + low + high - reach)
            if not self.ceil:
                found.append(simplify(B.divide(room, stride) + 1))
                continue
            count = simplify(B.divide(simplify(room + stride - 1), stride) + 1)
            inside = simplify(B.divide(simplify(size + low - 1), stride) + 1)
            found.append(B.least(b, count, inside))
        return found

    def padded(self, b: Builder, x: Value, value: Any) -> Value:
        """Return x with `value` around it, up to the end of the last window."""
        sizes = B.shape_of(x)[-self.rank :]
        amounts: list[tuple[DimExpr, DimExpr]] = [(0, 0)] * (len(B.shape_of(x)) - self.rank)
        rows = zip(sizes, self.counts(b, sizes), self.low, self.stride, self.reaches(), strict=True)
        for size, count, low, stride, reach in rows:
            amounts.append((low, simplify((count - 1) * stride + reach - size - low)))
        return B.pad(b, x, amounts, value)


def _pool_of(call: Call) -> Pool:
    kernel = tuple(call.attr("kernel_shape"))
    n = len(kernel)
    if n > 3:
        raise UnsupportedOp(f"{call.op}: windows of {n} axes; at most 3 can be compiled")
    stride, dilation = each(call, "strides", n), each(call, "dilations", n)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    low, high = padding(call, call.shape(0)[2:], reach, stride)
    return Pool(kernel, stride, dilation, low, high, bool(call.attr("ceil_mode", 0)))


@row("MaxPool")
def _maximum(call: Call) -> Any:
    b, x, pool = call.b, call.value(0), _pool_of(call)
    name, low = f"max_pool{pool.rank}d", (0,) * pool.rank
    if call.n_outputs > 1:
        return _with_places(call, x, pool)
    if pool.is_even:
        return call.aten(name, x, pool.kernel, pool.stride, pool.low, pool.dilation, pool.ceil)
    padded = pool.padded(b, x, lowest(B.dtype_of(x)))
    return call.aten(name, padded, pool.kernel, pool.stride, low, pool.dilation, False)


def _with_places(call: Call, x: Value, pool: Pool) -> Any:
    """A maximum with its place in the whole tensor."""
    b, n, shape = call.b, pool.rank, B.shape_of(x)
    padded, low = x, pool.low
    if not pool.is_even:
        padded, low = pool.padded(b, x, lowest(B.dtype_of(x))), (0,) * n
    ceil = pool.ceil and pool.is_even
    name = f"max_pool{n}d_with_indices"
    made, places = call.aten(name, padded, pool.kernel, pool.stride, low, pool.dilation, ceil)
    inner, sizes = list(B.shape_of(padded)[2:]), list(shape[2:])
    shift = (0,) * n if pool.is_even else pool.low
    order = list(range(n)) if call.attr("storage_order", 0) else list(reversed(range(n)))
    moved = None
    for axis in reversed(range(n)):
        here = B.pointwise(b, "mod", places, inner[axis])
        places = B.pointwise(b, "floordiv", places, inner[axis])
        here = B.pointwise(b, "sub", here, B.full(b, shift[axis], "i64"))
        weight = product(sizes[i] for i in order[: order.index(axis)])
        here = B.pointwise(b, "mul", here, B.full(b, weight, "i64"))
        moved = here if moved is None else B.pointwise(b, "add", moved, here)
    assert moved is not None
    images = B.iota(b, simplify(shape[0] * shape[1]))
    offsets = B.pointwise(b, "mul", images, B.full(b, product(sizes), "i64"))
    return made, B.pointwise(b, "add", moved, B.reshape(b, offsets, [shape[0], shape[1], *[1] * n]))


@row("AveragePool")
def _mean(call: Call) -> Value:
    x, pool = call.value(0), _pool_of(call)
    counts = bool(call.attr("count_include_pad", 0))
    if pool.is_even and set(pool.dilation) == {1}:
        name = f"avg_pool{pool.rank}d"
        return call.aten(name, x, pool.kernel, pool.stride, pool.low, pool.ceil, counts)
    b, shape = call.b, B.shape_of(x)
    ones = B.full(b, 1, B.dtype_of(x), (1, 1, *shape[2:]))
    if counts:  # padding counts, but not what lies beyond it
        ones = B.pad(b, ones, [(0, 0), (0, 0), *zip(pool.low, pool.high, strict=True)], 1)
        around = replace(pool, low=(0,) * pool.rank, high=(0,) * pool.rank)
        share = _sums(call, ones, around, pool.counts(b, shape[2:]))
    else:
        share = _sums(call, ones, pool, pool.counts(b, shape[2:]))
    return B.pointwise(b, "div", _sums(call, x, pool, pool.counts(b, shape[2:])), share)


def _sums(call: Call, x: Value, pool: Pool, counts: Sequence[DimExpr]) -> Value:
    """Return the sum of every window, one axis after the other."""
    b = call.b
    rank = len(B.shape_of(x))
    if max(pool.kernel) > MAX_COUNT:
        raise UnsupportedOp(
            f"{call.op}: windows of {max(pool.kernel)} positions cannot be compiled with such padding; "
            f"{MAX_COUNT} are the most"
        )
    for i in reversed(range(pool.rank)):
        axis, size = rank - pool.rank + i, B.shape_of(x)[rank - pool.rank + i]
        end = simplify((counts[i] - 1) * pool.stride[i] + pool.reaches()[i] - size - pool.low[i])
        amounts: list[Any] = [(0, 0)] * rank
        amounts[axis] = (pool.low[i], end)
        padded = B.pad(b, x, amounts)
        taps = [
            B.take(b, padded, axis, k * pool.dilation[i], counts[i], pool.stride[i])
            for k in range(pool.kernel[i])
        ]
        x = reduce(lambda a, c: b.one("add", a, c), taps)
    return x


@row("LpPool")
def _norm(call: Call) -> Value:
    b, x, pool, p = call.b, call.value(0), _pool_of(call), float(call.attr("p", 2))
    powers = call.aten("pow.Tensor_Scalar", b.one("abs", x), p)
    total = _sums(call, powers, pool, pool.counts(b, B.shape_of(x)[2:]))
    return call.aten("pow.Tensor_Scalar", total, 1.0 / p)


@row("MaxUnpool")
def _unpool(call: Call) -> Value:
    b, x, kernel = call.b, call.value(0), call.attr("kernel_shape")
    n, shape = len(kernel), B.shape_of(x)
    stride, pads = each(call, "strides", n), call.attr("pads") or [0] * (2 * n)
    steps = zip(shape[2:], stride, kernel, pads[:n], pads[n:], strict=True)
    sizes = [simplify((size - 1) * step + k - low - high) for size, step, k, low, high in steps]
    whole = [*shape[:2], *sizes]
    index = B.reshape(b, B.cast_to(b, call.value(1), "i64"), [product(shape)])
    empty = B.full(b, 0, B.dtype_of(x), (product(whole),))
    made = call.aten("scatter.src", empty, 0, index, B.reshape(b, x, [product(shape)]))
    made = B.reshape(b, made, whole)
    if not call.has(2):
        return made
    return B.pad(b, made, [(0, simplify(a - c)) for a, c in zip(call.dims(2), whole, strict=True)])
