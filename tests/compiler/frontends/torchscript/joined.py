"""Operators that take, or give, lists of tensors of any length."""

from __future__ import annotations

import torch
from torch import Tensor

from .programs import program, x


@program(
    ([x(2, 3), x(2, 3)],),
    ([x(1, 3)],),
    ([x(1, 1), x(4, 1), x(4, 3)],),
    ([x(0, 1), x(1, 2)],),
    ([x(2, 1), x(3, 1)],),
)
def broadcast_together(xs: list[Tensor]) -> list[Tensor]:
    return torch.broadcast_tensors(xs)


@program(
    ([torch.arange(2), torch.arange(3)],),
    ([torch.arange(4), torch.arange(1), torch.arange(2)],),
    ([torch.arange(4), torch.arange(0), torch.arange(2)],),
    ([torch.arange(2)] * 5,),
)
def products_of_sets(xs: list[Tensor]) -> Tensor:
    return torch.cartesian_prod(xs)  # type: ignore[arg-type]


@program((x(3), x(2)), (x(1), x(4)), (x(0), x(2)))
def products_of_two_sets(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cartesian_prod(a, b, a), torch.cartesian_prod(b)


@program(
    ([x(2, 3), x(3, 4)],),
    ([x(2, 3), x(3, 4), x(4, 1)],),
    ([x(2, 2)] * 5,),
    ([x(2, 3), x(2, 3)],),
)
def chained_products(xs: list[Tensor]) -> Tensor:
    return torch.linalg.multi_dot(xs)


@program((x(3), x(3, 2), x(2)), (x(1), x(1, 1), x(1)), (x(2), x(2, 5), x(5)))
def chained_products_of_vectors(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return torch.linalg.multi_dot([a, b, c]), torch.chain_matmul(b, b.t())


@program(
    (torch.arange(4), 2, False),
    (torch.arange(6), 3, True),
    (torch.arange(3), 3, False),
    (torch.arange(2), 3, False),
    (torch.arange(2), 1, True),
    (torch.arange(0), 2, True),
)
def chosen_together(a: Tensor, r: int, again: bool) -> tuple[Tensor, Tensor]:
    return torch.combinations(a, r, again), torch.combinations(a)


@program(
    (x(6, 2), [1, 3]),
    (x(6, 2), []),
    (x(4, 2), [2]),
    (x(7, 1), [1, 1, 9]),
    (x(3, 3), [-1]),
    (x(5, 1), [4, 2, -9]),
)
def split_at_positions(a: Tensor, at: list[int]) -> list[Tensor]:
    return [part.sum(0) for part in torch.tensor_split(a, at)]


@program(([x(2), x(3)],), ([x(1)],), ([x(2), x(0), x(4)],))
def with_more_axes(xs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    return torch.atleast_2d(xs), torch.atleast_3d(xs)


@program(
    ([[x(2), x(2)], [x(2)]],),
    ([[x(3)]],),
    ([[x(1)] * 3, [x(1)] * 2, [x(1)]],),
)
def stacked_rows(rows: list[list[Tensor]]) -> tuple[Tensor, Tensor]:
    means = [torch.stack(row).mean(0) for row in rows]
    return torch.stack(means), torch.cat([torch.cat(row) for row in rows])


@program(
    ([x(2), x(2)], [1, 2]),
    ([], []),
    ([x(3), x(3), x(1)], [0, 1]),
    ([x(1)] * 5, [5, 4, 3, 2, 1]),
)
def in_step(xs: list[Tensor], ns: list[int]) -> tuple[Tensor, list[Tensor], list[int], list[int]]:
    total = torch.zeros(1)
    for i, (a, n) in enumerate(zip(xs, ns)):  # noqa: B905 (TorchScript's has no strict)
        total = total + a.sum() * n + i
    xs.reverse()
    return total, xs, [n * 2 for n in ns], sorted(ns)


@program(
    ([(x(2), 3), (x(2), 1)],),
    ([(x(1), 3)],),
    ([(x(4), 2), (x(4), 2), (x(4), -1), (x(4), 7)],),
)
def stacked_from_pairs(pairs: list[tuple[Tensor, int]]) -> tuple[list[int], Tensor]:
    ranks = [rank for _, rank in pairs]
    ranks.sort(reverse=True)
    return ranks, torch.stack([a for a, _ in pairs[::-1]])


@program(
    ({"a": x(2, 3), "b": x(2, 3)},),
    ({"c": x(2, 1)},),
    ({"z": x(1, 2), "y": x(1, 0), "x": x(1, 5)},),
)
def columns_of_a_table(table: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.cat(list(table.values()), 1), torch.stack([v.sum() for v in table.values()])
