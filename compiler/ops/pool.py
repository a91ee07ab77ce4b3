"""Pooling: torch's overloads as shifted views of the padded input, one kernel for small windows.

A window's taps are strided slices, so a maximum or sum over them is a pointwise chain. Windows whose sizes
differ by position (adaptive pooling) gather their elements by index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product as combinations
from typing import Any, cast

import numpy as np
import sympy

from ..ir.dims import DimExpr, floordiv, product, simplify
from ..ir.graph import Builder, Value
from ..ir.promotion import is_float
from ..ir.ranges import always_at_most
from . import build as B
from .conditions import add_guard
from .declare import Composite
from .reduce import mean_of
from .rules import COMPUTE

#: Windows with more taps are reduced one axis after the other.
MAX_TAPS = 25
#: Padded windows of a maximum with at most this many taps, on PLANE axes, are one kernel.
MAX_PLACES, PLANE = 9, 2
#: Nodes that may lie between a convolution and a pool which reads its layout.
MAX_STEPS = 32
#: Windows longer than this along one axis are rows of a reduction.
LONGEST_CHAIN = 64

Ints = int | Sequence[int]


@dataclass(frozen=True)
class Window:
    """Windows along one axis: number i of `count` has `size` elements, from i * stride - before on, in steps
    of `dilation`. `before` and `after`: the required padding."""

    axis: int
    count: DimExpr
    size: int
    stride: int = 1
    before: int = 0
    after: DimExpr = 0
    dilation: int = 1


def each_axis(values: Ints, n: int) -> list[int]:
    """Return `n` values from one, or from a list of 1 or `n`."""
    values = [values] if isinstance(values, int) else list(values)
    return values * n if len(values) == 1 else values


def windows_of(
    b: Builder,
    op: str,
    x: Value,
    kernel: Sequence[int],
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> list[Window]:
    """Return the windows along the last axes of `x`, one for each size in `kernel`."""
    n, shape = len(kernel), B.shape_of(x)
    strides = each_axis(stride, n) if isinstance(stride, int) or stride else list(kernel)
    settings = zip(kernel, strides, each_axis(padding, n), each_axis(dilation, n), strict=True)
    found = []
    for axis, (size, step, pad, apart) in enumerate(settings, len(shape) - n):
        count = _count(b, shape[axis], size, step, pad, apart, ceil_mode)
        add_guard(b, sympy.Ge(sympy.sympify(count), 1), f"{op}: axis {axis} is shorter than its window")
        after: DimExpr = pad + step - 1 if ceil_mode else pad
        if isinstance(shape[axis], int) and isinstance(count, int):
            after = max((count - 1) * step + (size - 1) * apart + 1 - pad - shape[axis], 0)
        found.append(Window(axis, count, size, step, pad, after, apart))
    return found


def _count(
    b: Builder, length: DimExpr, size: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> DimExpr:
    """Return how many windows fit; in `ceil_mode` also one that ends outside, if it starts inside."""
    room = simplify(length + 2 * padding - dilation * (size - 1) - 1)
    if not ceil_mode:
        return simplify(B.divide(room, stride) + 1)
    count = simplify(B.divide(room + stride - 1, stride) + 1)
    inside = simplify(B.divide(length + padding - 1, stride) + 1)
    if always_at_most(count, inside, b.graph.symbols):
        return count
    return simplify(sympy.Min(count, inside))


def _padded(b: Builder, x: Value, windows: Sequence[Window], value: Any) -> Value:
    amounts: list[tuple[DimExpr, DimExpr]] = [(0, 0)] * len(B.shape_of(x))
    for window in windows:
        amounts[window.axis] = (window.before, window.after)
    return B.pad(b, x, amounts, value)


def _taps(b: Builder, x: Value, windows: Sequence[Window]) -> Iterator[tuple[tuple[int, ...], Value]]:
    """Yield (offsets, the elements of padded `x` at these offsets of every window) in row-major order."""
    for offsets in combinations(*(range(window.size) for window in windows)):
        tap = x
        for window, offset in zip(windows, offsets, strict=True):
            tap = B.take(b, tap, window.axis, offset * window.dilation, window.count, window.stride)
        yield offsets, tap


def _over_windows(b: Builder, x: Value, windows: Sequence[Window], pointwise: str, reduction: str) -> Value:
    """Reduce every window of the padded `x`."""
    if all(B.is_one(window.count) for window in windows):
        for window in windows:
            x = B.take(b, x, window.axis, 0, window.size, window.dilation)
        return B.reduce(b, reduction, x, [window.axis for window in windows], True)
    if len(windows) > 1 and product(window.size for window in windows) > MAX_TAPS:
        for window in reversed(windows):
            x = _over_windows(b, x, [window], pointwise, reduction)
        return x
    if max(window.size for window in windows) > LONGEST_CHAIN:
        return _long_window(b, x, windows[0], reduction)
    return reduce(lambda a, c: b.one(pointwise, c, a), (tap for _, tap in _taps(b, x, windows)))


def _long_window(b: Builder, x: Value, window: Window, reduction: str) -> Value:
    """Reduce windows along one axis as rows of elements taken by index."""
    starts = line_of(b, window.count, window.stride)
    places = B.pointwise(b, "add", B.add_axis(b, starts, 1), line_of(b, window.size, window.dilation))
    rows = b.one("gather", x, places, axis=window.axis)
    return B.reduce(b, reduction, rows, [window.axis + 1], False)


def line_of(b: Builder, length: DimExpr, step: DimExpr = 1, start: DimExpr = 0) -> Value:
    """Return start, start + step, ... in i64."""
    return b.one("iota", start=start, step=step, length=length, dtype="i64")


def along_axis(b: Builder, line: Value, axis: int, rank: int) -> Value:
    """Return a 1-d tensor as the axis `axis` of `rank`."""
    (size,) = B.shape_of(line)
    return B.reshape(b, line, [size if i == axis else 1 for i in range(rank)])


def lowest(dtype: str) -> float | int:
    """Return the neutral element of maxima in `dtype`."""
    return -np.inf if is_float(dtype) else int(np.iinfo(COMPUTE[dtype]).min)


# Maximum ------------------------------------------------------------------------------------------


def _max_pool(n: int) -> Callable[..., Value]:
    def expand(
        b: Builder,
        x: Value,
        kernel: Ints,
        stride: Ints = (),
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
    ) -> Value:
        windows = windows_of(
            b, f"max_pool{n}d", x, each_axis(kernel, n), stride, padding, dilation, ceil_mode
        )
        if _is_clamped(windows):
            return _clamped_maximum(b, x, windows)
        padded = _padded(b, x, windows, lowest(B.dtype_of(x)))
        return _over_windows(b, padded, windows, "maximum", "reduce_max")

    expand.__doc__ = f"The maximum of every window of the last {n} axes; NaN wins."
    return expand


def _is_clamped(windows: Sequence[Window]) -> bool:
    """Return True if padded windows of a maximum read the nearest inner element instead of padding: it is
    also in the window, at most half of which is padding, and no padded copy is needed."""
    is_padded = any(window.before != 0 or window.after != 0 for window in windows)
    is_dense = all(window.dilation == 1 for window in windows)
    is_alone = all(B.is_one(window.count) for window in windows)
    return is_padded and is_dense and not is_alone and max(w.size for w in windows) <= MAX_TAPS


def _clamped_maximum(b: Builder, x: Value, windows: Sequence[Window]) -> Value:
    """Return the maximum of every window: for channels last and a few taps at once, else axis by axis, so
    that only taps along the last one are not vectors in memory."""
    is_few = len(windows) == PLANE and product(window.size for window in windows) <= MAX_PLACES
    if is_few and _follows_conv(x):
        return _clamped_in_planes(b, x, windows)
    for window in windows:
        taps = (b.one("gather", x, place, axis=window.axis) for place in _clamped_places(b, x, window))
        x = reduce(lambda a, c: b.one("maximum", c, a), taps)
    return x


def _follows_conv(x: Value) -> bool:
    """Return True if `x` is computed from a convolution's result, which will be channels last."""
    for _ in range(MAX_STEPS):
        node = x.node
        if node is None or not node.args or node.args[0] is None:
            return False
        if node.op == "conv":
            return True
        x = node.args[0]
    return False


