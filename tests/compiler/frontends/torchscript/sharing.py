"""Programs that change tensors, lists and dicts by several names."""

from __future__ import annotations

import torch
from torch import Tensor

from .programs import matrices, program, x


@matrices
def rows_of_a_loop_are_views(a: Tensor) -> Tensor:
    b = a.clone()
    for row in b:
        row.mul_(2.0)
    return b


@matrices
def a_flat_view(a: Tensor) -> Tensor:
    b = a + 0
    b.view(-1)[::2] = 0
    return b


@program((x(4, 4),), (x(2, 2),), (x(3, 3),))
def a_diagonal(a: Tensor) -> Tensor:
    b = a.clone()
    b.diagonal().fill_(7.0)
    b.t().diagonal().add_(1.0)
    return b


@program((x(4, 6),), (x(1, 6),), (x(3, 6),))
def parts_of_a_split(a: Tensor) -> Tensor:
    b = a.clone()
    left, middle, right = b.split([1, 2, 3], 1)
    left.zero_()
    middle += right[:, :2]
    right.neg_()
    return b


@program((x(4, 6),), (x(1, 6),), (x(3, 6),))
def halves(a: Tensor) -> Tensor:
    b = a.clone()
    one, other = b.chunk(2, 1)
    one.copy_(other.clone())
    other.sub_(one)
    return b


@program((x(3, 4), x(3, 4)), (x(1, 2), x(1, 2)), (x(5, 3), x(5, 3)))
def writes_where_a_mask_is(a: Tensor, c: Tensor) -> Tensor:
    b = a.clone()
    b[c > 0] = 0.0
    b.masked_fill_(c < -1, 9.0)
    return b


@program((x(5, 2), torch.tensor([0, 3])), (x(4, 3), torch.tensor([1, 1])), (x(6, 1), torch.tensor([5])))
def writes_where_an_index_is(a: Tensor, index: Tensor) -> Tensor:
    b = a.clone()
    b[index] = 1.0
    b.index_add_(0, index, torch.ones(index.size(0), a.size(1)))
    return b


@program((x(5, 4),), (x(5, 2),), (x(5, 3),))
def parts_and_rows(a: Tensor) -> Tensor:
    b = a.clone()
    b.narrow(0, 1, 3).mul_(2.0)
    b.swapaxes(0, 1)[0].add_(1.0)
    first, second = b.tensor_split(2)
    second.neg_()
    b.unbind(0)[2].fill_(9.0)
    b.T[1].mul_(0.5)
    return b


@program((x(3), 2), (x(3), 0), (x(1), -4))
def two_names_of_a_list(a: Tensor, n: int) -> tuple[list[int], int]:
    one = [1, 2]
    other = one
    other.append(n)
    one[0] = 5
    return other, len(one)


@program((x(3), 2), (x(3), 0), (x(4), 3))
def a_list_that_a_function_changes(a: Tensor, n: int) -> list[float]:
    found: list[float] = []
    for i in range(n):
        _note(found, float(a[i]) * i)
    _note(found, -1.0)
    return found


def _note(into: list[float], value: float) -> None:
    into.append(value)
    if len(into) > 2:
        into.pop(0)


@program((1, 2), (0, 0), (5, -5))
def lists_in_lists(n: int, m: int) -> list[list[int]]:
    rows = [[n - n, n], [0, m, 0]]
    inner = rows[1]
    inner.append(m)
    rows[0] = inner
    return rows + [[len(row) for row in rows]]


@program((x(3), 1), (x(2), 5), (x(4), -1))
def tensors_in_a_list_change(a: Tensor, n: int) -> tuple[Tensor, Tensor]:
    parts = [a.clone(), a * 2]
    parts[0] += n
    for part in parts:
        part.mul_(3.0)
    first = parts[0]
    first[0] = 100.0
    return parts[0], parts[1]


@program((x(3), "a"), (x(2), "b"), (x(4), "c"))
def a_dict_that_a_function_changes(a: Tensor, key: str) -> tuple[int, Tensor]:
    table = {"a": 1, "b": 2}
    other = table
    _count(other, "a")
    _count(table, "b")
    return table["a"] * 10 + other["b"], a * table.get(key, 0)


def _count(table: dict[str, int], key: str) -> None:
    table[key] = table[key] + 1


@program((x(3, 4), 1), (x(5, 2), 4), (x(2, 2), 0))
def an_input_changes_through_a_view(a: Tensor, row: int) -> Tensor:
    a[row].add_(1.0)
    a.t()[0].mul_(2.0)
    return a.sum(0)


@program((x(4), 3), (x(4), 0), (x(2), 1))
def a_buffer_of_a_loop(a: Tensor, n: int) -> Tensor:
    out = torch.zeros(4, 4)
    for i in range(n):
        out[i, i] = a[0] * i
        out[:, 3] += out[i] * 1
        out[i + 1 :, 0] = float(i)
    return out


@program((x(2, 3), True), (x(2, 3), False), (x(1, 1), True))
def one_of_two_changes(a: Tensor, flag: bool) -> tuple[Tensor, Tensor]:
    one, other = a.clone(), a * 2
    if flag:
        one.add_(5.0)
    else:
        other[0] = 0.0
    return one, other


@program((x(3),), (x(1),), (x(5),))
def exchanges_two(a: Tensor) -> tuple[Tensor, Tensor]:
    one, other = a + 1, a - 1
    for _ in range(3):
        one, other = other, one
        one *= 2
    return one, other


@program((x(6), [1, 2]), (x(6), [6, 0]), (x(4), [2, 2]))
def cuts_by_a_list(a: Tensor, sizes: list[int]) -> list[float]:
    start = 0
    sums: list[float] = []
    for n in sizes:
        sums.append(float(a[start : start + n].sum()))
        start += n
    return sums


@program((x(2, 2), 3), (x(1, 3), 1), (x(3, 1), 6))
def the_rank_grows(a: Tensor, n: int) -> Tensor:
    if n > 2:
        b = a.unsqueeze(0)
    else:
        b = a.reshape(-1)
    if b.dim() == 3:
        return b.sum(0) * n
    return b.sum() * n * torch.ones_like(a)


@program((torch.tensor([3, 1, 2, 0]), 0), (torch.tensor([1, 2, 3, 3]), 0), (torch.tensor([0]), 0))
def follows_pointers(links: Tensor, at: int) -> tuple[int, list[int]]:
    seen: list[int] = []
    while at not in seen:
        seen.append(at)
        at = int(links[at].item())
    return len(seen), seen


@program((x(4, 5), 3), (x(4, 5), 0), (x(2, 5), 6))
def greedy_decoding(weights: Tensor, n: int) -> tuple[Tensor, list[int]]:
    h = torch.zeros(5)
    tokens: list[int] = []
    for _ in range(n):
        scores = weights @ h + weights.sum(1)
        token = int(scores.argmax().item())
        tokens.append(token)
        h = torch.tanh(h + weights[token])
        if token == 3:
            break
    return h, tokens


@program((x(6),), (x(1),), (x(9),))
def keeps_what_is_positive(a: Tensor) -> tuple[Tensor, int]:
    kept = a[a > 0]
    n = kept.numel()
    if n == 0:
        return torch.zeros(1), 0
    return kept.cumsum(0) / n, n


@program((x(5, 3), 2), (x(7, 1), 4), (x(3, 3), 3))
def pads_and_joins(a: Tensor, n: int) -> Tensor:
    parts: list[Tensor] = []
    for i in range(n):
        parts.append(torch.nn.functional.pad(a[i], [0, i]).sum().reshape(1) * i)
    return torch.cat(parts)
