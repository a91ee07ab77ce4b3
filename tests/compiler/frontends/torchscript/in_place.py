"""Lists and dicts of any structure whose tensors a program changes in place: the caller's change, too."""

from __future__ import annotations

import torch
from torch import Tensor

from .programs import program, x


@program(
    ([x(2), x(2)], x(2)),
    ([], x(3)),
    ([x(3)], x(3)),
    ([x(1), x(1), x(1), x(1), x(1)], x(1)),
)
def adds_to_each(xs: list[Tensor], y: Tensor) -> Tensor:
    for t in xs:
        t += y
    return xs[0] * 2 if len(xs) > 0 else y


@program(
    ([x(2), x(2)], 1),
    ([x(3)], 0),
    ([x(1) for _ in range(5)], 4),
    ([x(2), x(2), x(2)], -1),
    ([x(2), x(2)], 2),
)
def changes_at_positions(xs: list[Tensor], at: int) -> tuple[Tensor, list[Tensor]]:
    for i in range(len(xs)):
        xs[i] += i
    xs[at].mul_(2.0)
    xs[0][0] = 7.0
    xs[-1][:1] -= 1.0
    return torch.stack(xs).sum(0), xs


@program(
    ({"a": x(2), "b": x(3)}, "a"),
    ({"b": x(1)}, "b"),
    ({"z": x(1), "c": x(2), "d": x(1)}, "c"),
    ({"z": x(1)}, "q"),
)
def changes_at_a_key(table: dict[str, Tensor], key: str) -> tuple[Tensor, float]:
    table[key].add_(1.0)
    total = 0.0
    for value in table.values():
        total += float(value.sum())
    return table[key] * 2, total


@program(
    ([x(4), x(2)], [x(4), x(2)], 0.5),
    ([x(1)], [x(1)], 0.1),
    ([], [], 0.1),
    ([x(2), x(3), x(5)], [x(2), x(3), x(5)], 2.0),
)
def descends(weights: list[Tensor], gradients: list[Tensor], rate: float) -> int:
    for weight, gradient in zip(weights, gradients):  # noqa: B905 (TorchScript's has no strict)
        weight.sub_(gradient * rate)
    return len(weights)


@program(
    ({"w": x(2), "b": x(1)}, {"w": x(2), "b": x(1)}, 0.9),
    ({"w": x(3)}, {"w": x(3)}, 0.5),
    ({}, {}, 0.5),
    ({"a": x(1), "b": x(2), "c": x(3)}, {"c": x(3), "a": x(1), "b": x(2)}, 0.1),
    ({"a": x(1)}, {"b": x(1)}, 0.1),
)
def moving_averages(averages: dict[str, Tensor], values: dict[str, Tensor], decay: float) -> int:
    for name, average in averages.items():
        average.mul_(decay).add_(values[name], alpha=1 - decay)
    return len(values)


@program(
    ([{"boxes": x(2, 4), "labels": torch.arange(2)}],),
    ([],),
    ([{"boxes": x(n, 4), "labels": torch.arange(n)} for n in (2, 0, 1)],),
    ([{"boxes": x(1, 4), "labels": torch.arange(1)}] * 1,),
)
def scales_targets(targets: list[dict[str, Tensor]]) -> int:
    for target in targets:
        target["boxes"].mul_(2.0)
        target["labels"].add_(1)
    return len(targets)


@program(
    ([(x(2, 3), x(2, 3))], x(3)),
    ([], x(3)),
    ([(x(2, 3), x(2, 3)), (x(5, 3), x(1, 2))], x(3)),
    ([(x(1, 1), x(4, 1)), (x(1, 1), x(1, 1)), (x(3, 1), x(1, 5))], x(1)),
)
def writes_into_caches(caches: list[tuple[Tensor, Tensor]], row: Tensor) -> list[tuple[Tensor, Tensor]]:
    for keys, values in caches:
        keys[0] = row
        values[:, 1:] += 1
    return caches


@program(
    ([[x(2), x(3)], [x(1)]], 1.5),
    ([], 1.0),
    ([[], [x(4)], []], 2.0),
    ([[x(1), x(1), x(1)]], 0.0),
)
def scales_groups(groups: list[list[Tensor]], rate: float) -> float:
    total = 0.0
    for group in groups:
        for t in group:
            t.mul_(rate)
            total += float(t.sum())
    return total


@program(
    (([x(2), x(2)], x(2)), True),
    (([x(1)], x(1)), False),
    (([], x(3)), True),
    (([x(3), x(3), x(3)], x(3)), True),
)
def a_list_in_a_tuple_is_changed(state: tuple[list[Tensor], Tensor], flag: bool) -> Tensor:
    parts, bias = state
    for part in parts:
        if flag:
            part.add_(bias)
        else:
            part.zero_()
    bias.add_(1)
    return bias


@program(
    ([x(2), x(2)], True),
    ([x(2), x(2), x(2)], False),
    ([x(1)], True),
    ([x(1)], False),
)
def changed_in_one_branch(xs: list[Tensor], flag: bool) -> Tensor:
    last = xs[len(xs) - 1]
    if flag:
        last.add_(1)
    total = torch.zeros(1)
    for t in xs:
        total = total + t.sum()
    return total + last.sum()


@program((x(3), 2), (x(1), 1), (x(2), 5), (x(4), 3))
def changes_its_own_list(a: Tensor, n: int) -> tuple[list[Tensor], Tensor]:
    rows: list[Tensor] = []
    for i in range(n):
        rows.append(a * i)
    for row in rows:
        row += 1
    rows[n - 1].mul_(3)
    return rows, torch.stack(rows)


@program(([x(2), x(2)], [x(2), x(2)]), ([x(1)], [x(1)]), ([], []), ([x(3), x(2), x(1)], [x(3), x(2), x(1)]))
def clones_are_apart(xs: list[Tensor], ys: list[Tensor]) -> list[Tensor]:
    copies = [t.clone() for t in xs]
    for i in range(len(copies)):
        copies[i] += ys[i]
        ys[i].copy_(xs[i])
    return copies


@program((x(4), torch.tensor([1.0, 2.0, -3.0, 0.5])), (x(1), x(1).exp()), (x(0), x(0)))
def powers_and_quotients(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (a * 3).floor_divide_(b), a.abs().pow_(b), a.abs().double().float_power_(b)


@program(
    (torch.tensor([True, False, True]), torch.tensor([True, True, False]), torch.tensor([9, 4, 3])),
    (torch.tensor([False]), torch.tensor([True]), torch.tensor([7])),
    (torch.tensor([True]), torch.tensor([True]), torch.tensor([0])),
)
def bits_in_place(a: Tensor, b: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    c, m = b.clone(), n.clone()
    a &= b
    c |= a
    c ^= b
    m <<= 2
    m |= 1
    m &= n
    m ^= 3
    n >>= n % 3
    return a, c, m


@program((x(3, 3),), (x(2, 2),), (x(1, 1),), (x(0, 0),))
def einsum_gives_a_view(a: Tensor) -> tuple[Tensor, Tensor]:
    turned = torch.einsum("ij->ji", a)
    turned += torch.arange(a.size(0))
    return a * 2, turned


@program((x(3, 4),), (x(1, 2),), (x(5, 6),))
def parts_of_columns(a: Tensor) -> Tensor:
    left, right = torch.hsplit(a, 2)
    left += 1
    right *= 2
    return a + 1
