"""Operators of layers and of PyTorch's functions as models in use hold them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .programs import program, x


@program((x(2, 4, 5, 8), x(2, 4, 7, 8), x(2, 4, 7, 6)), (x(1, 1, 1, 8), x(1, 1, 3, 8), x(1, 1, 3, 2)),
         (x(3, 2, 7, 4), x(3, 2, 2, 4), x(3, 2, 2, 5)))  # fmt: skip
def attends(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


@program((x(2, 4, 5, 8), x(2, 1, 7, 8), x(2, 1, 7, 8), x(2, 1, 5, 7)),
         (x(3, 2, 1, 8), x(3, 1, 2, 8), x(3, 1, 2, 8), x(3, 1, 1, 2)),
         (x(1, 3, 6, 8), x(1, 1, 5, 8), x(1, 1, 5, 8), x(1, 1, 6, 5)))  # fmt: skip
def attends_to_what_is_repeated(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask)


@program((x(2, 4, 5, 8), x(2, 2, 7, 8), x(2, 2, 7, 8)), (x(1, 6, 3, 8), x(1, 3, 3, 8), x(1, 3, 3, 8)),
         (x(3, 4, 1, 8), x(3, 1, 6, 8), x(3, 1, 6, 8)))  # fmt: skip
def attends_in_groups(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


@program((x(2, 3, 6, 7),), (x(1, 3, 5, 5),), (x(3, 1, 8, 2),), (x(0, 2, 5, 6),))
def lists_windows_of_any_size(a: Tensor) -> Tensor:
    return F.unfold(a, 3, 1, 1, 2)


@program((x(2, 12, 4),), (x(1, 8, 4),), (x(3, 4, 4),))
def adds_windows_of_any_number_of_channels(a: Tensor) -> Tensor:
    return F.fold(a, (4, 4), 2, stride=2)


@program((x(5),), (x(7),), (x(1),), (x(0),))
def running_sums_after_a_zero(a: Tensor) -> Tensor:
    out = a.new_empty(a.size(0) + 1)
    out[:1] = 0
    torch.cumsum(a, 0, out=out.narrow(0, 1, a.size(0)))
    return out


@program((x(2, 3),), (x(5, 1),), (x(1, 4),))
def writes_results_into_tensors(a: Tensor) -> tuple[Tensor, Tensor]:
    out = a * 1
    torch.sin(a[0], out=out[0])
    total = torch.empty_like(a)
    made = torch.add(a, a, alpha=2, out=total)
    made += 1
    return out, total


@program((x(2, 3),), (x(5, 1),), (x(0, 4),))
def changes_axes_in_place(a: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    b = a * 2
    row = b[:1]
    other = b
    b.unsqueeze_(0)
    row += 1
    other.mul_(3)
    c = (a + 1).t_()
    c.add_(1)
    d = (a + 1)[None].squeeze_(0)
    d.transpose_(0, 1)
    return b, c, d, other.dim()


@program((x(2, 3), torch.tensor([[2, 0], [1, 1]])), (x(1, 4), torch.tensor([[3, 0, 1]])),
         (x(3, 2), torch.tensor([[1], [0], [1]])))  # fmt: skip
def takes_along(a: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    return torch.take_along_dim(a, at, 1), torch.take_along_dim(a, at[0])


_ROWS = torch.tensor([[1, 2, 3], [4, 5, 6]])


@program(
    (_ROWS, torch.tensor([1, 3])), (_ROWS[:1], torch.tensor([6, 6, 2, 9, 1])), (_ROWS, torch.tensor([0])[:0])
)
def is_one_of(a: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    halves = a / 2
    return torch.isin(a, known), torch.isin(halves, known, invert=True), torch.isin(a, 3)


@program((x(2, 5, 9),), (x(1, 3, 5),), (x(4, 1, 1),))
def shifts_rows_by_their_strides(a: Tensor) -> Tensor:
    a = a * 1
    b, t, _ = a.shape
    strides = [a.stride(0), a.stride(1) - a.stride(2), a.stride(2)]
    return a.as_strided([b, t, t], strides, storage_offset=a.stride(2) * (t - 1))


@program((x(2, 3, 4),), (x(3, 5, 2),), (x(4, 2, 3),))
def strides_of_what_was_made_contiguous(a: Tensor) -> tuple[Tensor, list[int]]:
    c = a.transpose(0, 1).contiguous()
    return c.as_strided([c.size(0), c.size(2)], [c.stride(0), c.stride(2)]), c.stride()