def _clamped_in_planes(b: Builder, x: Value, windows: Sequence[Window]) -> Value:
    """The two axes as one, so that a tap is one gather and all of them are one kernel."""
    *outer, height, width = B.shape_of(x)
    plane = B.reshape(b, x, [*outer, simplify(height * width)])
    lines, columns = (_clamped_places(b, x, window) for window in windows)
    starts = [B.add_axis(b, B.pointwise(b, "mul", line, width), 1) for line in lines]
    places = (B.pointwise(b, "add", start, column) for start in starts for column in columns)
    taps = (b.one("gather", plane, place, axis=len(outer)) for place in places)
    return reduce(lambda a, c: b.one("maximum", c, a), taps)


def _clamped_places(b: Builder, x: Value, window: Window) -> list[Value]:
    """Return the index that each tap of all windows along one axis reads."""
    starts = line_of(b, window.count, window.stride, -window.before)
    last = simplify(B.shape_of(x)[window.axis] - 1)
    places = []
    for offset in range(window.size):
        place = B.pointwise(b, "add", starts, offset)
        if offset < window.before:
            place = B.pointwise(b, "maximum", place, 0)
        if window.after != 0:
            place = B.pointwise(b, "minimum", place, last)
        places.append(place)
    return places


def _max_pool_with_indices(n: int) -> Callable[..., tuple[Value, Value]]:
    def expand(b: Builder, x: Value, kernel: Ints, *settings: Any) -> tuple[Value, Value]:
        defaults: tuple[Any, ...] = ((), 0, 1, False)
        stride, padding, dilation, ceil_mode = (*settings, *defaults[len(settings) :])
        op, kernel = f"max_pool{n}d", each_axis(kernel, n)
        windows = windows_of(b, op, x, kernel, stride, padding, dilation, ceil_mode)
        values = _max_pool(n)(b, x, kernel, stride, padding, dilation, ceil_mode)
        return values, _first_places(b, x, windows)

    expand.__doc__ = f"The maximum of every window of the last {n} axes, and its place in them as one axis."
    return expand


