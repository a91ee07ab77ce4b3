"""How the next token of a sequence is chosen from its logits."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ..vm.errors import ArgumentError


@dataclass(frozen=True)
class Sampling:
    """How a sequence goes on.

    Args:
        max_new_tokens: The most tokens that are added.
        temperature: Divides the logits; 0: the greatest logit's token.
        top_k: How many of the most probable tokens remain; 0: all.
        top_p: The most probable tokens remain whose probabilities reach this share together.
        min_p: Tokens remain whose probability is at least this share of the greatest one.
        repetition_penalty: Lowers the logits of tokens that are in the sequence: positive ones are divided by
            it, negative ones multiplied.
        seed: With the position of a token in its sequence it determines the random number.
        stop_tokens: Tokens that end the sequence; they are not returned.
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    stop_tokens: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for each in fields(self)[:-1]:
            value, (is_whole, low, high) = getattr(self, each.name), _BOUNDS[each.name]
            kinds: Any = int if is_whole else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
                kind = "a whole number" if is_whole else "a number"
                raise ArgumentError(f"{each.name} is {value!r:.40}; it must be {kind} from {low} to {high}")


#: Whether a field is a whole number, its least and its greatest value.
_BOUNDS = {
    "max_new_tokens": (True, 0, 1 << 24), "temperature": (False, 0, 1e4), "top_k": (True, 0, 1 << 31),
    "top_p": (False, 0, 1), "min_p": (False, 0, 1), "repetition_penalty": (False, 1e-4, 1e4),
    "seed": (True, 0, (1 << 64) - 1),
}  # fmt: skip
