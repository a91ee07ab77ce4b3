"""The memory layout of PyTorch's tensors; in our programs all are contiguous."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the axes of a fake tensor from the outermost in memory to the innermost; None if that is their
    own order."""
    sizes, strides = map(example, tensor.shape), list(map(example, tensor.stride()))
    wide = [axis for axis, size in enumerate(sizes) if size != 1]
    if sorted(wide, key=lambda axis: -strides[axis]) == wide:
        return None
    return tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))


def restored(order: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes `order`."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def example(size: int | torch.SymInt) -> int:
    """Return a size, or the traced value of a symbolic one."""
    if isinstance(size, int):
        return size
    return int(size.node.shape_env.optimization_hint(size.node.expr, 2))
