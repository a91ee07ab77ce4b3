"""Whether a convolution has as many rows as its images have outputs, and as many steps as taps of channels.

A launch passes both, the outputs as sizes of the images and of `window.out`, the rows as those of a product.
Code counts by either and divides by sizes of outputs, so it must not run if the two differ or are 0. The same
holds for the channels under the taps and the steps, if channels are known only at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ...llvm.abi import ERROR_ROWS, resolve
from ...llvm.access import report
from ...llvm.function import Function, Int, Value
from ...spec import Size, Unknown
from .spec import Conv

Sizes = tuple[Size[Unknown], ...]
GREATEST = (1 << 63) - 1  # replaces greater counts, and those with a negative factor


def channels_of(spec: Conv[Unknown]) -> Size[Unknown]:
    """Return the channels of an image."""
    return spec.buffers[spec.product.a].shape[1 if spec.planes else -1]


def counts_of(spec: Conv[Unknown]) -> tuple[tuple[Sizes[Unknown], Sizes[Unknown]], ...]:
    """Return pairs of sizes whose products must be equal: those of all images' outputs and of all rows, those
    of all taps' channels and of all groups' steps."""
    given, window = spec.product, spec.window
    outputs = (spec.buffers[given.a].shape[0], *window.out)
    taps = (prod(window.kernel), channels_of(spec))
    return (outputs, (*given.batch, given.m)), (taps, (given.k, window.groups))


def known_count(sizes: Sequence[object]) -> int | None:
    """Return the product of sizes that are all known; else None."""
    known = [int(size) for size in sizes if isinstance(size, int)]
    return prod(known) if len(known) == len(sizes) else None


def where_equal(f: Function, spec: Conv, sizes: Sequence[Int], body: Callable[[], None]) -> None:
    """Emit `body` so that it runs only if the numbers of `counts_of` are equal and there are rows; if they
    differ the kernel reports ERROR_ROWS. Call in the entry block. Raises ValueError for known ones that
    differ."""
    (outputs, rows), (taps, steps) = (
        [[resolve(size, sizes) for size in side] for side in pair] for pair in counts_of(spec)
    )
    has_steps, has_rows = _are_equal(f, taps, steps, 0), _are_equal(f, outputs, rows, 1)
    is_fit = has_rows if has_steps is True else f.op("i1", f"and i1 {_name(has_steps)}, {_name(has_rows)}")
    f.either(is_fit, body, lambda: None)


def _name(condition: Value | bool) -> str:
    return condition.name if isinstance(condition, Value) else "true"


def _are_equal(f: Function, outputs: Sequence[Int], rows: Sequence[Int], least: int) -> Value | bool:
    """Return whether two products are equal, and not below `least`; see `where_equal`."""
    known_outputs, known_rows = known_count(outputs), known_count(rows)
    if known_outputs is not None and known_rows is not None:
        if known_outputs != known_rows:
            raise ValueError(f"conv kernel: {known_rows} rows for {known_outputs} outputs of its images")
        return known_rows >= least or Value("i1", "false")  # useless code that may divide by 0
    n_outputs, n_rows = _count(f, outputs), _count(f, rows)
    equal = f.op("i1", f"icmp eq i64 {n_outputs.name}, {n_rows.name}")
    right = f.op("i1", f"and i1 {equal.name}, {f.less(n_outputs, GREATEST).name}")
    with f.when(f.op("i1", f"xor i1 {right.name}, true")):
        report(f, ERROR_ROWS, n_rows, n_outputs)
    return f.op("i1", f"and i1 {right.name}, {f.less(least - 1, n_outputs).name}")


def _count(f: Function, sizes: Sequence[Int]) -> Value:
    """Return the product of sizes, at most GREATEST."""
    count: Value | None = None
    for size in map(f.i64, sizes):
        if count is None:
            count = size
            continue
        pair = f.call("{ i64, i1 }", "llvm.umul.with.overflow.i64", count, size)
        product = f.op("i64", f"extractvalue {pair.type} {pair.name}, 0")
        is_over = f.op("i1", f"extractvalue {pair.type} {pair.name}, 1")
        count = f.select(is_over, GREATEST, product)
    assert count is not None
    return f.call("i64", "llvm.umin.i64", count, f.i64(GREATEST))  # a negative number is above it