def _first_places(b: Builder, x: Value, windows: Sequence[Window]) -> Value:
    """Return the index of the maximum of every window: the first of equal ones, the last NaN (PyTorch's
    scan)."""
    lengths = [B.shape_of(x)[window.axis] for window in windows]
    weights = [product(lengths[i + 1 :]) for i in range(len(lengths))]
    starts = [line_of(b, window.count, window.stride, -window.before) for window in windows]
    inside = [_first_inside(b, start, window) for start, window in zip(starts, windows, strict=True)]
    axes = list(zip(windows, weights, starts, inside, strict=True))
    best = _padded(b, x, windows, lowest(B.dtype_of(x)))
    if product(window.size for window in windows) <= MAX_TAPS:
        return _scanned(b, best, None, axes, axes)[1]
    places: Value | None = None
    for i in reversed(range(len(axes))):  # axis by axis: the order of the scan is that of the indices
        best, places = _scanned(b, best, places, axes[i : i + 1], axes[i:])
    assert places is not None
    return places


def _scanned(
    b: Builder, x: Value, within: Value | None, axes: Sequence[Any], known: Sequence[Any]
) -> tuple[Value, Value]:
    """Return the maximum of every window along `axes` and its index; `within`: the indices of x's elements
    along later axes. `known`: those and `axes`, each a (window, weight of an index, starts of windows, their
    first inner positions)."""
    windows, weights, starts, _ = zip(*axes, strict=True)
    rank = len(known)
    base = merged_places(b, starts, weights, rank)
    places = merged_places(b, [axis[3] for axis in known], [axis[1] for axis in known], rank)
    best: Value | None = None
    parts = _taps(b, x, windows) if within is None else _taps(b, within, windows)
    for (offsets, part), (_, tap) in zip(parts, _taps(b, x, windows), strict=True):
        moved = sum(w * o * c.dilation for w, o, c in zip(weights, offsets, windows, strict=True))
        place = B.pointwise(b, "add", base, simplify(moved))
        place = place if within is None else B.pointwise(b, "add", place, part)
        best = best if best is not None else B.full(b, lowest(B.dtype_of(x)), B.dtype_of(x), B.shape_of(tap))
        better = b.one("gt", tap, best)
        if is_float(B.dtype_of(x)):
            better = b.one("or", better, b.one("isnan", tap))
        best, places = b.one("where", better, tap, best), B.where(b, better, place, places)
    assert best is not None
    return best, places


