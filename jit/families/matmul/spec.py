"""The spec of Matmul."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self

from ...llvm.constant_pool import FromSize
from ...spec import Body, Index, KernelSpec, Part, Size, Unknown


@dataclass(frozen=True)
class MatrixProduct(Part, Generic[Unknown]):
    """acc[batch.., i, j] = sum over k of A[.., i, k] * B[.., k, j], by fused multiply-add from 0, k rising.

    Then `epilogue` (domain: batch.., m, n; `acc` is its input; stores the results).
    `a`, `b`: positions in `buffers`; `a_index`/`b_index` give one Index per axis of the buffer over the loops
    batch.. (0..len(batch)-1), m (len(batch)), n (len(batch)+1), k (len(batch)+2).
    `b_layout`: the name of a row of `layouts.LAYOUTS`. In "rows" b is read in place, its n axis must be last
    (stride 1); in others b is a constant, `b_index` is () and there is no batch over b.
    A's k axis must be last (stride 1).
    `prologue`: if not empty, A[.., i, k] is its last instruction's value (f32). Its loops are those above;
    nothing in it may depend on n; no stores, `acc` or reductions. It is computed on the way in, a block of
    rows at a time. Then `a` is -1 and `a_index` ().
    The layout's row has the dtypes of a, b and the sums.
    `chain`: the steps of a block of short sums, see `sums`; 0: those are one chain.
    """

    batch: tuple[Size[Unknown], ...]
    m: Size[Unknown]
    n: Size[Unknown]
    k: Size[Unknown]
    a: int
    a_index: tuple[Index[Unknown], ...]
    b: int
    b_index: tuple[Index[Unknown], ...]
    b_layout: str
    epilogue: Body[Unknown]
    prologue: Body[Unknown] = ()
    chain: int = field(default=0, kw_only=True)


def _numbered(name: str, sizes: tuple[Size[Unknown], ...]) -> tuple[Size[Unknown], ...]:
    """Return sizes with the numbers among them as `FromSize`."""
    return tuple(
        FromSize(size, f"{name}{i}") if isinstance(size, int) else size for i, size in enumerate(sizes)
    )


@dataclass(frozen=True)
class ProductSpec(KernelSpec[Unknown]):
    """A spec with a matrix product: the common part of the families that compute one. `bf16x6`: if the target
    has AMX, many rows of f32 by a constant are multiplied on its tiles, as sums of six products of bf16,
    which have different bits (`amx`)."""

    product: MatrixProduct[Unknown]
    bf16x6: bool = field(default=False, kw_only=True)

    @property
    def repeats_lhs(self) -> bool:
        """Whether several of A's rows share elements of memory, as with overlapping windows."""
        return False

    def numbered(self) -> Self:
        """See `KernelSpec`: the sizes of the product and of operands that are traversed by strides, unlike
        weights in panels."""
        given = self.product
        in_panels = given.b if given.b_layout != "rows" else None
        buffers = tuple(
            buffer if i == in_panels else replace(buffer, shape=_numbered(f"b{i}.", buffer.shape))
            for i, buffer in enumerate(self.buffers)
        )
        m, n, k = _numbered("mnk", (given.m, given.n, given.k))
        product = replace(given, batch=_numbered("batch", given.batch), m=m, n=n, k=k)
        return replace(self, buffers=buffers, product=product)

    def with_product(self, **changes: Any) -> Self:
        """Return the spec with these fields of its product changed."""
        return replace(self, product=replace(self.product, **changes))


@dataclass(frozen=True)
class Matmul(ProductSpec[Unknown]):
    """The product alone. `skips_zeros`: A's rows may be all zeros, like an initial state, and B, in panels,
    has only finite elements: few such rows do not read it."""

    family: ClassVar[str] = "matmul"
    skips_zeros: bool = field(default=False, kw_only=True)
