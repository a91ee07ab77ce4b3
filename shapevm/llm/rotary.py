"""Rotary positions: the frequencies of a config, with their scaling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..vm.schema import BOOLEAN, NULL, MapOf, Number, OneOf, Refused, Schema, Text

#: A value of `rope_scaling` or `rope_parameters`: settings, or settings by kind of layer.
_VALUE = OneOf((Number(), Text(), BOOLEAN, NULL), "a number or a text")
ROPE: Schema = MapOf(OneOf((_VALUE, MapOf(_VALUE, most=32)), "settings of rotary positions"), most=32)


@dataclass(frozen=True)
class Rotary:
    """Rotation of the first `size` numbers of a head. `scaling`: its kind, "default", "linear", "llama3" or
    "divided", by a factor for each frequency, with its factors."""

    base: float
    size: int
    scaling: str = "default"
    factors: tuple[float, ...] = field(default=())

    def frequencies(self) -> np.ndarray[Any, Any]:
        """Return the angles per position, f32[size / 2]."""
        powers = np.arange(0, self.size, 2, dtype=np.float32) / np.float32(self.size)
        plain = (1.0 / np.power(np.float32(self.base), powers, dtype=np.float32)).astype(np.float32)
        return _SCALINGS[self.scaling](plain, *self.factors).astype(np.float32)


def _llama3(
    plain: np.ndarray[Any, Any], factor: float, low: float, high: float, length: float
) -> np.ndarray[Any, Any]:
    """Divide the low frequencies by `factor`, keep the high ones, and blend those between."""
    waves = 2 * math.pi / plain
    share = np.clip((length / waves - low) / (high - low), 0, 1)
    return np.asarray((1 - share) * plain / factor + share * plain)


def _divided(plain: np.ndarray[Any, Any], *divisors: float) -> np.ndarray[Any, Any]:
    return plain / np.array(divisors, np.float32)


_SCALINGS: Mapping[str, Callable[..., Any]] = {
    "default": lambda plain: plain,
    "linear": lambda plain, factor: plain / factor,
    "llama3": _llama3,
    "divided": _divided,
}
#: The keys of each kind's factors.
_FACTORS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


def rotary(said: Mapping[str, Any], kind: str, size: int) -> Rotary:
    """Return the rotation of layers of `kind` from a config's keys. Raises Refused for an unknown one."""
    rope = said.get("rope_parameters") or said.get("rope_scaling") or {}
    if kind in rope:
        rope = rope[kind]
    elif kind == "sliding_attention" and "rope_local_base_freq" in said:
        rope = {"rope_theta": said["rope_local_base_freq"]}
    if not isinstance(rope, Mapping) or any(isinstance(each, Mapping) for each in rope.values()):
        raise Refused(f"its rotary positions have no settings for layers of {kind}")
    base = _number(rope, "rope_theta", said.get("rope_theta", 1e4))
    share = _number(rope, "partial_rotary_factor", said.get("partial_rotary_factor", 1.0))
    scaling = rope.get("rope_type") or rope.get("type") or "default"
    if scaling not in _FACTORS:
        known = ", ".join(_FACTORS)
        raise Refused(f"the scaling {scaling!r:.40} of rotary positions is unknown; known are {known}")
    rotated = int(size * share)
    if base <= 0 or not 0 < share <= 1 or rotated % 2 or not rotated:
        raise Refused(f"rotary positions have base {base} and rotate {rotated} of {size} numbers of a head")
    factors = tuple(_number(rope, key, 0.0) for key in _FACTORS[scaling])
    if any(each <= 0 for each in factors) or (scaling == "llama3" and factors[1] >= factors[2]):
        raise Refused(
            f"the scaling {scaling} of rotary positions has the factors {factors}, which are no scaling's"
        )
    return Rotary(base, rotated, scaling, factors)


def _number(rope: Mapping[str, Any], key: str, default: float) -> float:
    found = rope.get(key)
    if found is None:
        return float(default)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise Refused(f"{key} is {found!r:.40}; it must be a number")
    return float(found)
