"""The work of a launch of a code object, by its dims: sums of products of sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .program import Dim, KernelObject, Term

LAUNCH_NS, UNIT_NS = 300.0, 0.02  # per launch, per flop or byte, if nothing was measured


def product_terms(terms: Iterable[Term], dims: Sequence[int]) -> int:
    """Return the sum of factor * product(sizes) over `terms` (a code object's scratch or cost)."""
    total = 0
    for factor, sizes in terms:
        for size in sizes:
            factor *= dims[size.index] if isinstance(size, Dim) else size
        total += factor
    return total


def work_of(o: KernelObject) -> Callable[[Sequence[int]], int]:
    """Return the work of a launch by its dims, flops or bytes, from a code object's own terms."""

    def work(dims: Sequence[int]) -> int:
        n_tiles = 1
        for size, divisor in o.work.tiles:
            n_tiles *= -(-product_terms([(1, (size,))], dims) // divisor)
        return product_terms(o.work.cost, dims) * n_tiles

    return work
