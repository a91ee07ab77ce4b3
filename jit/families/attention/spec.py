"""What an Attention computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic

from ...spec import Body, Index, KernelSpec, Part, Size, Unknown


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
    """Where queries, keys, values and results lie: the buffer of each, and one Index per axis of it.

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
    """How weights are made of the scores.

    `body`: domain (batch.., i, j), `acc` (f32) is the score times `scale`; its last instruction's value is
    the masked score (add a bias, select -inf ...); no stores. An empty body is the identity.
    A row whose scores are all -inf gives NaN where PyTorch's softmax does (safe_softmax=True: 0, as SDPA).
    """

    scale: float
    safe_softmax: bool
    body: Body[Unknown]


@dataclass(frozen=True)
class Attention(KernelSpec[Unknown]):
    """out[b.., i, :] = softmax over j of body(scale * q[b.., i, :] . k[b.., j, :]) times v[b.., j, :].

    Loops: batch.., i (len(batch)), j (len(batch)+1).
    """

    family: ClassVar[str] = "attention"
    extents: Extents[Unknown]
    layout: Layout[Unknown]
    softmax: Softmax[Unknown]
