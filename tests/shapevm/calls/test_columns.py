"""Lists and dicts of any length as flat lists and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shapevm.vm.errors import ArgumentError

from shapevm.calls.columns import columns_of, described, element_names, value_of
from shapevm.calls.pytree import form

TREE = {"many": {"tuple": ["str", "int", {"many": "int"}]}}
GRAPH = {"pairs": ["str", {"many": {"many": "float"}}]}
TARGETS = {"many": {"record": {"ids": {"many": "int"}, "name": "str"}}}
WORDS = {"many": {"pairs": ["str", "int"]}}
CACHE = {"many": {"tuple": ["int", {"optional": {"tuple": ["str", "int"]}}]}}
DEEP = {"pairs": ["str", {"many": {"pairs": ["int", {"optional": "str"}]}}]}
CASES = [
    (TARGETS, [{"ids": [1, 2], "name": "a"}, {"ids": [], "name": "b"}], [[2, 0], [1, 2], ["a", "b"]]),
    (WORDS, [{"a": 1, "b": 2}, {}, {"a": 3}], [[2, 0, 1], ["a", "b", "a"], [1, 2, 3]]),
    (WORDS, [], [[], [], []]),
    (CACHE, [(1, None), (2, ("x", 3))], [[1, 2], [False, True], ["x"], [3]]),
    (DEEP, {"k": [{1: "a", 2: None}, {}]}, [["k"], [2], [2, 0], [1, 2], [True, False], ["a"]]),
    (TREE, [("a", 1, [2, 3]), ("b", 4, [])], [["a", "b"], [1, 4], [2, 0], [2, 3]]),
    (TREE, [], [[], [], [], []]),
    (GRAPH, {"x": [[1.0], []], "y": []}, [["x", "y"], [2, 0], [1, 0], [1.0]]),
    ({"many": {"many": "bool"}}, [[True], [], [False, True]], [[1, 0, 2], [True, False, True]]),
    ({"pairs": ["int", "str"]}, {3: "a"}, [[3], ["a"]]),
    ({"many": {"tuple": ["int", {"tuple": ["int", "str"]}]}}, [(1, (2, "x"))], [[1], [2], ["x"]]),
]


@pytest.mark.parametrize(("kind", "value", "columns"), CASES)
def test_there_and_back(kind: Any, value: Any, columns: Any) -> None:
    assert columns_of(value, kind, "x") == columns and value_of(columns, kind) == value
    whole = form(kind)
    assert whole.flatten(value, "x") == columns and whole.unflatten(columns) == value
    assert whole.n_leaves == len(whole.paths("x")) == len(columns)


def test_names() -> None:
    assert form(TREE).paths("t") == ["t.0", "t.1", "t.2.lengths", "t.2.items"]
    inner = ["g.values.lengths", "g.values.items.lengths", "g.values.items.items"]
    assert form(GRAPH).paths("g") == ["g.keys", *inner]
    assert form({"many": {"many": "int"}}).paths("x") == ["x.lengths", "x.items"] and element_names(
        "int", "x"
    ) == ["x"]
    assert form(TARGETS).paths("t") == ["t.ids.lengths", "t.ids.items", "t.name"]
    assert form(WORDS).paths("w") == ["w.lengths", "w.keys", "w.values"]
    assert form(CACHE).paths("c") == ["c.0", "c.1.is_given", "c.1.0", "c.1.1"]
    items = "d.values.items"
    tail = [f"{items}.keys", f"{items}.values.is_given", f"{items}.values"]
    assert form(DEEP).paths("d") == ["d.keys", "d.values.lengths", f"{items}.lengths", *tail]
    assert described(TARGETS) == "a list of dicts of 'ids': a list of int, 'name': a str"
    assert described(CACHE) == "a list of tuples of (an int, a tuple of (a str, an int) or None)"
    assert described(TREE) == "a list of tuples of (a str, an int, a list of int)"
    assert described(GRAPH) == "a dict of str to lists of lists of float"


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (TREE, [("a", 1, [2]), ("b", 2.5, [])], r"x\[1\]\[1\] is a float; it must be of kind int"),
        (TREE, [("a", 1, [2, 3]), ("b", 2, [4, "c"])], r"x\[1\]\[2\]\[1\] is a str; it must be of kind int"),
        (TREE, [("a", 1)], r"x\[0\] is a tuple of 2; it must be a tuple of \(a str, an int, a list of int\)"),
        (TREE, [("a", 1, 7)], r"x\[0\]\[2\] is a int; it must be a list of int"),
        (TREE, {"a": 1}, "x is a dict; it must be a list of tuples of"),
        (GRAPH, [1], "x is a list of 1; it must be a dict of str to lists of lists of float"),
        (GRAPH, {1: []}, "the key 1 of x is a int; it must be of kind str"),
        (GRAPH, {"k": [[1.0], [True]]}, r"x\['k'\]\[1\]\[0\] is a bool; it must be of kind float"),
        (
            {"pairs": ["str", ["f32", 1]]},
            {"k": np.zeros(2)},
            r"x\['k'\] is of f64 and rank 1; it must be of f32",
        ),
        (
            {"many": {"tuple": [["f32", 1]]}},
            [(3,)],
            r"x\[0\]\[0\] is a int; it must be a tensor of f32 and rank 1",
        ),
        (
            TARGETS,
            [{"ids": [], "name": "a"}, {"ids": ["x"], "name": ""}],
            r"x\[1\]\['ids'\]\[0\] is a str; it must",
        ),
        (TARGETS, [{"ids": []}], r"x\[0\] has the keys ids; they must be ids, name"),
        (TARGETS, [[]], r"x\[0\] is a list of 0; it must be a dict of 'ids': a list of int, 'name': a str"),
        (WORDS, [{}, {"a": 1, "b": "c"}], r"x\[1\]\['b'\] is a str; it must be of kind int"),
        (WORDS, [{"a": 1}, {2: 1}], r"the key 2 of x\[1\] is a int; it must be of kind str"),
        (CACHE, [(1, None), (1, ("a", 2.5))], r"x\[1\]\[1\]\[1\] is a float; it must be of kind int"),
        (DEEP, {"k": [{}, {1: 2}]}, r"x\['k'\]\[1\]\[1\] is a int; it must be of kind str"),
    ],
)
def test_wrong_values(kind: Any, value: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        form(kind).flatten(value, "x")


def test_columns_that_do_not_fit() -> None:
    for columns, kind in (
        ([[1], []], {"pairs": ["int", "str"]}),
        ([["a"], [], [], []], TREE),
        ([[2], ["a"], [1]], WORDS),
        ([[1, 1], [True, True], ["x"], [3]], CACHE),
    ):
        with pytest.raises(ArgumentError, match="do not fit together"):
            value_of(columns, kind)


@pytest.mark.parametrize(
    "kind",
    [
        {"many": {"tuple": []}}, {"many": {"tuple": "int"}}, {"many": {}}, {"pairs": ["int"]},
        {"pairs": [["f32", 1], "int"]}, {"pairs": [{"many": "int"}, "int"]}, {"many": {"other": "int"}},
        {"pairs": "ab"}, {"many": {"many": "tensor"}}, {"many": {"tuple": ["int", None]}},
        {"many": {"record": {}}}, {"many": {"record": ["int"]}}, {"many": {"record": {"a": 1}}},
        {"many": {"optional": {}}}, {"pairs": {"int": "int"}},
    ],
)  # fmt: skip
def test_kinds_of_files_are_checked(kind: Any) -> None:
    with pytest.raises(ArgumentError, match="the structure of the outputs: .*; it "):
        form(kind)
