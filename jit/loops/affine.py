"""The position of an access in its buffer: an affine function of the loops, for generators that use
strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..llvm.abi import resolve
from ..llvm.access import memory_element
from ..llvm.function import Function, Int, Value
from ..spec import Buffer, BufferAccess, Index, KernelSpec


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


@dataclass(frozen=True)
class Operand:
    """The buffer at `base` whose elements, of LLVM type `element`, are read by `access`."""

    f: Function
    base: Value
    element: str
    access: Affine

    @staticmethod
    def of(
        f: Function, spec: KernelSpec, access: BufferAccess, sizes: Sequence[Int], base: Value | None = None
    ) -> Operand:
        """Return the operand of an access of the spec's family; call in the entry block. `base`: the buffer's
        address, if already loaded."""
        buffer = spec.buffers[access.buffer]
        base = base or f.load("ptr", f.at(f.params[0], "ptr", access.buffer), align=8)
        return Operand(f, base, memory_element(buffer.dtype), affine(f, buffer, access.index, sizes))

    def at(self, loops: Sequence[Int]) -> Value:
        """Return the address where the outer loops are `loops`."""
        return self.f.at(self.base, self.element, self.offset(loops))

    def offset(self, loops: Sequence[Int]) -> Int:
        """Return which element that is."""
        return self.access.offset(self.f, dict(enumerate(loops)))

    def stride(self, loop: int) -> Int:
        """Return by how many elements one step of `loop` moves."""
        return self.access.stride(loop)
