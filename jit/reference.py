"""Kernel specs evaluated with numpy: the executable definition, slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence

from .evaluation import Array, Evaluation
from .families.table import family_of
from .spec import KernelSpec


def evaluate(spec: KernelSpec, dims: Sequence[int], buffers: Sequence[Array]) -> None:
    """Compute the outputs of `spec` at the sizes `dims` into `buffers` (arrays in the spec's order, bf16 as
    uint16).

    Raises IndexError where a gather's index is out of range, with the message of the kernels' callers.
    """
    family_of(spec).evaluate(Evaluation(spec, dims, buffers), spec)
