"""The buffers of a product of which a tile needs only some lines: see `vm.program.Lines`."""

from __future__ import annotations

from collections.abc import Sequence

from ....vm.program import Lines
from ...spec import Index, Size
from .spec import Matmul, ProductSpec


def lines_of_rows(spec: Matmul, tile: int) -> tuple[Lines, ...]:
    """Return the rows `lines` of a product whose rows are the lines: A's, and those of the epilogue.

    `tile`: the one of the kernel's `tiles` that counts rows.
    """
    product = spec.product
    found = lines_of_results(spec, tile, product.m)
    loops = range(len(product.batch) + 1)
    sizes = (*product.batch, product.m, product.k)
    is_plain = product.a >= 0 and not spec.skips_zeros and not is_read_again(spec)
    if found and is_plain and _is_along(spec, product.a, product.a_index, (*loops, len(loops) + 1), sizes):
        return (Lines(product.a, tile, product.m), *found)
    return found


def lines_of_results(spec: ProductSpec, tile: int, height: Size) -> tuple[Lines, ...]:
    """Return the rows `lines` of buffers that the epilogue reads and writes in the order of results; () if it
    writes a buffer in another order. `height`: the lines of an image of results."""
    product = spec.product
    loops, sizes = range(len(product.batch) + 2), (*product.batch, product.m, product.n)
    is_along: dict[int, bool] = {}
    for step in product.epilogue:
        if step.op in ("load", "store") and step.buffer is not None:
            is_own = step.buffer in (product.a, product.b)
            fits = not is_own and _is_along(spec, step.buffer, step.index, loops, sizes)
            is_along[step.buffer] = is_along.get(step.buffer, True) and fits
    if not all(is_along.get(i) for i, buffer in enumerate(spec.buffers) if buffer.is_output):
        return ()
    return tuple(Lines(buffer, tile, height) for buffer, fits in sorted(is_along.items()) if fits)


def is_read_again(spec: ProductSpec) -> bool:
    """Whether the epilogue also reads the buffer of A's rows."""
    return any(step.op == "load" and step.buffer == spec.product.a for step in spec.product.epilogue)


def _is_along(
    spec: ProductSpec, buffer: int, index: Sequence[Index], loops: Sequence[int], sizes: Sequence[Size]
) -> bool:
    """Whether `index` traverses `buffer` from its first element to its last, by `loops` of `sizes`."""
    shape = spec.buffers[buffer].shape
    wanted = [(Index(loop=loop), size) for loop, size in zip(loops, sizes, strict=True) if size != 1]
    return [pair for pair in zip(index, shape, strict=True) if pair[1] != 1] == wanted
