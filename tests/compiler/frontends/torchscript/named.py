"""A program that returns named tuples. TorchScript reads the types of their fields, which must be no strings:
this file has no `from __future__ import annotations`."""

from typing import NamedTuple

from torch import Tensor, nn


class Found(NamedTuple):
    """What `Finds` gives."""

    scores: Tensor
    length: int


class Finds(nn.Module):
    """Named tuples, one in a list."""

    def forward(self, x: Tensor) -> tuple[Found, list[Found]]:
        """Return two."""
        return Found(x * 2, x.size(0)), [Found(x + 1, 1)]
