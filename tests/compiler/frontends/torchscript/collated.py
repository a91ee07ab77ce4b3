"""Lists, dicts and optionals in tuples, lists and dicts: what data collators, detectors, beam searches and
caches hand around, of another structure in every call."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .programs import program, x


def ids(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


# Targets of detectors ---------------------------------------------------------------------------------


def target(n: int, first: int) -> dict[str, Tensor]:
    return {"boxes": x(n, 4).abs(), "labels": torch.arange(first, first + n), "area": x(n)}


@program(
    (x(2, 4), [target(2, 0), target(1, 5)]),
    (x(2, 4), [target(3, 1)]),
    (x(1, 4), []),
    (x(2, 4), [target(0, 1), target(1, 1), target(4, 2), target(0, 9)]),
    (x(2, 4), [{"boxes": x(1, 4), "labels": ids(1)}]),
)
def detection_losses(predicted: Tensor, targets: list[dict[str, Tensor]]) -> tuple[Tensor, list[int]]:
    total = torch.zeros(1)
    counts: list[int] = []
    for t in targets:
        boxes = t["boxes"]
        counts.append(boxes.size(0))
        for i in range(boxes.size(0)):
            distance = (predicted - boxes[i]).abs().sum(1)
            total = total + distance.min() * (t["labels"][i] + 1) + t["area"][i]
    return total, counts


@program(
    ([x(3, 4).abs(), x(1, 4).abs()], [x(3), x(1)], 0.0),
    ([x(5, 4).abs()], [x(5)], -0.5),
    ([], [], 0.5),
    ([x(0, 4), x(2, 4), x(7, 4)], [x(0), x(2), x(7)], 0.1),
)
def detections(boxes: list[Tensor], scores: list[Tensor], least: float) -> list[dict[str, Tensor]]:
    found: list[dict[str, Tensor]] = []
    for i, score in enumerate(scores):
        keep = torch.nonzero(score > least).squeeze(1)
        found.append({"boxes": boxes[i][keep], "scores": score[keep], "labels": keep + 1})
    return found


@program(
    ([{"a": x(2), "b": x(3)}, {"a": x(1)}], ["a", "b"]),
    ([{"b": x(1)}], ["b"]),
    ([], ["a"]),
    ([{"x": x(2), "y": x(2), "a": x(2)}, {}, {"z": x(5)}], ["z", "a", "q"]),
)
def features_of_rows(rows: list[dict[str, Tensor]], names: list[str]) -> tuple[list[float], int]:
    found: list[float] = []
    n = 0
    for name in names:
        total = 0.0
        for row in rows:
            if name in row:
                total += float(row[name].sum())
            n += len(row)
        found.append(total)
    return found, n


@program(
    ([{"tokens": [1, 2], "labels": [0]}, {"tokens": [3], "labels": []}], 0),
    ([{"tokens": [4, 5, 6]}], -1),
    ([], 7),
    ([{"tokens": [], "extra": [1, 1]}, {"tokens": [2]}, {"tokens": [3, 3, 3, 3, 3], "labels": [1]}], 9),
    ([{"tokens": [1]}, {"labels": [2]}], 0),
)
def collate(
    examples: list[dict[str, list[int]]], padding: int
) -> tuple[list[list[int]], list[int], list[str]]:
    longest = 0
    for example in examples:
        longest = max(longest, len(example["tokens"]))
    rows: list[list[int]] = []
    lengths: list[int] = []
    keys: list[str] = []
    for example in examples:
        row = example["tokens"]
        rows.append(row + [padding] * (longest - len(row)))
        lengths.append(len(row))
        for key, _ in example.items():
            if key not in keys:
                keys.append(key)
    return rows, lengths, keys


@program(
    ([{"ids": x(3), "weight": x(1)}, {"ids": x(2), "weight": x(1)}],),
    ([{"ids": x(1), "weight": x(1)}],),
    ([{"ids": x(4)}, {"ids": x(2)}, {"ids": x(5)}],),
    ([{"a": x(1), "b": x(2), "c": x(3)}, {"a": x(1), "b": x(1), "c": x(2)}],),
)
def collated_tensors(batch: list[dict[str, Tensor]]) -> dict[str, list[Tensor]]:
    found: dict[str, list[Tensor]] = {}
    for example in batch:
        for key, value in example.items():
            if key not in found:
                found[key] = [value]
            else:
                found[key].append(value)
    return found


# Lists and dicts in tuples -----------------------------------------------------------------------------


@program(
    (([x(2), x(3)], x(1)),),
    (([], x(4)),),
    (([x(1)], x(2)),),
    (([x(2), x(2), x(0), x(9), x(1)], x(3)),),
)
def a_list_in_a_tuple(pair: tuple[list[Tensor], Tensor]) -> tuple[Tensor, int]:
    parts, bias = pair
    total = bias
    for part in parts:
        total = total + part.sum()
    return total, len(parts)


_FIELDS = [("features", list[Tensor]), ("scale", Tensor), ("names", list[str])]
Batch = NamedTuple("Batch", _FIELDS)


@program(
    (Batch([x(2), x(3)], x(1), ["a"]), "a"),
    (Batch([x(1)], x(1), ["a", "b", "a"]), "a"),
    (Batch([], x(2), []), "b"),
    (Batch([x(4), x(1), x(2)], x(3), ["c", "b"]), "b"),
)
def a_named_tuple(batch: Batch, name: str) -> tuple[Tensor, int]:
    total = batch.scale
    for feature in batch.features:
        total = total * feature.sum()
    n = 0
    for each in batch.names:
        if each == name:
            n += 1
    return total, n


@program(
    ((({"a": x(2)}, [1, 2]), "k"), x(2)),
    ((({}, []), "other"), x(3)),
    ((({"c": x(1), "d": x(1)}, [7]), "c"), x(1)),
    ((({"c": x(3), "k": x(1)}, [1, 1, 1, 1]), "k"), x(3)),
)
def a_dict_in_a_tuple_in_a_tuple(
    state: tuple[tuple[dict[str, Tensor], list[int]], str], y: Tensor
) -> tuple[Tensor, list[int]]:
    (table, counts), key = state
    for value in table.values():
        y = y + value.sum()
    if key in table:
        y = y * table[key]
    return y, counts


@program(
    (x(2), ([(0, [1, 2]), (1, [])], {"k": [0.5]})),
    (x(2), ([], {})),
    (x(1), ([(3, [4])], {"a": [], "b": [1.0, 2.0]})),
    (x(3), ([(1, [1, 1, 1]), (2, [5]), (0, [])], {"c": [0.25]})),
)
def lists_of_lists_in_a_tuple(
    y: Tensor, both: tuple[list[tuple[int, list[int]]], dict[str, list[float]]]
) -> tuple[Tensor, list[str]]:
    rows, rates = both
    for i, row in rows:
        for k in row:
            y = y + i * k
    names: list[str] = []
    for name, values in rates.items():
        names.append(name)
        for value in values:
            y = y * value
    return y, names


@program(
    (([x(2), x(3)], [1]), 1),
    (([x(4)], [1, 2, 3]), 3),
    (([x(4), x(4), x(1)], []), 0),
    (([], [5, 6]), 2),
)
def a_tuple_handed_on(
    pair: tuple[list[Tensor], list[int]], n: int
) -> tuple[tuple[list[Tensor], list[int]], bool]:
    return pair, len(pair[1]) == n


# Caches ------------------------------------------------------------------------------------------------


@program(
    (x(1, 1, 4), [(x(1, 2, 4), x(1, 2, 4)), (x(1, 2, 4), x(1, 2, 4))]),
    (x(1, 1, 4), [(x(1, 5, 4), x(1, 5, 4))]),
    (x(1, 1, 4), []),
    (x(1, 1, 4), [(x(1, n, 4), x(1, n, 4)) for n in (0, 1, 3)]),
)
def grows_caches(
    token: Tensor, caches: list[tuple[Tensor, Tensor]]
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    made: list[tuple[Tensor, Tensor]] = []
    for keys, values in caches:
        keys = torch.cat([keys, token], 1)
        values = torch.cat([values, token * 2], 1)
        weights = torch.softmax(torch.matmul(token, keys.transpose(1, 2)), -1)
        token = token + torch.matmul(weights, values)
        made.append((keys, values))
    return token, made


@program(
    (x(2), [(x(2), x(3)), (x(1), None)]),
    (x(2), [(x(2), None)]),
    (x(2), []),
    (x(2), [(x(3), x(1)), (x(3), x(0)), (x(2), None), (x(2), x(2))]),
)
def tuples_with_optionals(y: Tensor, layers: list[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, int]:
    n = 0
    for weight, bias in layers:
        y = y * weight.sum()
        if bias is not None:
            y = y + bias.sum()
            n += 1
    return y, n


@program(
    ({"a": [(1, "x"), (2, None)], "b": []},),
    ({},),
    ({"c": [(5, None)]},),
    ({"d": [(1, "y"), (1, "y")], "e": [(0, None)], "f": [(2, "")]},),
)
def optionals_three_levels_down(table: dict[str, list[tuple[int, str | None]]]) -> tuple[int, list[str]]:
    total = 0
    names: list[str] = []
    for rows in table.values():
        for n, name in rows:
            total += n
            if name is not None:
                names.append(name)
    return total, names


@program(
    ([[(0, 1.0), (1, 2.0)], [(2, 0.5)]], {"n": [{"k": 1}, {}]}),
    ([], {}),
    ([[], [(7, 7.0)]], {"m": [], "n": [{"a": 1, "b": 2}]}),
    ([[(1, 1.0)], [(1, 1.0)], [(1, 1.0)]], {"z": [{"k": 3}], "n": [{}, {}, {"k": 9, "j": 1}]}),
)
def three_levels(
    rows: list[list[tuple[int, float]]], tables: dict[str, list[dict[str, int]]]
) -> tuple[float, int, list[dict[str, int]]]:
    total = 0.0
    for row in rows:
        for i, value in row:
            total += i * value
    n = 0
    for entries in tables.values():
        for entry in entries:
            for value in entry.values():
                n += value
    if "n" in tables:
        return total, n, tables["n"]
    return total, n, []


# Made by programs --------------------------------------------------------------------------------------


@program((ids(3, 1, 3, 2),), (ids(1),), (ids(),), (ids(5, 5, 5, 5, 2, 0, 2),))
def positions_by_value(values: Tensor) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for i in range(values.size(0)):
        key = int(values[i])
        if key in found:
            found[key].append(i)
        else:
            found[key] = [i]
    return found


@program((["a", "b", "a"], 2), (["x"], 1), (["b", "b", "b", "c"], 3), ([], 2))
def counts_of_words(words: list[str], n: int) -> list[dict[str, int]]:
    found: list[dict[str, int]] = []
    for i in range(n):
        counts: dict[str, int] = {}
        for word in words:
            key = word + str(i)
            counts[key] = counts.get(key, 0) + 1
        found.append(counts)
    return found


@program((x(3, 5), 2, 3), (x(1, 4), 1, 2), (x(4, 6), 3, 1), (x(2, 3), 3, 0))
def beams_of_tokens(scores: Tensor, width: int, n_steps: int) -> list[tuple[float, list[int]]]:
    beams: list[tuple[float, list[int]]] = [(0.0, [0])]
    for step in range(min(n_steps, scores.size(0))):
        candidates: list[tuple[float, list[int]]] = []
        for score, tokens in beams:
            for k in range(scores.size(1)):
                candidates.append((score + float(scores[step, k]), tokens + [k]))
        best: list[tuple[float, list[int]]] = []
        for _ in range(min(width, len(candidates))):
            at = 0
            for i in range(len(candidates)):
                if candidates[i][0] > candidates[at][0]:
                    at = i
            best.append(candidates[at])
            candidates[at] = (-1e9, [0])
        beams = best
    return beams


@program(
    ([{"words": ["a", "b"], "tags": ["X", "Y"]}, {"words": ["c"], "tags": ["X"]}], {"X": 0, "Y": 1}),
    ([{"words": [], "tags": []}], {"X": 3}),
    ([], {}),
    ([{"words": ["q"], "tags": ["Z"]}] * 3, {"Z": 1, "Y": 2}),
    ([{"words": ["q"], "tags": ["N"]}], {"Z": 1}),
)
def tag_numbers(
    sentences: list[dict[str, list[str]]], numbers: dict[str, int]
) -> list[list[tuple[str, int]]]:
    found: list[list[tuple[str, int]]] = []
    for sentence in sentences:
        row: list[tuple[str, int]] = []
        words, tags = sentence["words"], sentence["tags"]
        for i in range(len(words)):
            row.append((words[i], numbers[tags[i]]))
        found.append(row)
    return found


@program(
    ([{"a": 1}, {"b": 2}], "c"),
    ([{}], "a"),
    ([{"a": 1, "b": 2}, {"a": 5}, {"z": 0}], "a"),
    ([{"q": 3}, {}, {"c": 1}, {"c": 2}], "c"),
)
def changes_dicts_where_they_lie(rows: list[dict[str, int]], key: str) -> list[dict[str, int]]:
    for i in range(len(rows)):
        rows[i][key] = rows[i].get(key, 0) + i
    rows.append({key: -1})
    return rows
