"""The spec of PagedAttention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ...spec import BufferAccess, KernelSpec, Unknown, whole

PAGE = 16  # positions of a page
STORED = ("f32", "bf16")  # dtypes of keys and values
MAX_SIZE = 512  # of a head: its products are straight-line code
MAX_HEADS = 4096


@dataclass(frozen=True)
class PagedAttention(KernelSpec[Unknown]):
    """Causal attention of new tokens of sequences to the keys and values in the pages of their sequence.

    Buffers: query [tokens, heads, size], keys [slots, kv_heads, size], values [slots, kv_heads, v_size],
    table i32[sequences, pages], offsets i64, lengths i64[sequences], output [tokens, heads, v_size]. The
    numbers of heads and their sizes are ints. Sequence s has the tokens from offset s to offset s + 1, which
    are the last of its `lengths[s]` positions. Position p is slot `PAGE` * table[s, p // PAGE] + p % PAGE.
    A token sees the last `window` positions up to its own, with 0 all. A score is its product times
    `scale`, then, unless `soft_cap` is 0, soft_cap * tanh(score / soft_cap).

    Numbers out of range count as the nearest in range (offsets ascend from 0 to `tokens`, lengths end with
    the table, pages with the slots). Tokens that see no key, and those of no sequence, give 0.
    """

    family: ClassVar[str] = "paged_attention"
    scale: float
    window: int
    soft_cap: float


class Accesses(NamedTuple):
    """A kernel's accesses."""

    query: BufferAccess
    keys: BufferAccess
    values: BufferAccess
    table: BufferAccess
    offsets: BufferAccess
    lengths: BufferAccess
    out: BufferAccess


def accesses(spec: PagedAttention) -> Accesses:
    """Return a kernel's accesses; all positions that data decide are clamped."""
    query, keys, values = (whole(spec, i, each) for i, each in enumerate((("f32",), STORED, STORED)))
    table, offsets, lengths = whole(spec, 3, ("i32",)), whole(spec, 4, ("i64",)), whole(spec, 5, ("i64",))
    out = whole(spec, 6, ("f32",), is_written=True)
    return Accesses(query, keys, values, table, offsets, lengths, out)
