"""Programs whose lists hold tensors of several sizes, and lists of numbers from tensors and back."""

from __future__ import annotations

import torch
from torch import Tensor

from .programs import program, x


@program((x(6, 2), 3), (x(5, 2), 2), (x(7, 2), 3), (x(4, 2), 9), (x(4, 2), 1), (x(4, 2), 0))
def chunk_n(a: Tensor, n: int) -> Tensor:
    parts = torch.chunk(a, n)
    total = torch.zeros(2)
    for p in parts:
        total = total * 0.5 + p.sum(0)
    return total


@program((x(6, 2), 3), (x(5, 2), 2), (x(7, 2), 3), (x(4, 2), 9), (x(4, 2), 1))
def chunk_count(a: Tensor, n: int) -> tuple[int, Tensor, Tensor]:
    parts = a.chunk(n, 0)
    return len(parts), parts[0] * 2, parts[-1]


@program((x(6, 2), 3), (x(5, 2), 2), (x(7, 2), 3), (x(4, 2), 9), (x(4, 2), 1))
def split_n(a: Tensor, n: int) -> tuple[int, Tensor, Tensor]:
    parts = a.split(n, 0)
    return len(parts), parts[0] * 2, parts[-1]


@program((x(4, 6), 2), (x(5, 6), 3), (x(6, 6), 1))
def tensor_splits(a: Tensor, k: int) -> tuple[Tensor, int]:
    parts = torch.tensor_split(a, k)
    return parts[0].sum(0), len(parts)


@program((x(6, 2), 3, 1), (x(5, 4), 2, 0), (x(2, 7), 3, -1), (x(4, 2), 0, 0))
def splits(a: Tensor, n: int, k: int) -> tuple[Tensor, int, Tensor]:
    parts = torch.split(a, n, k)
    again = torch.cat(parts, k)
    lens: list[int] = []
    for p in parts:
        lens.append(p.size(k))
    return again, len(parts), torch.tensor(lens)


@program(
    (x(6, 2), torch.tensor([1, 2, 3])),
    (x(5, 4), torch.tensor([5])),
    (x(2, 7), torch.tensor([1, 0, 1])),
    (x(4, 2), torch.tensor([1, 1])),
)
def splits_by(a: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    sizes: list[int] = n.tolist()
    parts = torch.split(a, sizes)
    means = [p.sum(0) for p in parts]
    return torch.stack(means), torch.cat(parts[1:] + parts[:1])


@program((x(6, 2),), (x(5, 4),), (x(2, 7),))
def splits_constant(a: Tensor) -> tuple[Tensor, int]:
    t = torch.zeros(a.size(1))
    n = 0
    for p in a.split(2):
        t = t + p.sum(0) * p.size(0)
        n += 1
    return t, n


@program((x(6, 2), x(3, 2), 0), (x(5, 4), x(2, 4), 1), (x(2, 7), x(1, 7), 2))
def picks_ragged(a: Tensor, b: Tensor, k: int) -> Tensor:
    rows = [a, b, torch.cat([a, b])]
    return rows[k] * 2


@program((x(6, 2), x(3, 2), 3), (x(5, 4), x(2, 4), 1), (x(2, 7), x(1, 7), 5))
def grows_ragged(a: Tensor, b: Tensor, k: int) -> tuple[list[Tensor], Tensor]:
    rows = [a]
    for i in range(k):
        rows.append(b if i % 2 == 0 else a)
    rows[0] = b
    last = rows.pop()
    rows.insert(0, last[:1])
    return rows, torch.cat(rows)


@program((torch.tensor([1, 2, 2, 5]),), (torch.tensor([3]),), (torch.tensor([4, 4, 4]),))
def numbers_back(a: Tensor) -> tuple[Tensor, Tensor, Tensor, list[float]]:
    v: list[int] = a.tolist()
    f: list[float] = (a * 0.5).tolist()
    b: list[bool] = (a > 2).tolist()
    return torch.tensor(v) * 2, torch.tensor(f, dtype=torch.float64), torch.tensor(b), f


@program(
    (torch.tensor([1, 2, 2, 5]), x(4, 3)), (torch.tensor([3]), x(1, 3)), (torch.tensor([4, 4, 4]), x(3, 3))
)
def ragged_dict(a: Tensor, h: Tensor) -> tuple[int, Tensor]:
    d: dict[int, Tensor] = {}
    for i in range(a.size(0)):
        k = int(a[i])
        if k in d:
            d[k] = torch.cat([d[k], h[i : i + 1]])
        else:
            d[k] = h[i : i + 1]
    n = 0
    total = torch.zeros(3)
    for k in d:
        n = n * 10 + d[k].size(0)
        total = total + d[k].sum(0) * k
    return n, total


@program(
    (x(2, 6, 4), torch.tensor([3, 6])), (x(1, 4, 4), torch.tensor([2])), (x(3, 5, 2), torch.tensor([5, 1, 2]))
)
def trims_ragged(h: Tensor, lengths: Tensor) -> tuple[Tensor, int]:
    parts: list[Tensor] = []
    for i in range(h.size(0)):
        parts.append(h[i, : int(lengths[i])])
    n = 0
    for p in parts:
        n += p.size(0)
    return torch.cat(parts, 0), n
