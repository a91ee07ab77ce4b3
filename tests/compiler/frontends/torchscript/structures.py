"""Lists of tuples and lists, and dicts, among the arguments: other lengths and keys in every call."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .programs import program, x
from .trees import BINARY, HIDDEN

LEAF, NODE = "leaf", "node"


@program(
    (
        [(LEAF, 0, -1), (LEAF, 1, -1), (NODE, 0, 1), (LEAF, 2, -1), (NODE, 2, 3)],
        x(3, HIDDEN),
        *BINARY,
    ),
    ([(LEAF, 0, -1)], x(1, HIDDEN), *BINARY),
    ([(LEAF, 1, -1), (LEAF, 0, -1), (NODE, 0, 1)], x(2, HIDDEN), *BINARY),
    ([(LEAF, 0, 0)] * 6 + [(NODE, 2 * i, 2 * i + 1) for i in range(5)], x(1, HIDDEN), *BINARY),
    ([(LEAF, 0, 0), ("other", 0, 0)], x(1, HIDDEN), *BINARY),
)
def tree_lstm_over_tagged_tuples(
    tree: list[tuple[str, int, int]], words: Tensor, left: Tensor, right: Tensor, bias: Tensor
) -> Tensor:
    hs: list[Tensor] = []
    cs: list[Tensor] = []
    n = left.size(1)
    for tag, a, b in tree:
        if tag == "leaf":
            c = words[a]
            h = torch.tanh(c)
        elif tag == "node":
            gates = torch.mv(left, hs[a]) + torch.mv(right, hs[b]) + bias
            i_gate = torch.sigmoid(gates[:n])
            f_left = torch.sigmoid(gates[n : 2 * n])
            f_right = torch.sigmoid(gates[2 * n : 3 * n])
            o_gate = torch.sigmoid(gates[3 * n : 4 * n])
            c = i_gate * torch.tanh(gates[4 * n :]) + f_left * cs[a] + f_right * cs[b]
            h = o_gate * torch.tanh(c)
        else:
            raise ValueError("a node has another tag")
        hs.append(h)
        cs.append(c)
    return hs[-1]


@program(
    (x(2, 3), {"a": 1, "b": 2}),
    (x(2, 3), {}),
    (x(4, 1), {"c": 3}),
    (x(2, 3), {"b": 5, "a": 7, "z": 1}),
)
def sums_a_dict(a: Tensor, ks: dict[str, int]) -> tuple[Tensor, int, bool]:
    total = 0
    for key, k in ks.items():
        if key != "z":
            total += k
    return a * total, len(ks), "a" in ks


@program(
    (x(5, HIDDEN), [[1, 2], [3, 4], [], [], []], _W := x(HIDDEN, HIDDEN)),
    (x(1, HIDDEN), [[]], _W),
    (x(4, HIDDEN), [[1, 2, 3], [], [], []], _W),
    (x(3, HIDDEN), [[1], [2], []], _W),
    (x(2, HIDDEN), [[1]], _W),
)
def child_sums(features: Tensor, children: list[list[int]], w: Tensor) -> Tensor:
    n = features.size(0)
    states = torch.zeros(n, w.size(0))
    for k in range(n):
        i = n - 1 - k
        total = torch.zeros(w.size(0))
        for child in children[i]:
            total = total + states[child]
        states[i] = torch.tanh(features[i] + torch.mv(w, total))
    return states[0]


@program(
    ([(3, x(2)), (1, x(4))],),
    ([(2, x(1))],),
    ([(0, x(3)), (5, x(2)), (1, x(1)), (2, x(7))],),
    ([],),
    ([(1, x(0))],),
)
def weighted_tensors(pairs: list[tuple[int, Tensor]]) -> tuple[Tensor, list[int]]:
    total = torch.zeros(1)
    sizes: list[int] = []
    for weight, item in pairs:
        total = total + item.sum() * weight
        sizes.append(item.size(0))
    return total, sizes


@program(
    ([(0, 1, 0.5), (1, 2, 1.5), (0, 2, 4.0)], 3, 0),
    ([], 2, 1),
    ([(0, 1, 1.0)], 2, 0),
    ([(2, 1, 1.0), (1, 0, 1.0), (2, 0, 5.0), (0, 3, 2.5)], 4, 2),
)
def bellman_ford(edges: list[tuple[int, int, float]], n: int, source: int) -> list[float]:
    distance = [1e9 for _ in range(n)]
    distance[source] = 0.0
    for _ in range(n):
        for u, v, weight in edges:
            if distance[u] + weight < distance[v]:
                distance[v] = distance[u] + weight
    return distance


@program(
    ([("push", 3), ("push", 4), ("add", 0)],),
    ([("push", 7)],),
    ([("push", 2), ("push", 5), ("mul", 0), ("push", 1), ("add", 0)],),
    ([("add", 0)],),
    ([("push", 1), ("jump", 0)],),
)
def tagged_stack_machine(code: list[tuple[str, int]]) -> list[int]:
    stack: list[int] = []
    for op, operand in code:
        if op == "push":
            stack.append(operand)
            continue
        assert len(stack) >= 2, "stack underflow"
        b, a = stack.pop(), stack.pop()
        if op == "add":
            stack.append(a + b)
        elif op == "mul":
            stack.append(a * b)
        else:
            raise RuntimeError("unknown instruction")
    return stack


# The class's syntax would give TorchScript the fields' types as texts.
_FIELDS = [("label", str), ("score", float), ("at", tuple[int, int, int, int])]
Box = NamedTuple("Box", _FIELDS)


@program(
    ([Box("cat", 0.9, (0, 0, 4, 4)), Box("dog", 0.4, (1, 1, 3, 3))], 0.5),
    ([], 0.5),
    ([Box("cat", 0.3, (0, 0, 4, 4))], 0.5),
    ([Box("cat", 0.9, (0, 0, 4, 4)), Box("cat", 0.8, (1, 1, 3, 3)), Box("", 0.7, (2, 0, 2, 9))], 0.5),
)
def kept_boxes(boxes: list[Box], least: float) -> tuple[list[str], int, float]:
    names: list[str] = []
    area = 0
    best = 0.0
    for box in boxes:
        if box.score >= least:
            x0, y0, x1, y1 = box.at
            names.append(box.label)
            area += (x1 - x0) * (y1 - y0)
            best = max(best, box.score)
    return names, area, best


@program(
    ({"bos": 0, "a": 1, "b": 2, "unk": 3}, ["a", "b", "z"]),
    ({"unk": 0}, ["a"]),
    ({"a": 5, "unk": 9}, []),
    ({"x": 1, "y": 2, "unk": 7, "z": 3, "q": 4}, ["q", "x", "x", "", "z"]),
)
def encoded_words(vocabulary: dict[str, int], words: list[str]) -> list[int]:
    found: list[int] = []
    for word in words:
        if word in vocabulary:
            found.append(vocabulary[word])
        else:
            found.append(vocabulary["unk"])
    return found


@program(
    ({"user": x(2, 3), "item": x(2, 5)},),
    ({"user": x(1, 1)},),
    ({"a": x(3, 2), "b": x(3, 1), "c": x(3, 4)},),
    ({"item": x(4, 0), "user": x(4, 2)},),
    ({"item": x(4, 1), "user": x(3, 2)},),
)
def joined_features(features: dict[str, Tensor]) -> tuple[Tensor, list[str]]:
    names = sorted(list(features.keys()))  # noqa: C414 (TorchScript sorts lists alone)
    parts: list[Tensor] = []
    for name in names:
        parts.append(features[name] * 2)
    return torch.cat(parts, 1), names


@program(
    (x(2, 3), {"scale": x(3), "shift": x(3)}),
    (x(2, 3), {"scale": x(3)}),
    (x(2, 3), {"shift": x(3)}),
    (x(4, 1), {}),
    (x(2, 3), {"scale": x(2)}),
)
def entries_that_may_lack(a: Tensor, extra: dict[str, Tensor]) -> Tensor:
    if "scale" in extra:
        a = a * extra["scale"]
    shift = extra.get("shift")
    if shift is not None:
        a = a + shift
    return a


@program(
    ({1: 0.5, 2: 1.5}, 1),
    ({}, 1),
    ({7: 3.0}, 7),
    ({-1: 3.0, 0: 1.0, 5: 2.0}, 0),
)
def by_number(table: dict[int, float], key: int) -> tuple[float, float, list[int], int]:
    total = 0.0
    for value in table.values():
        total += value
    table[key] = 9.0
    return table.get(key, -1.0), total, list(table.keys()), len(table)


@program(
    ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, "a"),
    ({"a": []}, "a"),
    ({"a": ["b"], "b": ["a"], "c": ["a"]}, "c"),
    ({"s": ["t", "t"], "t": []}, "t"),
    ({"s": ["t"]}, "s"),
)
def reached_from(graph: dict[str, list[str]], start: str) -> list[str]:
    seen = [start]
    at = 0
    while at < len(seen):
        for other in graph[seen[at]]:
            if other not in seen:
                seen.append(other)
        at += 1
    return seen


@program(
    ([[x(2), x(3)], [x(1)]],),
    ([],),
    ([[], [x(4)], []],),
    ([[x(1)] * 3, [x(2)] * 2, [x(5)]],),
)
def sums_of_groups(groups: list[list[Tensor]]) -> list[float]:
    found: list[float] = []
    for group in groups:
        total = 0.0
        for item in group:
            total += float(item.sum())
        found.append(total)
    return found


@program(
    ([("a", [1, 2]), ("b", [3])],),
    ([],),
    ([("a", []), ("a", [5, 5])],),
    ([("c", [1]), ("a", [2]), ("c", [3, 4]), ("", [])],),
)
def grouped(rows: list[tuple[str, list[int]]]) -> tuple[list[str], list[int]]:
    names: list[str] = []
    totals: list[int] = []
    for name, values in rows:
        if name in names:
            totals[names.index(name)] += sum(values)
        else:
            names.append(name)
            totals.append(sum(values))
    return names, totals


@program(
    ([(1, "b"), (0, "a")],),
    ([],),
    ([(2, "z"), (2, "a"), (-1, "q")],),
    ([(0, "")],),
)
def sorted_pairs(pairs: list[tuple[int, str]]) -> tuple[list[tuple[int, str]], int]:
    pairs.append((len(pairs), "last"))
    return sorted(pairs), pairs[0][0]


@program(
    (x(3), [1, 2]),
    (x(3), None),
    (x(2), []),
    (x(4), [5, 6, 7]),
)
def perhaps_a_list(a: Tensor, ks: list[int] | None) -> Tensor:
    if ks is not None:
        for k in ks:
            a = a + k
    return a


@program(
    (x(3), None, None),
    (x(3), [("a", 2)], None),
    (x(3), None, {"a": 0.5, "b": 2.0}),
    (x(1), [("a", 3), ("b", 1), ("c", 2)], {"a": 1.5, "b": 0.5, "c": 1.0}),
    (x(1), [("a", 3)], {}),
)
def none_in_the_example(
    a: Tensor, steps: list[tuple[str, int]] | None, rates: dict[str, float] | None
) -> Tensor:
    if rates is None:
        rates = {"a": 1.0}
    if steps is None:
        return a * rates["a"]
    for name, n in steps:
        a = a + n * rates[name]
    return a


@program(
    ([0, 2, 1], None),
    ([0, 2, 1], (1, 2.5)),
    ([4], (3, 0.5)),
    ([], None),
)
def perhaps_a_tuple(ks: list[int], window: tuple[int, float] | None) -> float:
    n, rate = 10, 1.0
    if window is not None:
        n, rate = window
    total = 0.0
    for k in ks[:n]:
        total += k * rate
    return total


@program(
    (x(4, 3), [(0, 2), (1, 3)]),
    (x(4, 3), []),
    (x(2, 3), [(0, 1)]),
    (x(5, 1), [(4, 5), (0, 5), (2, 2)]),
)
def spans(a: Tensor, pieces: list[tuple[int, int]]) -> list[Tensor]:
    return [a[start:end].sum(0) for start, end in pieces]


@program(
    ({"h": x(2, 3), "c": x(2, 3)}, x(2, 3)),
    ({"h": x(1, 3), "c": x(1, 3)}, x(1, 3)),
    ({"h": x(5, 1), "c": x(5, 1)}, x(5, 1)),
)
def known_keys_alone(state: dict[str, Tensor], a: Tensor) -> dict[str, Tensor]:
    h = torch.tanh(a + state["h"])
    return {"h": h, "c": state["c"] * h}


@program(
    ({"a": x(2, 3), "b": x(2, 1)}, 2.0),
    ({}, 2.0),
    ({"c": x(4, 4)}, 0.5),
    ({"z": x(0, 1), "y": x(1, 1), "a": x(1, 3)}, -1.0),
)
def given_back_by_key(features: dict[str, Tensor], rate: float) -> tuple[dict[str, Tensor], dict[str, int]]:
    found: dict[str, Tensor] = {}
    sizes: dict[str, int] = {}
    for name, feature in features.items():
        found[name] = feature * rate
        sizes[name] = feature.size(1)
    return found, sizes


@program(
    (torch.tensor([3, 1, 3]),), (torch.tensor([2, 2, 2, 2]),), (torch.tensor([7]),), (torch.tensor([-1, 0]),)
)
def histogram(values: Tensor) -> dict[int, int]:
    counts: dict[int, int] = {-1: 0}
    for i in range(values.size(0)):
        key = int(values[i])
        counts[key] = counts.get(key, 0) + 1
    return counts
