"""The rounding of weights and activations of products, and its outcome for each weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class RoundedWeight:
    """The outcome for a weight of [steps, columns].

    `format`: its storage, such as "int4, groups of 32". `bytes`: of its numbers and scales. `error`: the norm
    of the rounding error relative to the weight's norm; for white-noise inputs also the relative error of the
    product. `reason`: why the format is not the requested one, "" if it is.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    bytes: int
    error: float
    reason: str = ""


@dataclass(frozen=True)
class Activation:
    """The statistics of an activation [.., C] over samples: for each channel the least and greatest value,
    and the mean of the squares, in f64."""

    low: np.ndarray
    high: np.ndarray
    squares: np.ndarray

    def joined(self, other: Activation, share: float) -> Activation:
        """Return the statistics of both sets of samples together; `share`: the other one's share of all
        samples."""
        squares = self.squares * (1 - share) + other.squares * share
        return Activation(np.minimum(self.low, other.low), np.maximum(self.high, other.high), squares)


@dataclass
class Rounding:
    """`dtype`: the dtype to which weights of matrix products are rounded (f32: no rounding), see
    `compiler.lower.weights` and, for int8 and int4, `compiler.passes.quantise_weights`. `max_error`: weights
    with a greater error are rounded less, None: no limit. `weights`: the outcome of each, by name.
    `activations`: the statistics of each activation that `compiler.passes.quantise_activations` finds, in its
    order; empty: none was observed yet; None: activations are not rounded. `reasons`: why a weight's
    activation is not rounded, by the weight's name. `in_f32`: names of weights that are held in f32 because
    their products are faster so. `targets`: the targets that may decide how products are rounded; empty: none
    may. `precision`: the dtype to which operands of products may be rounded, see
    `compiler.passes.round_products`; bf16x6: rows of f32 may be multiplied on AMX tiles. `is_portable`:
    results have the same bits on all targets."""

    dtype: str = "f32"
    max_error: float | None = None
    weights: dict[str, RoundedWeight] = field(default_factory=dict)
    activations: Sequence[Activation] | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    in_f32: set[str] = field(default_factory=set)
    targets: Sequence[str] = ()
    precision: str = "f32"
    is_portable: bool = False

    def rows(self) -> list[dict[str, Any]]:
        """Return the weights as JSON data."""
        return [asdict(weight) for weight in self.weights.values()]
