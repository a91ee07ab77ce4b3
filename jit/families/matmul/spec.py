"""What a Matmul computes."""

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
    `b_layout`: "rows": b is read in place, its n axis must be last (stride 1);
    "panels": b is a constant packed by `jit.families.matmul.matmul.pack_panels` as [ceil(N/PANEL), K,
    PANEL] zero-padded in the last panel; then `b_index` is () and there is no batch over b.
    "quads": a constant in i8 packed by `pack_quads`, and a in u8: the sums are exact in i32.
    "pairs": a constant in bf16 packed by `pack_pairs`, and a in bf16, or a prologue whose values are rounded
    to bf16: the sums are f32, in the order of the target's instructions for bf16.
    "grouped": a constant of small integers with scales of groups of steps, packed by `grouped.pack_grouped`;
    "grouped_quads": the same, packed for a in u8; "grouped_digits": packed for a in f32, which is multiplied
    in digits of a byte (`digits`). `acc` is f32.
    A's k axis must be last (stride 1).
    `prologue`: if not empty, A[.., i, k] is its last instruction's value (f32). Its loops are those above;
    nothing in it may depend on n; no stores, `acc` or reductions. It is computed on the way in, a block of
    rows at a time. Then `a` is -1 and `a_index` ().
    a is f32; b is f32 or, in panels, bf16, f16 or i8 that is widened when read; accumulation in f32.
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
    """A spec that has a product of matrices: what the families that compute one have in common."""

    product: MatrixProduct[Unknown]

    @property
    def repeats_lhs(self) -> bool:
        """Whether several of A's rows have the same element of memory, as where windows overlap."""
        return False

    def numbered(self) -> Self:
        """See `KernelSpec`: the sizes of the product and of what is walked by strides, which is not a weight
        in panels."""
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
    """The product alone. `skips_zeros`: A's rows may be all zeros, as a state is at first, and B, in panels,
    has finite elements only: few such rows do not read it."""

    family: ClassVar[str] = "matmul"
    skips_zeros: bool = field(default=False, kw_only=True)
