"""Functions compiled whole and run, generic and exact, against eager PyTorch: what the tests of operators
share."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

import shapevm

from .test_torch import Function, tensor

SIZES = (6, 1, 0, 17)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}

Shape = tuple[Any, ...]
Specs = Sequence[tuple[Shape, torch.dtype]]


def check(
    function: Callable[..., Any],
    specs: Specs,
    sizes: Sequence[int] = SIZES,
    make: Callable[[Shape, torch.dtype, int, int], torch.Tensor] = tensor,
) -> shapevm.Executable:
    """Compare `function` at every size "n" of its inputs (shape, dtype), made by `make`; return the
    program."""
    model = Function(function)
    n = torch.export.Dim("n", min=min(sizes), max=10_000)
    dynamic = (tuple({i: n for i, size in enumerate(shape) if size == "n"} for shape, _ in specs),)

    def arguments(size: int) -> tuple[torch.Tensor, ...]:
        return tuple(make(shape, dtype, size, i) for i, (shape, dtype) in enumerate(specs))

    exe = shapevm.compile(model, arguments(sizes[0]), dynamic_shapes=dynamic, strategy="generic")
    for size in sizes:
        expected = torch.utils._pytree.tree_leaves(model(*arguments(size)))
        for strategy in ("generic", "jit"):
            results = torch.utils._pytree.tree_leaves(exe.using(strategy)(*arguments(size)))
            for result, wanted in zip(results, expected, strict=True):
                assert result.dtype == wanted.dtype and result.shape == wanted.shape
                tolerance = TOLERANCE.get(wanted.dtype, 0)
                torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    return exe
