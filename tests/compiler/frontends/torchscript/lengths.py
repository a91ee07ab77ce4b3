"""Lists among the arguments whose length is another one in every call."""

from __future__ import annotations

import torch
from torch import Tensor

from .programs import program, x


@program((x(2, 3), [1, 2, 3]), (x(2, 3), []), (x(4, 1), [7]), (x(2, 3), list(range(40))))
def adds_all(a: Tensor, ks: list[int]) -> Tensor:
    for k in ks:
        a = a + k
    return a


@program((x(2, 3), [0.5, 2.0]), (x(2, 3), []), (x(4, 1), [1.5] * 5))
def scales_in_turn(a: Tensor, factors: list[float]) -> tuple[Tensor, int, float]:
    total = 0.0
    for i, factor in enumerate(factors):
        a = a * factor
        total += factor * i
    return a, len(factors), total


@program((["a", "b", "a"],), ([],), (["b"],), (["", "long word", "a", "a", "b"],))
def counts_listed_words(words: list[str]) -> tuple[int, str, list[str]]:
    n = 0
    text = "first"
    for word in words:
        if word == "a":
            n += 1
        text = text + "," + word
    return n, text, words


@program(([True, False],), ([],), ([True, True, True],))
def all_and_any(flags: list[bool]) -> tuple[int, bool]:
    n = 0
    found = True
    for flag in flags:
        if flag:
            n += 1
        else:
            found = False
    return n, found


@program(([3, 1, 2],), ([5],), ([4, 4, 9, -1],), ([],))
def changed_lists(ks: list[int]) -> tuple[list[int], int]:
    found = sorted(ks)
    found.append(len(ks))
    return [k * 2 for k in found], sum(ks)


@program((x(3, 2), [2, 0, 1]), (x(3, 2), [0]), (x(5, 2), [4, 4, 4, 4]), (x(3, 2), [7]))
def picks_rows(a: Tensor, rows: list[int]) -> Tensor:
    total = torch.zeros(a.size(1))
    for row in rows:
        total = total + a[row]
    return total


@program(([1, 2], [1, 2]), ([1], [1, 2]), ([], []), ([3, 4, 5], [3, 4, 5]))
def two_lists(a: list[int], b: list[int]) -> tuple[bool, int]:
    n = 0
    for i, j in zip(a, b):  # noqa: B905 (TorchScript knows no strict)
        n += i * j
    return len(a) == len(b), n


@program((x(2, 3), [3, 2]), (x(4, 3), [6, 2]), (x(2, 2), [2, 2]))
def fixed_where_it_must_be(a: Tensor, shape: list[int]) -> Tensor:
    n = len(shape)
    return a.reshape(shape) * n


@program(([1, 2, 3, 4, 5],), ([],), ([7],), ([4, 3, 2, 1, 0, 9, 8],))
def read_backwards(ks: list[int]) -> tuple[list[int], list[int], list[int], list[int]]:
    total = 0
    for k in ks:
        total += k
    return ks[::-1], ks[3:0:-1], ks[-2::-2], ks[:1:-1]


@program(
    ([0, 1, 2, 3, 4], 4, 0, -2),
    ([0, 1, 2, 3, 4], 1, 9, 2),
    ([0, 1], -7, 9, 3),
    ([0, 1, 2], 9, -7, -1),
    ([0, 1, 2], 9, -7, 1),
    ([], 0, 3, -1),
    ([5, 6, 7], -1, -3, -1),
)
def any_step(ks: list[int], start: int, end: int, step: int) -> list[int]:
    for _ in ks:
        pass
    return ks[start:end:step]


@program((x(3), [x(3), x(3)]), (x(3), []), (x(5), [x(5)]), (x(2), [x(2)] * 9))
def adds_tensors(a: Tensor, others: list[Tensor]) -> tuple[Tensor, int]:
    for other in others:
        a = a + other
    return a, len(others)


@program(([x(3, 2), x(1, 2)],), ([x(4, 5)],), ([x(1, 1), x(2, 1), x(0, 1)],), ([],))
def joined_rows(parts: list[Tensor]) -> tuple[Tensor, int]:
    n = 0
    for part in parts:
        n += part.size(0)
    return torch.cat(parts), n


