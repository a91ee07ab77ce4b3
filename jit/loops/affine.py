"""Where an access lies in its buffer: an affine function of the loops, for generators that use strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..llvm.abi import resolve
from ..llvm.function import Function, Int
from ..spec import Buffer, Index


@dataclass(frozen=True)
class Affine:
    """The element offset `constant + sum over loops of strides[loop] * loop`."""

    constant: Int
    strides: Mapping[int, Int]

    def stride(self, loop: int) -> Int:
        """Return by how many elements one step of `loop` moves the access."""
        return self.strides.get(loop, 0)

    def offset(self, f: Function, loops: Mapping[int, Int]) -> Int:
        """Emit the element offset at the values of `loops`; loops not named are 0."""
        total = self.constant
        for loop, stride in self.strides.items():
            total = f.add(total, f.mul(loops.get(loop, 0), stride))
        return total


def affine(f: Function, buffer: Buffer, index: Sequence[Index], sizes: Sequence[Int]) -> Affine:
    """Emit the strides of an access; call in the entry block. Raises ValueError for a gather."""
    constant: Int = 0
    strides: dict[int, Int] = {}
    step: Int = 1
    for place, size in zip(reversed(index), reversed(buffer.shape), strict=True):
        if place.value is not None:
            raise ValueError("an operand that is walked by strides cannot be indexed by a value (a gather)")
        constant = f.add(constant, f.mul(resolve(place.offset, sizes), step))
        if place.loop is not None:
            strides[place.loop] = f.add(strides.get(place.loop, 0), f.mul(place.scale, step))
        step = f.mul(step, resolve(size, sizes))
    return Affine(constant, strides)
