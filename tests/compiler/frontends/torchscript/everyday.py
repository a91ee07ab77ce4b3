"""Programs as people write them: several constructs of TorchScript in each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .programs import program, x


@program((x(3), "a"), (x(3), "b"), (x(2), "c"))
def table_of_functions(a: Tensor, how: str) -> Tensor:
    scales = {"a": 1.0, "b": 2.5}
    if how in scales:
        return a * scales[how]
    return -a


@program((x(2, 3), 0), (x(2, 3), 1), (x(4, 2), -1))
def nested_result(a: Tensor, n: int) -> dict[str, list[Tensor]]:
    return {"rows": [a, a + n], "sum": [a.sum()]}


@program((x(3), 1e-5), (x(3), 0.5), (x(1), 2.0))
def epsilon_of_a_call(a: Tensor, eps: float) -> Tensor:
    return (a - a.mean()) / torch.sqrt(a.var(unbiased=False) + eps)


@program((x(6), 1, 5), (x(6), 0, 6), (x(7), 2, 2))
def writes_a_slice(a: Tensor, low: int, high: int) -> Tensor:
    b = a.clone()
    b[low:high] = 7.0
    return b


@program((x(2, 3), 4), (x(1, 2), 1), (x(3, 3), 0))
def doubles_in_a_view(a: Tensor, n: int) -> Tensor:
    b = a.clone()
    row = b[0]
    for i in range(n):
        row.mul_(2.0)
        row += i
    return b


@program((x(4), 3), (x(4), 0), (x(2), 1))
def loops_on_items(a: Tensor, n: int) -> tuple[Tensor, int]:
    steps = 0
    b = a.abs() + 1.0
    while b.sum().item() < 50.0:
        b = b * 2.0
        steps += 1
        if steps > n:
            break
    return b, steps


@program((x(3), "relu"), (x(3), "tanh"), (x(3), "gelu"))
def raises_for_an_unknown_name(a: Tensor, name: str) -> Tensor:
    if name == "relu":
        return torch.relu(a)
    elif name == "tanh":
        return torch.tanh(a)
    raise ValueError("unknown: " + name)


@program((x(3), True), (x(3), False), (x(1), True))
def refines_a_conditional(a: Tensor, flag: bool) -> Tensor:
    value: Any = a if flag else -a
    total = a * 0
    if isinstance(value, Tensor):
        total = total + value
    return total


@program((x(3), 1, "a"), (x(3), 2, "c"), (x(2), 3, "b"), (x(2), 9, "b"))
def keys_of_a_call(a: Tensor, n: int, name: str) -> Tensor:
    rows = {1: a, 2: a * 2.0, 3: a.exp()}
    offsets = {"a": 1, "b": -5}
    return rows[n] + offsets.get(name, 100)


@program((x(3), 5), (x(3), 0), (x(2), 4))
def keys_of_a_loop(a: Tensor, n: int) -> Tensor:
    weights = {0: 0.5, 1: -1.0, 2: 2.0}
    total = a * 0
    for i in range(n):
        if i in weights:
            total = total + a * weights[i]
    return total


@program((x(3), "same"), (x(2), "same"), (x(3), "other"))
def one_key(a: Tensor, name: str) -> Tensor:
    return {"same": a * 3.0}[name]


@program(
    (torch.tensor([1, 4, 2, 4, 0]), x(5, 3), torch.tensor([0, 2, 2])),
    (torch.tensor([3]), x(4, 3), torch.tensor([0])),
    (torch.tensor([1, 1, 0, 2, 3, 3, 1]), x(4, 2), torch.tensor([0, 1, 6, 7])),
)
def bags_of_words(words: Tensor, table: Tensor, starts: Tensor) -> Tensor:
    return torch.embedding_bag(table, words, starts)[0]


@program((x(4, 3), x(3, 3, 3)), (x(9, 2), x(1, 1, 1)), (x(1, 5), x(2, 2, 2)), (x(7, 1), x(2, 2, 2)))
def everyday_fill_diagonal(rows: Tensor, cube: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    once, again = rows.clone(), rows.clone()
    once.fill_diagonal_(0.0)
    again.fill_diagonal_(2.5, wrap=True)
    return once, again, cube.clone().fill_diagonal_(-1.0)
