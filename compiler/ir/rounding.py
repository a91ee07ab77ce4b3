"""What the weights of matrix products are rounded to, and what became of each of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


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


@dataclass
class Rounding:
    """`dtype`: what weights of matrix products are rounded to (f32: nothing), see `compiler.lower.weights`
    and, for int8 and int4, `compiler.passes.quantise_weights`. `max_error`: weights whose error would be
    greater are rounded less, None: no limit. `weights`: what became of each, by name."""

    dtype: str = "f32"
    max_error: float | None = None
    weights: dict[str, RoundedWeight] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """Return the weights as JSON data."""
        return [asdict(weight) for weight in self.weights.values()]
