"""The operators, a file for each kind; importing them fills `rows.ROWS`."""

from __future__ import annotations

from . import (
    attention,
    control,
    elementwise,
    fourier,
    indexing,
    microsoft,
    normalise,
    pool,
    products,
    quantised,
    random,
    recurrent,
    reduce,
    regions,
    resize,
    shapes,
)

__all__ = [
    "attention", "control", "elementwise", "fourier", "indexing", "microsoft", "normalise", "pool",
    "products", "quantised", "random", "recurrent", "reduce", "regions", "resize", "shapes",
]  # fmt: skip
