"""A list that may be in two lists, or have two names, is refused where a program would have to know."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import shapevm

# Lists that may be in two lists ----------------------------------------------------------------------


def changed_in_a_copy(a: Tensor) -> list[list[int]]:
    rows: list[list[int]] = []
    for i in range(a.size(0)):
        rows.append([i])
    again = rows.copy()
    again[0].append(9)
    return again


def copied_then_changed(a: Tensor) -> list[list[int]]:
    rows: list[list[int]] = []
    for i in range(a.size(0)):
        rows.append([i])
    again = rows[:]
    rows[0].append(9)
    return again


def twice_in_one_list(a: Tensor) -> list[list[int]]:
    rows: list[list[int]] = []
    for i in range(a.size(0)):
        rows.append([i])
    rows.append(rows[0])
    rows[0].append(9)
    return rows


def given_then_changed(a: Tensor) -> list[list[int]]:
    rows: list[list[int]] = []
    cur: list[int] = []
    for i in range(a.size(0)):
        if int(a[i]) > 1:
            rows.append(cur)
        cur.append(i)
    return rows


def used_after_elements_moved(a: Tensor) -> tuple[list[list[int]], list[int]]:
    rows: list[list[int]] = []
    for i in range(a.size(0)):
        rows.append([i])
    x = rows[0]
    rows.insert(0, [7])
    x.append(5)
    return rows, x


def twice_in_a_known_list(a: Tensor) -> list[list[int]]:
    row = [0]
    rows = [row, row]
    k = int(a[0]) % 2
    rows[k].append(5)
    return rows


def values_before_a_change(a: Tensor) -> tuple[list[int], list[list[int]]]:
    d: dict[int, list[int]] = {}
    for i in range(a.size(0)):
        k = int(a[i])
        if k not in d:
            d[k] = [i]
        else:
            d[k].append(i)
    vals = list(d.values())
    k0 = int(a[0])
    d[k0].append(77)
    return list(d.keys()), vals


def in_two_lists(a: Tensor) -> list[list[int]]:
    a1: list[list[int]] = []
    b1: list[list[int]] = []
    for i in range(a.size(0)):
        row = [i]
        a1.append(row)
        b1.append(row)
    a1[0].append(5)
    return b1


def listed_again_then_changed(a: Tensor) -> list[list[int]]:
    rows: list[list[int]] = []
    for i in range(a.size(0)):
        rows.append([i])
    other: list[list[int]] = []
    for row in rows:
        other.append(row)
    rows[0].append(9)
    return other


def repeated(a: Tensor) -> list[list[int]]:
    rows = [[0]] * a.size(0)
    rows[0].append(3)
    return rows


def read_after_its_element_changed(a: Tensor) -> tuple[int, list[int]]:
    d: dict[int, list[int]] = {}
    n = 0
    for i in range(a.size(0)):
        row = [i]
        d[int(a[i])] = row
        d[int(a[i])].append(7)
        n += len(row)
    return n, list(d.keys())


# Names that may be of one list ------------------------------------------------------------------------


def changed_by_the_other_name(a: Tensor) -> tuple[int, int]:
    x = [1, 2]
    y = x if int(a[0]) > 2 else [7, 8]
    y.append(5)
    return len(x), len(y)


def changed_by_its_first_name(a: Tensor) -> tuple[int, int]:
    x = [1, 2]
    y = x if int(a[0]) > 2 else [7, 8]
    x.append(5)
    return len(x), len(y)


def tensors_by_two_names(a: Tensor) -> tuple[Tensor, int]:
    x = [a]
    if int(a[0]) > 2:
        y = x
    else:
        y = [a, a]
    y.append(a * 2)
    return x[-1], len(y)


def a_dict_by_two_names(a: Tensor) -> tuple[int, int]:
    x = {1: 2}
    y = x if int(a[0]) > 2 else {3: 4}
    y[9] = 10
    return len(x), len(y)


def named_again_in_a_turn(a: Tensor) -> tuple[int, int]:
    x = [1]
    y = [2]
    for i in range(a.size(0)):
        x.append(i)
        if int(a[i]) == 1:
            y = x
    y.append(100)
    return len(x), len(y)


def one_list_in_one_way(a: Tensor) -> tuple[int, int]:
    if int(a[0]) > 2:
        p = [1]
        q = p
    else:
        p = [1]
        q = [2]
    p.append(3)
    return len(p), len(q)


def an_optional_list(a: Tensor) -> int:
    x = [1, 2]
    y: list[int] | None = None
    if int(a[0]) > 2:
        y = x
    if y is not None:
        y.append(4)
    return len(x)


def in_a_dict_of_one_way(a: Tensor) -> tuple[int, int]:
    x = [1, 2]
    if int(a[0]) > 2:
        d = {"a": x}
    else:
        d = {"a": [7]}
    d["a"].append(5)
    return len(x), len(d["a"])


def in_a_tuple_of_one_way(a: Tensor) -> tuple[int, int]:
    x = [1, 2]
    pair = (x, 1) if int(a[0]) > 2 else ([7], 1)
    pair[0].append(5)
    return len(x), len(pair[0])


ALIASES = [
    changed_in_a_copy,
    copied_then_changed,
    twice_in_one_list,
    given_then_changed,
    used_after_elements_moved,
    twice_in_a_known_list,
    values_before_a_change,
    in_two_lists,
    listed_again_then_changed,
    repeated,
    read_after_its_element_changed,
    changed_by_the_other_name,
    changed_by_its_first_name,
    tensors_by_two_names,
    a_dict_by_two_names,
    named_again_in_a_turn,
    one_list_in_one_way,
    an_optional_list,
    in_a_dict_of_one_way,
    in_a_tuple_of_one_way,
]


@pytest.mark.parametrize("function", ALIASES)
def test_lists_that_may_be_in_two_places_are_refused(function: Any) -> None:
    with pytest.raises(shapevm.UnsupportedOp, match=r"a list (in a list |or dict )?is (changed|read|used)"):
        shapevm.compile(torch.jit.script(function), args=(torch.tensor([3, 1, 2, 0]),))
