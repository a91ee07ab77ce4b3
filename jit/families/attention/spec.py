"""The spec of Attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple

from ...spec import Body, BufferAccess, Index, KernelSpec, Part, Size, Unknown


@dataclass(frozen=True)
class Extents(Part, Generic[Unknown]):
    """The sizes: `batch` are the loops that head and batch make, e.g. (B, H)."""

    batch: tuple[Size[Unknown], ...]
    q_len: Size[Unknown]
    k_len: Size[Unknown]
    head_dim: Size[Unknown]
    v_dim: Size[Unknown]


@dataclass(frozen=True)
class Layout(Part, Generic[Unknown]):
    """The layout of queries, keys, values and results: the buffer of each, and one Index per axis of it.

    The head dimension is loop len(batch)+2 and must be the last axis (stride 1) of each buffer. Any axis
    order otherwise ([B, L, H, D] in place).
    """

    q: int
    k: int
    v: int
    out: int
    q_index: tuple[Index[Unknown], ...]
    k_index: tuple[Index[Unknown], ...]
    v_index: tuple[Index[Unknown], ...]
    out_index: tuple[Index[Unknown], ...]


@dataclass(frozen=True)
class Softmax(Part, Generic[Unknown]):
    """The computation of weights from scores.

    `body`: domain (batch.., i, j), `acc` (f32) is the score times `scale`; its last instruction's value is
    the masked score (add a bias, select -inf ...); no stores. An empty body is the identity.
    A row whose scores are all -inf gives NaN like PyTorch's softmax (safe_softmax=True: 0, as SDPA).
    """

    scale: float
    safe_softmax: bool
    body: Body[Unknown]


@dataclass(frozen=True)
class Segments(Part, Generic[Unknown]):
    """Segments of tokens, each of which attends to itself alone.

    `offsets`: the buffer of their bounds, i64; -1: there are no segments. Loop 0 runs over the segments,
    `q_len` = `k_len` is the length of the longest, and loops i and j are positions within one; but in the
    accesses of q, k, v and out they run over all `tokens`. Segment s begins at the greatest of the offsets 0
    to s, and ends where the next one begins, the last one at the last offset; all at most at `tokens`. Of a
    segment that is longer than `q_len` the rest is in no segment. Results of tokens in no segment are 0.
    """

    offsets: int = -1
    tokens: Size[Unknown] = 0


@dataclass(frozen=True)
class Attention(KernelSpec[Unknown]):
    """out[b.., i, :] = softmax over j of body(scale * q[b.., i, :] . k[b.., j, :]) times v[b.., j, :].

    Loops: batch.., i (len(batch)), j (len(batch)+1).
    """

    family: ClassVar[str] = "attention"
    extents: Extents[Unknown]
    layout: Layout[Unknown]
    softmax: Softmax[Unknown]
    segments: Segments[Unknown] = Segments()

    @property
    def is_segmented(self) -> bool:
        """Whether tokens attend within segments."""
        return self.segments.offsets >= 0

    @property
    def positions(self) -> tuple[Size[Unknown], ...]:
        """The loops of the body: batch.., i, j."""
        return (*self.extents.batch, self.extents.q_len, self.extents.k_len)


class Accesses(NamedTuple):
    """A kernel's accesses besides its body's loads."""

    q: BufferAccess
    k: BufferAccess
    v: BufferAccess
    out: BufferAccess


def accesses(spec: Attention) -> Accesses:
    """Return a kernel's accesses besides its body's loads."""
    extents, lie = spec.extents, spec.layout
    tokens = spec.segments.tokens
    outer = (*extents.batch, tokens, tokens) if spec.is_segmented else spec.positions
    of_scores, of_values = (*outer, extents.head_dim), (*outer, extents.v_dim)
    return Accesses(
        BufferAccess(lie.q, lie.q_index, of_scores, ("f32",)),
        BufferAccess(lie.k, lie.k_index, of_scores, ("f32",)),
        BufferAccess(lie.v, lie.v_index, of_values, ("f32",)),
        BufferAccess(lie.out, lie.out_index, of_values, ("f32",), is_written=True),
    )  # fmt: skip


def offsets_access(spec: Attention) -> BufferAccess:
    """Return the access of the segments' offsets; that of the next segment is limited to the last one."""
    return BufferAccess(spec.segments.offsets, (Index(loop=0),), spec.extents.batch, ("i64",))
