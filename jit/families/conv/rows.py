"""Whether a convolution has as many rows as its images have outputs.

A launch gives both, the outputs as sizes of the images and of `window.out`, the rows as those of a product.
Code counts by either and divides by sizes of outputs, so none of it may run where the two differ or are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ...llvm.abi import ERROR_ROWS, resolve
from ...llvm.access import report
from ...llvm.function import Function, Int, Value
from ...spec import Size, Unknown
from .spec import Conv

GREATEST = (1 << 63) - 1  # what counts that are greater, or have a negative factor, are taken for


def sizes_of_outputs(spec: Conv[Unknown]) -> tuple[Size[Unknown], ...]:
    """Return the sizes whose product is the number of all images' outputs."""
    return (spec.buffers[spec.product.a].shape[0], *spec.window.out)


def sizes_of_rows(spec: Conv[Unknown]) -> tuple[Size[Unknown], ...]:
    """Return the sizes whose product is the number of rows."""
    return (*spec.product.batch, spec.product.m)


def known_count(sizes: Sequence[object]) -> int | None:
    """Return the product of sizes that are all known; else None."""
    known = [int(size) for size in sizes if isinstance(size, int)]
    return prod(known) if len(known) == len(sizes) else None


def where_equal(f: Function, spec: Conv, sizes: Sequence[Int], body: Callable[[], None]) -> None:
    """Emit `body` so that it runs only where there are as many rows as outputs, and some; where the numbers
    differ the kernel reports ERROR_ROWS. Call in the entry block. Raises ValueError for known ones that
    differ."""
    outputs = [resolve(size, sizes) for size in sizes_of_outputs(spec)]
    rows = [resolve(size, sizes) for size in sizes_of_rows(spec)]
    f.either(_has_rows(f, outputs, rows), body, lambda: None)


def _has_rows(f: Function, outputs: Sequence[Int], rows: Sequence[Int]) -> Value | bool:
    """Return whether there are as many rows as outputs, and some; see `where_equal`."""
    known_outputs, known_rows = known_count(outputs), known_count(rows)
    if known_outputs is not None and known_rows is not None:
        if known_outputs != known_rows:
            raise ValueError(f"conv kernel: {known_rows} rows for {known_outputs} outputs of its images")
        return known_rows > 0 or Value("i1", "false")  # code of no use, which may divide by 0
    n_outputs, n_rows = _count(f, outputs), _count(f, rows)
    equal = f.op("i1", f"icmp eq i64 {n_outputs.name}, {n_rows.name}")
    right = f.op("i1", f"and i1 {equal.name}, {f.less(n_outputs, GREATEST).name}")
    with f.when(f.op("i1", f"xor i1 {right.name}, true")):
        report(f, ERROR_ROWS, n_rows, n_outputs)
    return f.op("i1", f"and i1 {right.name}, {f.less(0, n_outputs).name}")


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
