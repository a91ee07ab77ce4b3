"""Operators of PyTorch that read and write wherever their arguments say: wrong ones end the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

#: By operator: raises ValueError for arguments, in order and by name, that it must not be called with.
Checks = Mapping[Any, Callable[..., None]]


def checked() -> Any:
    """Return a context in which these operators raise ValueError and do not end the process. Example data
    that is cut to a small size may be such: lengths, offsets and pivots stay as they are where the tensor
    that they lie in is cut."""
    from torch.overrides import TorchFunctionMode

    checks = _checks()

    class Checked(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in checks:
                checks[func](*args, **(kwargs or {}))
            return func(*args, **(kwargs or {}))

    return Checked()


@cache
def _checks() -> Checks:
    import torch

    aten = torch.ops.aten
    return {
        torch.segment_reduce: _segments,
        aten.segment_reduce.default: _segments,
        torch.lu_unpack: _unpacked,
        aten.lu_unpack.default: _unpacked,
        torch.linalg.lu_solve: _factors,
        aten.linalg_lu_solve.default: _factors,
        torch.lu_solve: _solved,
        torch.Tensor.lu_solve: _solved,
        aten.lu_solve.default: _solved,
        torch.linalg.ldl_solve: _symmetric_factors,
        aten.linalg_ldl_solve.default: _symmetric_factors,
        torch.nn.functional.embedding_bag: _bags_of,
        torch.embedding_bag: _bags,
        aten.embedding_bag.default: _bags,
        aten.embedding_bag.padding_idx: _bags,
        aten._embedding_bag.default: _bags,
        aten._embedding_bag_forward_only.default: _bags,
        aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention,
    }


def _segments(
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> None:
    """Segments lie one after the other within an axis of the data."""
    size = data.shape[axis]
    if lengths is not None:
        is_within = not lengths.numel() or int(lengths.min()) >= 0 and int(lengths.sum(-1).max()) <= size
    elif offsets is not None and offsets.numel():
        is_rising = not (offsets.diff(dim=-1) < 0).any()
        is_within = is_rising and int(offsets.min()) >= 0 and int(offsets.max()) <= size
    else:
        is_within = True
    if not is_within:
        raise ValueError(f"segment_reduce: segments end outside of {size} positions")


def _unpacked(LU_data: Any, LU_pivots: Any, *args: Any, **kwargs: Any) -> None:
    _pivots("lu_unpack", LU_data, LU_pivots)


def _solved(self: Any, LU_data: Any, LU_pivots: Any, **kwargs: Any) -> None:
    _pivots("lu_solve", LU_data, LU_pivots)


def _factors(LU: Any, pivots: Any, *args: Any, **kwargs: Any) -> None:
    _pivots("lu_solve", LU, pivots)


def _symmetric_factors(LD: Any, pivots: Any, *args: Any, **kwargs: Any) -> None:
    _pivots("ldl_solve", LD, pivots.abs())  # those of blocks are negative


def _pivots(name: str, matrices: Any, pivots: Any) -> None:
    """Pivots are rows, counted from 1, as many as a matrix has rows or columns."""
    rows, needed = (matrices.shape[-2], min(matrices.shape[-2:])) if matrices.dim() > 1 else (0, 0)
    if pivots.dim() and pivots.shape[-1] < needed:
        raise ValueError(f"{name}: {needed} pivots are needed; those within the data are {pivots.shape[-1]}")
    if ((pivots < 1) | (pivots > rows)).any():
        raise ValueError(f"{name}: pivots are not within {rows} rows")


def _bags_of(input: Any, weight: Any, offsets: Any = None, *args: Any, **kwargs: Any) -> None:
    if offsets is not None:
        _bags(weight, input, offsets)


def _bags(weight: Any, indices: Any, offsets: Any, *args: Any, **kwargs: Any) -> None:
    """Every index is in a bag."""
    if indices.numel() and not offsets.numel():
        raise ValueError(
            f"embedding_bag: {indices.numel()} indices are outside of all bags, as there are none"
        )


def _attention(*args: Any, **kwargs: Any) -> None:
    """PyTorch's kernels divide by the number of elements."""
    import torch

    if not all(x.numel() for x in args if isinstance(x, torch.Tensor)):
        raise ValueError("attention of an empty tensor")
