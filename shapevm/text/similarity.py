"""Scores and reduced forms of embeddings, in numpy, as sentence-transformers defines them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np

from ..vm.errors import ArgumentError

Array = np.ndarray[Any, Any]
Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
LEAST_NORM = 1e-12
FEW = 100  # embeddings; ranges of fewer are said to be unstable
_LOG = logging.getLogger("shapevm")


def normalized(x: Array) -> Array:
    """Return rows of length 1 along the last axis."""
    norms = np.sqrt((x * x).sum(-1, keepdims=True))
    return np.asarray(x / np.maximum(norms, LEAST_NORM).astype(x.dtype))


#: By name: the scores of rows of `a` with rows of `b`, whose axes broadcast.
SCORES: dict[str, Callable[[Array, Array], Array]] = {
    "cosine": lambda a, b: (normalized(a) * normalized(b)).sum(-1),
    "dot": lambda a, b: (a * b).sum(-1),
    "euclidean": lambda a, b: -np.sqrt(((a - b) ** 2).sum(-1)),
    "manhattan": lambda a, b: -np.abs(a - b).sum(-1),
}
#: Those that are a product of matrices.
PRODUCTS: dict[str, Callable[[Array], Array]] = {"cosine": normalized, "dot": lambda x: x}


def _floats(x: Any) -> Array:
    array = np.asarray(x)
    return array if array.dtype.kind == "f" else array.astype(np.float32)


def similarity(name: str, first: Any, second: Any) -> Array:
    """Return the scores of each row of `first` with each of `second`: f32[n, m]."""
    a, b = np.atleast_2d(_floats(first)), np.atleast_2d(_floats(second))
    if name in PRODUCTS:
        prepare = PRODUCTS[name]
        return np.asarray(prepare(a) @ prepare(b).T)
    return np.stack([SCORES[name](row, b) for row in a]) if len(a) else np.zeros((0, len(b)), a.dtype)


def similarity_pairwise(name: str, first: Any, second: Any) -> Array:
    """Return the score of each row of `first` with the same row of `second`: f32[n]."""
    return np.asarray(SCORES[name](_floats(first), _floats(second)))


def check_precision(precision: Any) -> None:
    """Raise ArgumentError for an unknown precision."""
    if precision not in get_args(Precision):
        raise ArgumentError(f"precision {precision!r} is unknown; known are {', '.join(get_args(Precision))}")


def quantised(embeddings: Array, precision: Precision) -> Array:
    """Return embeddings f32[n, width] in a precision: for int8 and uint8 each column's range among these
    embeddings is cut into 255 steps; for binary and ubinary a bit says that a number is above 0, eight to a
    byte. Raises ArgumentError for the range of a single embedding."""
    if precision == "float32" or not len(embeddings):
        return embeddings
    if precision in ("binary", "ubinary"):
        bits = np.packbits(embeddings > 0, axis=-1)
        return bits if precision == "ubinary" else (bits.astype(np.int16) - 128).astype(np.int8)
    if len(embeddings) == 1:
        raise ArgumentError(
            f"precision {precision!r}: one embedding has no range; encode several texts at once"
        )
    if len(embeddings) < FEW:
        _LOG.warning("the ranges of %s are those of only %d embeddings", precision, len(embeddings))
    least = embeddings.min(axis=0)
    steps = (embeddings.max(axis=0) - least) / 255
    steps = np.where(steps == 0, 1, steps)
    found = np.clip(np.floor((embeddings - least) / steps), 0, 255)
    return found.astype(np.uint8) if precision == "uint8" else (found - 128).astype(np.int8)
