"""Assumptions of tracing that exclude sizes of 0, 1 or 2 and change nothing: at these sizes the trace gives
PyTorch's values. torch compares sizes with 0 and 1 to choose strides or a shorter way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch

from ....ir.dims import evaluate, symbol
from ....ops import build as B
from ....ops.complex import Complex, dtype_of
from ...dtypes import TORCH_DTYPES
from ...guards import excludes_0_and_1
from ..values.values import is_size

Sizes = Mapping[str, int]
_SMALL = (0, 1, 2)


def breaking(condition: Any, known: Sizes) -> list[Sizes]:
    """Return small sizes that break a condition, the others being as `known`; none for a condition that may
    also exclude greater sizes."""
    if not isinstance(condition, sympy.Ne) and not excludes_0_and_1(condition):
        return []
    names = sorted(map(str, condition.free_symbols))
    tried = [{name: size} for size in _SMALL for name in names]
    tried += [dict.fromkeys(names, size) for size in _SMALL] if len(names) > 1 else []
    found = [{**known, **sizes} for sizes in tried]
    return [
        sizes for sizes in found if condition.subs({symbol(n): k for n, k in sizes.items()}) == sympy.false
    ]


def are_alike(
    call: Callable[..., Any], traced: Callable[..., Any], values: Sequence[Any], sizes: Sizes
) -> bool:
    """Return True if a trace gives what the operator gives for random numbers at these sizes. `values`: the
    graph's values for their arguments; only sizes and tensors of bools and floats, also as complex parts, are
    made."""
    source = torch.Generator().manual_seed(0)
    try:
        args = [_made(x, sizes, source) for x in values]
        with torch.no_grad():
            torch.testing.assert_close(traced(*args), call(*args), rtol=1e-4, atol=1e-5, equal_nan=True)
    except Exception:  # whatever torch raises: the operator may not take these sizes at all
        return False
    return True


def _made(x: Any, sizes: Sizes, source: torch.Generator) -> Any:
    if is_size(x):
        return evaluate(x, sizes)
    if isinstance(x, Complex):
        return torch.complex(*(_made(part, sizes, source) for part in x.parts))
    dtype = TORCH_DTYPES[dtype_of(x)]
    shape = [evaluate(size, sizes) for size in B.shape_of(x)]
    if dtype == torch.bool:
        return torch.rand(shape, generator=source) < 0.5
    if not dtype.is_floating_point:
        raise TypeError("random integers may be wrong indices, which not every operator checks")
    return torch.rand(shape, generator=source, dtype=torch.float64).to(dtype)