def _first_inside(b: Builder, starts: Value, window: Window) -> Value:
    """Return the first position of every window that is not padding before the axis."""
    if window.before == 0:
        return starts
    missing = B.pointwise(b, "sub", window.dilation - 1, starts)
    steps = missing if window.dilation == 1 else B.pointwise(b, "floordiv", missing, window.dilation)
    steps = B.pointwise(b, "mul", B.pointwise(b, "maximum", steps, 0), window.dilation)
    return B.pointwise(b, "add", starts, steps)


def merged_places(
    b: Builder, lines: Sequence[Value], weights: Sequence[DimExpr], rank: int | None = None
) -> Value:
    """Return the sum of weight * position over positions along the first of `rank` axes, as many where it is
    None."""
    terms = [
        along_axis(b, B.pointwise(b, "mul", line, weight), axis, rank or len(lines))
        for axis, (line, weight) in enumerate(zip(lines, weights, strict=True))
    ]
    return reduce(lambda a, c: B.pointwise(b, "add", a, c), terms)


# Mean ---------------------------------------------------------------------------------------------


def _avg_pool(n: int) -> Callable[..., Value]:
    def expand(
        b: Builder,
        x: Value,
        kernel: Ints,
        stride: Ints = (),
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        windows = windows_of(b, f"avg_pool{n}d", x, each_axis(kernel, n), stride, padding, 1, ceil_mode)

        def compute(padded: Value) -> Value:
            total = _over_windows(b, padded, windows, "add", "reduce_sum")
            count = average_divisor(
                b, x, windows, ceil_mode, count_include_pad, divisor_override, B.dtype_of(total)
            )
            if is_float(B.dtype_of(x)):
                total = B.pointwise(b, "add", total, 0.0)  # no zero is negative
                return B.pointwise(b, "div", total, count, dtype=B.dtype_of(total))
            sign = b.one("sign", total)
            if isinstance(count, int) and count < 0:
                count, sign = -count, b.one("neg", sign)
            size = B.pointwise(b, "floordiv", b.one("abs", total), count, dtype=B.dtype_of(total))
            return B.pointwise(b, "mul", size, sign)  # towards zero

        return B.in_f32(b, compute, _padded(b, x, windows, 0))

    expand.__doc__ = f"The mean of every window of the last {n} axes."
    return expand


def average_divisor(
    b: Builder,
    x: Value,
    windows: Sequence[Window],
    ceil_mode: bool,
    with_padding: bool,
    override: int | None,
    dtype: str,
) -> Any:
    """Return what avg_pool divides the sums of its windows by: a number, or one for each in `dtype`."""
    counts_vary = ceil_mode or (not with_padding and any(window.before for window in windows))
    if override is not None or not counts_vary:
        return override or product(window.size for window in windows)
    return _n_elements(b, x, windows, with_padding, dtype)


def _n_elements(b: Builder, x: Value, windows: Sequence[Window], with_padding: bool, dtype: str) -> Value:
    """Return how many elements every window has, with or without those of the padding."""
    rank, counts = len(B.shape_of(x)), []
    for window in windows:
        length, before = B.shape_of(x)[window.axis], window.before if with_padding else 0
        start = line_of(b, window.count, window.stride, -window.before)
        end = B.pointwise(b, "minimum", B.pointwise(b, "add", start, window.size), simplify(length + before))
        start = start if with_padding else B.pointwise(b, "maximum", start, 0)
        counts.append(
            along_axis(b, B.cast_to(b, B.pointwise(b, "sub", end, start), dtype), window.axis, rank)
        )
    return reduce(lambda a, c: B.pointwise(b, "mul", a, c), counts)


# Windows that fill the axis -------------------------------------------------------------------------


def _even_window(axis: int, length: DimExpr, count: DimExpr) -> Window | None:
    """Return the windows of adaptive pooling if they are all equal and do not overlap."""
    if not (isinstance(length, int) and isinstance(count, int) and count and length % count == 0):
        return None
    return Window(axis, count, length // count, length // count)


def _bounds(b: Builder, length: DimExpr, count: DimExpr) -> tuple[Value, Value]:
    """Return the starts and ends of the windows of adaptive pooling: floor(i n / count), ceil((i + 1) n /
    count)."""
    starts = B.pointwise(b, "floordiv", line_of(b, count, length), count)
    ends = B.pointwise(b, "floordiv", line_of(b, count, length, simplify(length + count - 1)), count)
    return starts, ends


def adaptive_sizes(b: Builder, length: DimExpr, count: DimExpr) -> Value:
    """Return how many elements each window of adaptive pooling has."""
    starts, ends = _bounds(b, length, count)
    return B.pointwise(b, "sub", ends, starts)


def _longest(length: DimExpr, count: DimExpr) -> DimExpr:
    """Return the size of the longest window of adaptive pooling, or a bound of it."""
    if isinstance(length, int) and isinstance(count, int):
        return max((-(-(i + 1) * length // count) - i * length // count for i in range(count)), default=1)
    return simplify(floordiv(sympy.sympify(length + count - 1), sympy.sympify(count)) + 1)


def adaptive_axis(b: Builder, x: Value, axis: int, count: DimExpr, pointwise: str, reduction: str) -> Value:
    """Reduce the uneven windows along one axis; of a sum, elements after a window's end count as 0."""
    length, rank = B.shape_of(x)[axis], len(B.shape_of(x))
    starts, ends = _bounds(b, length, count)
    last, longest = B.pointwise(b, "sub", ends, 1), _longest(length, count)

    def elements(offsets: B.Tensorlike, starts: Value, ends: Value, last: Value) -> Value:
        place = B.pointwise(b, "add", starts, offsets)
        taken = b.one("gather", x, B.pointwise(b, "minimum", place, last), axis=axis)
        taken = B.cast_to(b, taken, "f32") if B.dtype_of(x) in ("f16", "bf16") else taken
        if pointwise == "maximum":
            return taken
        inside = B.pointwise(b, "lt", place, ends)
        shape = [*B.shape_of(inside), *[1] * (rank - axis - 1)]
        return B.where(b, B.reshape(b, inside, shape), taken, B.full(b, 0, B.dtype_of(taken)))

    if isinstance(longest, int) and longest <= MAX_TAPS:
        taps = [elements(offset, starts, ends, last) for offset in range(longest)]
        return reduce(lambda a, c: b.one(pointwise, a, c), taps)
    rows = (B.add_axis(b, t, 1) for t in (starts, ends, last))
    return B.reduce(b, reduction, elements(line_of(b, longest), *rows), [axis + 1], False)


def _adaptive_avg_pool(n: int) -> Callable[..., Value]:
    def expand(b: Builder, x: Value, counts: Sequence[DimExpr]) -> Value:
        shape, dtype = B.shape_of(x), B.dtype_of(x)
        first = len(shape) - n
        axes = list(zip(range(first, len(shape)), each_axis(cast(Any, counts), n), strict=True))
        for axis, count in axes:
            if B.is_one(count) or _even_window(axis, shape[axis], count) is not None:
                continue
            x = _uneven_mean(b, x, axis, count)
        ones = [axis for axis, count in axes if B.is_one(count)]
        if ones:
            x = mean_of(b, x, ones, True)
        even = [_even_window(axis, shape[axis], count) for axis, count in axes if not B.is_one(count)]
        windows = [window for window in even if window is not None and window.size > 1]
        return B.cast_to(b, _even_mean(b, x, windows), dtype)

    expand.__doc__ = f"The mean of as many windows as given, which fill each of the last {n} axes."
    return expand


def _even_mean(b: Builder, x: Value, windows: Sequence[Window]) -> Value:
    if not windows:
        return x
    area = float(product(window.size for window in windows))
    return B.in_f32(
        b,
        lambda v: B.pointwise(b, "div", _over_windows(b, v, windows, "add", "reduce_sum"), area),
        x,
    )


def _uneven_mean(b: Builder, x: Value, axis: int, count: DimExpr) -> Value:
    total = adaptive_axis(b, x, axis, count, "add", "reduce_sum")
    sizes = B.cast_to(b, adaptive_sizes(b, B.shape_of(x)[axis], count), B.dtype_of(total))
    return B.pointwise(b, "div", total, along_axis(b, sizes, axis, len(B.shape_of(x))))


def _adaptive_max_pool(n: int) -> Callable[..., tuple[Value, Value]]:
    def expand(b: Builder, x: Value, counts: Sequence[DimExpr]) -> tuple[Value, Value]:
        shape = B.shape_of(x)
        counts = each_axis(cast(Any, counts), n)
        values = x
        for axis, count in enumerate(counts, len(shape) - n):
            values = adaptive_axis(b, values, axis, count, "maximum", "reduce_max")
        values = B.cast_to(b, values, B.dtype_of(x))
        return values, _adaptive_places(b, x, values, counts)

    expand.__doc__ = (
        f"The maximum of as many windows as given, which fill each of the last {n} axes, and where."
    )
    return expand


def _adaptive_places(b: Builder, x: Value, values: Value, counts: Sequence[DimExpr]) -> Value:
    """Return the index of each maximum in its window: the first of equal ones, the last NaN."""
    shape, n = B.shape_of(x), len(counts)
    lengths = shape[len(shape) - n :]
    merged: Value | None = None
    for axis, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        starts, ends = _bounds(b, length, count)
        place = B.pointwise(b, "add", B.add_axis(b, starts, 1), line_of(b, _longest(length, count)))
        place = B.pointwise(b, "minimum", place, B.add_axis(b, B.pointwise(b, "sub", ends, 1), 1))
        sizes = B.shape_of(place)
        spread = [sizes[0] if i == axis else sizes[1] if i == n + axis else 1 for i in range(2 * n)]
        place = B.pointwise(b, "mul", B.reshape(b, place, spread), product(lengths[axis + 1 :]))
        merged = place if merged is None else B.pointwise(b, "add", merged, place)
    assert merged is not None
    places = B.reshape(b, merged, [*counts, product(B.shape_of(merged)[n:])])
    line = B.reshape(b, x, [*shape[: len(shape) - n], product(lengths)])
    rows = b.one("gather", line, places, axis=len(shape) - n)
    best = B.add_axis(b, values, len(shape))
    return B.drop_axis(b, _chosen_places(b, rows, best, places), len(shape))


def _chosen_places(b: Builder, rows: Value, best: Value, places: Value) -> Value:
    high = int(np.iinfo(np.int64).max)
    first = b.one("reduce_min", B.where(b, B.pointwise(b, "eq", rows, best), places, high))
    if not is_float(B.dtype_of(rows)):
        return first
    last = b.one("reduce_max", B.where(b, b.one("isnan", rows), places, -1))
    return B.where(b, b.one("isnan", best), last, first)


COMPOSITES: tuple[Composite, ...] = (
    *(Composite((f"aten.max_pool{n}d.default",), _max_pool(n)) for n in (1, 2, 3)),
    *(Composite((f"aten.max_pool{n}d_with_indices.default",), _max_pool_with_indices(n)) for n in (1, 2, 3)),
    *(Composite((f"aten.avg_pool{n}d.default",), _avg_pool(n)) for n in (1, 2, 3)),
    Composite(("aten.adaptive_avg_pool1d.default",), _adaptive_avg_pool(1)),
    *(
        Composite((f"aten.adaptive_avg_pool{n}d.default", f"aten._adaptive_avg_pool{n}d.default"), expand)
        for n, expand in ((2, _adaptive_avg_pool(2)), (3, _adaptive_avg_pool(3)))
    ),
    *(Composite((f"aten.adaptive_max_pool{n}d.default",), _adaptive_max_pool(n)) for n in (1, 2, 3)),
)
OPS: tuple[Any, ...] = ()