@program((x(2), [x(3), x(1)], 1), (x(2), [x(4)], -1), (x(2), [], 0), (x(7), [x(4)], 5))
def appended_tensors(a: Tensor, parts: list[Tensor], i: int) -> tuple[Tensor, Tensor, int]:
    parts.append(a * 2)
    return parts[i], parts[-1] + 1, len(parts)


@program(([x(3), x(2)],), ([x(3)],), ([x(1), x(1), x(1)],), ([],))
def given_back(parts: list[Tensor]) -> list[Tensor]:
    found: list[Tensor] = []
    for part in parts:
        if part.size(0) > 1:
            found.append(part * 2)
    return found


@program(([x(3), x(3)],), ([x(2), x(2)],), ([x(4), x(4)],))
def changed_where_they_lie(parts: list[Tensor]) -> Tensor:
    for part in parts:
        part += 1
    return parts[0] + parts[1]


@program(([x(3), x(3)],), ([x(2), x(2)],), ([x(1), x(4)],))
def operators_that_take_known_lengths(parts: list[Tensor]) -> list[Tensor]:
    return torch.meshgrid(parts)


@program(([x(3, 2), x(3, 2)],), ([x(1, 4)],), ([x(2, 2)] * 5,), ([x(2, 2), x(3, 2)],))
def stacked_parts(parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    return torch.stack(parts, 1), torch.cat(parts, 1)


@program(([x(3), x(3)],), ([x(2)],), ([x(4)] * 5,), ([],))
def stacked_every_way(parts: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.hstack(parts), torch.vstack(parts), torch.dstack(parts), torch.column_stack(parts)


@program(([x(3, 2), x(3, 2)],), ([x(1, 4)],), ([x(2, 2)] * 5,), ([x(2, 2), x(3, 2)],))
def stacked_matrices(parts: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    return torch.vstack(parts), torch.hstack(parts[:1]), torch.column_stack(parts[:1])


@program(([x(3, 2), x(1, 4)],), ([x(1, 4)],), ([x(2, 2)] * 5,))
def blocks_on_the_diagonal(parts: list[Tensor]) -> Tensor:
    return torch.block_diag(parts)


@program(([x(3, 2), x(1, 2)], 0.5), ([x(4, 1)], 0.0), ([x(2, 2), x(7, 2), x(0, 2)], -1.0))
def padded_sequences(parts: list[Tensor], value: float) -> tuple[Tensor, Tensor]:
    padded = torch.nn.utils.rnn.pad_sequence(parts, True, value)
    return padded, torch.nn.utils.rnn.pad_sequence(parts, False, value)


@program(([x(3, 2), x(3, 2)], 1), ([x(2, 2)] * 3, 0), ([x(2, 2)] * 3, -1), ([x(2, 2)], 2))
def joined_along_any_axis(parts: list[Tensor], axis: int) -> tuple[Tensor, Tensor]:
    return torch.cat(parts, axis), torch.stack(parts, axis)


@program(([x(3), x(3)], 0), ([x(2)] * 4, 2), ([x(1)], -1), ([x(1)], 3))
def enumerated_tensors(parts: list[Tensor], i: int) -> tuple[Tensor, int, int]:
    total = parts[i] + parts[-1]
    for k, part in enumerate(parts):
        total = total + part.mean() * k
    sizes = [part.size(0) for part in parts]
    return total, max(sizes), sum(sizes)


@program(([x(3), x(3)], [x(3), x(3)]), ([x(2)], [x(2)]), ([], []), ([x(4)] * 3, [x(4)]))
def tensors_in_pairs(one: list[Tensor], other: list[Tensor]) -> list[Tensor]:
    return [a * b for a, b in zip(one, other)]  # noqa: B905 (TorchScript knows no strict)


@program(([x(3), x(3)],), ([x(1)],), ([],))
def used_up(parts: list[Tensor]) -> tuple[Tensor, int]:
    total = torch.zeros(1)
    n = 0
    while len(parts) > 0:
        total = total + parts.pop().sum()
        n += 1
    return total, n
