"""What the weights of products are rounded to, and their activations; and what became of each weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class RoundedWeight:
    """What became of a weight of [steps, columns].

    `format`: how it is held, such as "int4, groups of 32". `bytes`: of its numbers and scales. `error`: the
    norm of what rounding changed, as a share of the weight's norm; for inputs that are noise also the share
    of the product that is wrong. `reason`: why it is not what was asked for, "" where it is.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    bytes: int
    error: float
    reason: str = ""


@dataclass(frozen=True)
class Activation:
    """What samples had as an activation [.., C]: for each channel the least and greatest value, and the mean
    of the squares, in f64."""

    low: np.ndarray
    high: np.ndarray
    squares: np.ndarray

    def joined(self, other: Activation, share: float) -> Activation:
        """Return what both sets of samples had together; `share`: that of the other one in all of them."""
        squares = self.squares * (1 - share) + other.squares * share
        return Activation(np.minimum(self.low, other.low), np.maximum(self.high, other.high), squares)


@dataclass
class Rounding:
    """`dtype`: what weights of matrix products are rounded to (f32: nothing), see `compiler.lower.weights`
    and, for int8 and int4, `compiler.passes.quantise_weights`. `max_error`: weights whose error would be
    greater are rounded less, None: no limit. `weights`: what became of each, by name. `activations`: what
    samples had as each activation that `compiler.passes.quantise_activations` finds, in its order; empty:
    none was observed yet; None: activations are not rounded. `reasons`: why a weight's activation is not, by
    the weight's name. `in_f32`: names of weights by which products are faster in f32, and which are held so.
    `targets`: what the program is compiled for. `precision`: what operands of products may be rounded to, see
    `compiler.passes.round_products`."""

    dtype: str = "f32"
    max_error: float | None = None
    weights: dict[str, RoundedWeight] = field(default_factory=dict)
    activations: Sequence[Activation] | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    in_f32: set[str] = field(default_factory=set)
    targets: Sequence[str] = ()
    precision: str = "f32"

    def rows(self) -> list[dict[str, Any]]:
        """Return the weights as JSON data."""
        return [asdict(weight) for weight in self.weights.values()]
