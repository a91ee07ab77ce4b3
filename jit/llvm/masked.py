"""Loads and stores of LANES elements side by side, some of which may be missing: the only ones with a mask.

What decides on single lanes is a mask, what decides on all of them is a condition, and the two are never made
one mask: of a condition and constant lanes LLVM 22 makes, for x86-64-v3, loads of whole registers where all
lanes of a register are constantly off (tests/jit/llvm/test_masked.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .constants import LANES
from .dtypes import vector
from .function import Function, Value

ZEROS = f'@zeros = private unnamed_addr constant [{8 * LANES} x i8] zeroinitializer, section ".rodata.zeros"'
_MANGLED = {"float": "f32", "double": "f64"}


def mangled(element: str) -> str:
    """Return how names of intrinsics for vectors of LANES end."""
    return f"v{LANES}{_MANGLED.get(element, element)}"


def readable(f: Function, address: Value, conditions: Iterable[Value]) -> Value:
    """Return `address` where all conditions (i1) hold, else that of zeros, LANES of any type."""
    for condition in conditions:
        f.declarations["zeros"] = ZEROS
        address = f.select(condition, address, Value("ptr", "@zeros"))
    return address


@contextmanager
def where(f: Function, conditions: Iterable[Value]) -> Iterator[None]:
    """Run the body only where all conditions (i1) hold."""
    good = None
    for condition in conditions:
        good = condition if good is None else f.op("i1", f"and i1 {good.name}, {condition.name}")
    if good is None:
        yield
    else:
        with f.when(good):
            yield


def load(
    f: Function, element: str, address: Value, align: int, mask: Value | None, *conditions: Value
) -> Value:
    """Load LANES of `element`; those outside `mask` are 0 and not read, all where a condition fails."""
    kind, address = vector(element, LANES), readable(f, address, conditions)
    if mask is None:
        return f.load(kind, address, align)
    name, zero = f"llvm.masked.load.{mangled(element)}.p0", Value(kind, "zeroinitializer")
    return f.call(kind, name, address, Value("i32", str(align)), mask, zero)


def store(f: Function, value: Value, address: Value, align: int, mask: Value | None) -> None:
    """Store a vector of LANES; lanes outside `mask` are not written."""
    if mask is None:
        f.store(value, address, align)
    else:
        name = f"llvm.masked.store.{mangled(value.type.split(' ')[2][:-1])}.p0"
        f.call("void", name, value, address, Value("i32", str(align)), mask)
