"""Specs' buffers and code objects in the form that artifacts and the runtime take. Needs no compiler."""

from __future__ import annotations

from ...vm.program import KernelBuffer, KernelObject
from ...vm.program import Size as EncodedSize
from ...vm.program import Terms as EncodedTerms
from ..llvm.abi import CodeObject
from ..spec import Buffer, Dim, Size, Terms


def kernel_object(code: CodeObject) -> KernelObject:
    """Return a code object in the form that artifacts and the runtime take."""
    return KernelObject(
        spec_hash=code.spec_hash,
        target=code.target,
        n_dims=code.n_dims,
        buffers=kernel_buffers(code.buffers),
        tiles=tuple((_size(size), divisor) for size, divisor in code.tiles),
        scratch=_terms(code.scratch),
        cost=_terms(code.cost),
        bounds=tuple(
            (_size(loop), scale, _size(offset), _size(axis)) for loop, scale, offset, axis in code.bounds
        ),
        code=code.code,
        entry=code.entry,
        exact_dims=code.exact_dims,
        schedule=" ".join((code.schedule, *code.variants)),
        ranges=code.ranges,
        alignment=code.alignment,
    )


def code_object(o: KernelObject) -> CodeObject:
    """Return what `kernel_object` was given, but for what only the compiler knew."""
    schedule, *variants = o.schedule.split(" ")
    return CodeObject(
        o.spec_hash, o.target, o.n_dims,
        tuple(Buffer(b.dtype, tuple(map(_decoded, b.shape)), b.is_output) for b in o.buffers),
        tuple((_decoded(size), divisor) for size, divisor in o.tiles),
        tuple((factor, tuple(map(_decoded, sizes))) for factor, sizes in o.scratch),
        tuple((factor, tuple(map(_decoded, sizes))) for factor, sizes in o.cost),
        tuple((_decoded(n), scale, _decoded(at), _decoded(axis)) for n, scale, at, axis in o.bounds),
        o.code, o.entry, o.exact_dims, schedule, tuple(variants), o.ranges, o.alignment,
    )  # fmt: skip


def _decoded(size: EncodedSize) -> Size:
    return Dim(size[1]) if size[0] else size[1]


def kernel_buffers(buffers: tuple[Buffer, ...]) -> tuple[KernelBuffer, ...]:
    """Return a spec's buffers in the form of the kernel table."""
    return tuple(KernelBuffer(b.dtype, tuple(map(_size, b.shape)), b.is_output) for b in buffers)


def _size(size: Size) -> EncodedSize:
    return (True, size.index) if isinstance(size, Dim) else (False, size)


def _terms(terms: Terms) -> EncodedTerms:
    return tuple((factor, tuple(map(_size, sizes))) for factor, sizes in terms)
