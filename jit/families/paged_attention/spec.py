"""The spec of PagedAttention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...spec import BufferAccess, KernelSpec, Unknown, whole

PAGE = 16  # positions of a page
STORED = ("f32", "bf16", "i8")  # dtypes of keys and values
SCALED = "i8"  # the dtype whose numbers have scales
MAX_SIZE = 512  # of a head: its products are straight-line code
MAX_HEADS = 4096


@dataclass(frozen=True)
class PagedAttention(KernelSpec[Unknown]):
    """Causal attention of new tokens of sequences to the keys and values in the pages of their sequence.

    Buffers: query [tokens, heads, size], keys [slots, kv_heads, size], values [slots, kv_heads, v_size],
    table i32[sequences, pages], offsets i64, lengths i64[sequences], for keys and values in i8 the scales
    f32[slots, kv_heads, 2], output [tokens, heads, v_size]. The numbers of heads and their sizes are ints.
    Sequence s has the tokens from offset s to offset s + 1, which are the last of its `lengths[s]` positions.
    Position p is slot `PAGE` * table[s, p // PAGE] + p % PAGE. With scales, a head's keys at a slot are
    multiplied by the first one, its values by the second.
    A token sees the last `window` positions up to its own, with 0 all. A score is its product times
    `scale`, then, unless `soft_cap` is 0, soft_cap * tanh(score / soft_cap).

    Numbers out of range count as the nearest in range (offsets ascend from 0 to `tokens`, lengths end with
    the table, pages with the slots). Tokens that see no key, and those of no sequence, give 0.
    """

    family: ClassVar[str] = "paged_attention"
    scale: float
    window: int
    soft_cap: float

    @property
    def is_scaled(self) -> bool:
        """Whether keys and values have scales."""
        return self.buffers[1].dtype == SCALED


def accesses(spec: PagedAttention) -> tuple[BufferAccess, ...]:
    """Return a kernel's accesses in the order of its buffers; all positions that data decide are clamped."""
    dtypes = [("f32",), STORED, STORED, ("i32",), ("i64",), ("i64",), *[("f32",)] * (spec.is_scaled + 1)]
    last = len(dtypes) - 1
    return tuple(whole(spec, i, each, is_written=i == last) for i, each in enumerate(dtypes))
