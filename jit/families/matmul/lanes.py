"""Vectors with some lanes missing."""

from __future__ import annotations

from ...llvm.function import Function, Int, Value
from ...loops.bodies import LANES, tail_mask
from .arithmetic import VECTOR


def tail(f: Function, remaining: Int) -> Value:
    """Return the mask of the lanes l < remaining, for any `remaining`."""
    return tail_mask(f, f.maximum(remaining, 0))


def load(f: Function, address: Value, mask: Value | None) -> Value:
    """Load a vector; lanes outside `mask` are 0 and not read."""
    if mask is None:
        return f.load(VECTOR, address, align=4)
    nothing = Value(VECTOR, "zeroinitializer")
    return f.call(VECTOR, f"llvm.masked.load.v{LANES}f32.p0", address, Value("i32", "4"), mask, nothing)


def store(f: Function, value: Value, address: Value, mask: Value | None) -> None:
    """Store a vector; lanes outside `mask` are not written."""
    if mask is None:
        f.store(value, address, align=4)
    else:
        f.call("void", f"llvm.masked.store.v{LANES}f32.p0", value, address, Value("i32", "4"), mask)
