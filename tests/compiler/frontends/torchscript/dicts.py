"""Programs with dicts whose keys are computed when a call runs."""

from __future__ import annotations

import torch
from torch import Tensor

from .programs import program, x

WORDS = torch.tensor([3, 1, 3, 2, 1, 3])


@program(WORDS, torch.tensor([7]), torch.tensor([-1, -1, 0, 9, 9]), torch.zeros(0, dtype=torch.int64))
def counts_words(words: Tensor) -> tuple[list[int], list[int]]:
    counts: dict[int, int] = {}
    for i in range(words.size(0)):
        word = int(words[i])
        if word in counts:
            counts[word] += 1
        else:
            counts[word] = 1
    return list(counts.keys()), list(counts.values())


@program((WORDS, 3), (torch.tensor([7, 7]), 1), (torch.tensor([2, 4, 2, 4, 5]), 4))
def counts_with_a_default(words: Tensor, wanted: int) -> tuple[int, int, int]:
    counts: dict[int, int] = {}
    for i in range(words.size(0)):
        word = int(words[i].item())
        counts[word] = counts.get(word, 0) + 1
    return counts.get(wanted, -1), len(counts), sum(counts.values())


@program(1, 10, 40)
def fibonacci_with_a_memory(n: int) -> int:
    known: dict[int, int] = {0: 0, 1: 1}
    for i in range(2, n + 1):
        known[i] = known[i - 1] + known[i - 2]
    return known[n]


@program(
    (x(4, 3), torch.tensor([5, 2, 5, 9]), 5), (x(2, 2), torch.tensor([1, 1]), 1), (x(3, 1), WORDS[:3], 8)
)
def rows_by_key(rows: Tensor, keys: Tensor, wanted: int) -> Tensor:
    sums: dict[int, Tensor] = {}
    for i in range(rows.size(0)):
        key = int(keys[i])
        if key in sums:
            sums[key] = sums[key] + rows[i]
        else:
            sums[key] = rows[i]
    return sums[wanted] * 2


@program((WORDS, "w"), (torch.tensor([5, 5]), "x"), (torch.tensor([10, 20, 10]), ""))
def keys_are_strings(words: Tensor, prefix: str) -> tuple[list[str], list[int]]:
    places: dict[str, int] = {}
    for i in range(words.size(0)):
        places[f"{prefix}{int(words[i])}"] = i
    return list(places.keys()), list(places.values())


@program((WORDS, 3), (WORDS, 8), (torch.tensor([4]), 4), (torch.tensor([0, 1]), 0))
def deletes_keys(words: Tensor, unwanted: int) -> tuple[list[int], int]:
    squares: dict[int, int] = {}
    for i in range(words.size(0)):
        word = int(words[i])
        squares[word] = word * word
    if unwanted in squares:
        del squares[unwanted]
    last = squares.pop(int(words[0]), -7)
    return list(squares.keys()), last


@program((3, 4), (1, 0), (2, 9))
def adds_to_known_keys(key: int, n: int) -> tuple[int, int, bool]:
    table = {1: 10, 2: 20}
    table[key] = n
    return table[1] + table[2], len(table), 3 in table


@program((x(3), 1), (x(3), -1), (x(1), 0))
def a_branch_adds_a_key(a: Tensor, n: int) -> Tensor:
    parts = {"a": a * 2}
    if n > 0:
        parts["b"] = a + n
    out = parts["a"]
    if "b" in parts:
        out = out + parts["b"]
    return out


@program((WORDS,), (torch.tensor([4, 4]),), (torch.tensor([8, 6, 7]),))
def iterates_over_keys(words: Tensor) -> tuple[int, float]:
    weights: dict[int, float] = {}
    for i in range(words.size(0)):
        weights[int(words[i])] = float(i) / 2
    total, keys = 0.0, 0
    for key in weights:
        keys = keys * 10 + key
    for key, weight in weights.items():
        total += key * weight
    return keys, total


@program((WORDS, 2), (WORDS, 5), (torch.tensor([2]), 2))
def looks_up_an_optional(words: Tensor, key: int) -> int:
    places: dict[int, int] = {}
    for i in range(words.size(0)):
        places[int(words[i])] = i
    found = places.get(key)
    if found is None:
        return -1
    return found + 100


@program((3, 1), (1, 1), (2, 5))
def looks_up_an_optional_among_known_keys(key: int, n: int) -> int:
    table = {1: 10, 2: 20}
    found = table.get(key)
    return n if found is None else found


@program((WORDS, WORDS + 1), (WORDS[:1], WORDS[:2]), (torch.tensor([1, 2]), torch.tensor([3, 2])))
def joins_two_dicts(a: Tensor, c: Tensor) -> tuple[list[int], list[int]]:
    one: dict[int, int] = {}
    other: dict[int, int] = {}
    for i in range(a.size(0)):
        one[int(a[i])] = i
    for i in range(c.size(0)):
        other[int(c[i])] = 100 + i
    one.update(other)
    return list(one.keys()), list(one.values())


@program((WORDS,), (torch.tensor([4]),), (torch.tensor([0, 1, 0]),))
def groups_places(words: Tensor) -> tuple[list[int], list[int]]:
    first: dict[int, int] = {}
    for i in range(words.size(0)):
        first.setdefault(int(words[i]), i)
    copy = first.copy()
    copy[-5] = 5
    first.clear()
    first[len(copy)] = 1
    return list(first.keys()), sorted(copy.values())


@program((torch.tensor([1, 2, 3]), 2), (torch.tensor([1]), 7), (torch.tensor([0, 0]), 0))
def the_key_must_be_there(keys: Tensor, wanted: int) -> int:
    table: dict[int, int] = {}
    for i in range(keys.size(0)):
        table[int(keys[i])] = i
    return table[wanted]


@program((x(2, 3), 1), (x(1, 4), 2), (x(3, 3), 0))
def tuples_as_values(a: Tensor, n: int) -> Tensor:
    states: dict[int, tuple[Tensor, int]] = {}
    for i in range(a.size(0)):
        states[i * n] = (a[i], i + n)
    h, k = states[0]
    return h * k


@program(
    ({"a": x(2), "b": x(3)}, "a"),
    ({"a": x(2), "b": x(3)}, "b"),
    ({"a": x(5), "b": x(1)}, "b"),
    ({"a": x(5), "b": x(1)}, "c"),
)
def values_of_several_sizes(parts: dict[str, Tensor], key: str) -> Tensor:
    found = parts[key] * 2
    return found.sum() + found.size(0)
