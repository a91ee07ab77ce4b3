"""Vectors with some lanes missing."""

from __future__ import annotations

from ...llvm import masked
from ...llvm.constants import tail_mask
from ...llvm.function import Function, Int, Value


def tail(f: Function, remaining: Int) -> Value:
    """Return the mask of the lanes l < remaining, for any `remaining`."""
    return tail_mask(f, f.maximum(remaining, 0))


def load(f: Function, address: Value, mask: Value | None, *conditions: Value) -> Value:
    """Load a vector; lanes outside `mask` are 0 and not read, all where a condition (i1) fails."""
    return masked.load(f, "float", address, 4, mask, *conditions)


def store(f: Function, value: Value, address: Value, mask: Value | None) -> None:
    """Store a vector; lanes outside `mask` are not written."""
    masked.store(f, value, address, 4, mask)
