"""What an Attention computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...spec import Body, Index, KernelSpec, Size, Unknown


@dataclass(frozen=True)
class Attention(KernelSpec[Unknown]):
    """out[b.., i, :] = softmax over j of body(scale * q[b.., i, :] . k[b.., j, :]) times v[b.., j, :].

    `batch`: the loops that head and batch make, e.g. (B, H).
    Loops: batch.., i (len(batch)), j (len(batch)+1).
    `q_index`, `k_index`, `v_index`, `out_index`: one Index per axis of that buffer; the head dimension is
    loop len(batch)+2 and must be the last axis (stride 1) of each buffer. Any axis order otherwise
    ([B, L, H, D] in place).
    `body`: domain (batch.., i, j), `acc` (f32) is the scaled score; its last instruction's value is the
    masked score (add a bias, select -inf ...); no stores. An empty body is the identity.
    A row whose scores are all -inf gives NaN where PyTorch's softmax does (safe_softmax=True: 0, as SDPA).
    """

    family: ClassVar[str] = "attention"
    batch: tuple[Size[Unknown], ...]
    q_len: Size[Unknown]
    k_len: Size[Unknown]
    head_dim: Size[Unknown]
    v_dim: Size[Unknown]
    q: int
    k: int
    v: int
    out: int
    q_index: tuple[Index[Unknown], ...]
    k_index: tuple[Index[Unknown], ...]
    v_index: tuple[Index[Unknown], ...]
    out_index: tuple[Index[Unknown], ...]
    scale: float
    safe_softmax: bool
    body: Body[Unknown]
