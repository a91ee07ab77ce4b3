"""The spec of Concat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic

from ...spec import Body, KernelSpec, Size, Unknown


@dataclass(frozen=True)
class Piece(Generic[Unknown]):
    """One part of a `Concat`: the loops and the body of a nest over the family's buffers."""

    domain: tuple[Size[Unknown], ...]
    body: Body[Unknown]


@dataclass(frozen=True)
class Concat(KernelSpec[Unknown]):
    """Nests (`pieces`) that write the one output buffer together, each element in exactly one of them.

    Each piece is equivalent to a `Nest` of its domain and body. A piece may be empty (a loop of size 0).
    """

    family: ClassVar[str] = "concat"
    pieces: tuple[Piece[Unknown], ...]
