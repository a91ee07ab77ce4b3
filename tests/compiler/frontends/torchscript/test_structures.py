"""Lists and dicts of run-time structure, given by name as flat lists; what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import shapevm
from shapevm.errors import GuardError


def total(rows: list[list[int]], weights: dict[str, float], tree: list[tuple[str, Tensor]]) -> float:
    found = 0.0
    for row in rows:
        for k in row:
            found += k
    for weight in weights.values():
        found += weight
    for _, part in tree:
        found += float(part.sum())
    return found


FLAT = {
    "rows.lengths": [1, 2], "rows.items": [1, 2, 3], "weights.keys": ["a"], "weights.values": [0.5],
    "tree.0": ["x", "y"], "tree.1": [torch.ones(2), torch.ones(1)],
}  # fmt: skip


@pytest.fixture(scope="module")
def exe() -> Any:
    example = ([[1]], {"a": 1.0}, [("x", torch.ones(3))])
    with shapevm.compile(torch.jit.script(total), example, strategy="generic") as made:
        yield made


def test_by_name(exe: shapevm.Executable) -> None:
    assert [row.name for row in exe.machine.inputs] == list(FLAT)
    tree = [("x", torch.ones(2)), ("y", torch.ones(1))]
    assert exe.run(FLAT)["output"] == exe([[1], [2, 3]], {"a": 0.5}, tree) == 9.5
    assert exe([], {}, []) == 0


LENGTHS = 'input "rows.lengths" must have numbers from 0 on, in all as many as "rows.items" has elements'


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rows.lengths", [1, 1], LENGTHS),
        ("rows.lengths", [-1, 4], LENGTHS),
        ("rows.lengths", [4, -1], LENGTHS),
        ("rows.lengths", [2**62, 2**62], LENGTHS),
        ("weights.values", [], 'input "weights.values" must have as many elements as "weights.keys"'),
        ("weights.keys", ["a", "a"], 'input "weights.keys" has a key twice; the keys of a dict must be'),
        ("tree.1", [torch.ones(2)], 'input "tree.1" must have as many elements as "tree.0"'),
    ],
)
def test_flat_lists_that_do_not_fit(exe: shapevm.Executable, name: str, value: Any, message: str) -> None:
    with pytest.raises(GuardError, match=message):
        exe.run({**FLAT, name: value})


def test_keys_of_dicts_in_a_list() -> None:
    def total(rows: list[dict[int, str]]) -> int:
        n = 0
        for row in rows:
            n += len(row)
        return n

    with shapevm.compile(torch.jit.script(total), ([{1: "a"}],), strategy="generic") as exe:
        given = {"rows.lengths": [1, 2], "rows.keys": [5, 5, 6], "rows.values": ["a", "b", "c"]}
        assert exe.run(given)["output"] == 3 == exe([{1: "", 2: ""}, {1: ""}])
        with pytest.raises(GuardError, match='input "rows.keys" has a key twice'):
            exe.run({**given, "rows.keys": [5, 6, 6]})


def test_other_elements(exe: shapevm.Executable) -> None:
    with pytest.raises(
        shapevm.ArgumentError, match=r"tree\[0\]\[1\] is of f32 and rank 2; it must be of f32 and"
    ):
        exe([], {}, [("x", torch.ones(2, 2))])
    with pytest.raises(shapevm.ArgumentError, match=r"weights\['b'\] is a str; it must be of kind float"):
        exe([], {"a": 1, "b": "c"}, [])
