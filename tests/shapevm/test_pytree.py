"""Nested values as leaves and back."""

import sys
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from shapevm.vm.errors import ArgumentError

from shapevm.pytree import (
    LEAF,
    call_paths,
    flatten,
    flatten_call,
    from_json,
    n_leaves,
    paths,
    to_json,
    unflatten,
)

FIX = ": compile it with an example of this argument"
Point = namedtuple("Point", "x y")
POINT = {"namedtuple": f"{__name__}:Point", "fields": {"x": LEAF, "y": {"list": [LEAF, LEAF]}}}
NESTED = {"dict": {"a": {"tuple": [LEAF, {"constant": None}]}, "b": POINT}}
SIGNATURE = {
    "positional": ["x", "y"],
    "parameters": {"x": LEAF, "y": {"list": [LEAF, LEAF]}, "z": {"constant": None}},
}


def test_round_trip() -> None:
    value = {"a": (1, None), "b": Point(2, [3, 4])}
    assert flatten(value, NESTED) == [1, 2, 3, 4]
    assert paths(NESTED) == ["a.0", "b.x", "b.y.0", "b.y.1"]
    assert n_leaves(NESTED) == 4
    assert from_json(to_json(NESTED)) == NESTED
    sys.modules.setdefault(__name__, sys.modules.get(__name__) or type(sys)(__name__))
    result = unflatten([1, 2, 3, 4], NESTED)
    assert flatten(result, NESTED) == [1, 2, 3, 4] and result["a"] == (1, None)


def test_classes_of_modules_that_are_not_loaded_become_dicts() -> None:
    structure = {"object": "no_such_module:Output", "fields": {"value": LEAF}}
    assert unflatten([1], structure) == {"value": 1}


def test_names_that_are_no_records_are_not_called() -> None:
    assert unflatten([1], {"object": "os:system", "fields": {"command": LEAF}}) == {"command": 1}


def test_int_keys() -> None:
    structure = {"dict": {"0": LEAF, "7": LEAF}, "int_keys": True}
    assert unflatten([1, 2], structure) == {0: 1, 7: 2}
    assert flatten({7: 2, 0: 1}, structure) == [1, 2]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, [2, 3]), {}),
        ((1,), {"y": [2, 3]}),
        ((), {"y": [2, 3], "x": 1}),
        ((1, [2, 3]), {"z": None, "w": None}),
    ],
)
def test_calls(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert flatten_call(args, kwargs, SIGNATURE) == [1, 2, 3]
    assert call_paths(SIGNATURE) == ["x", "y.0", "y.1"]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1,), {}, "argument y is missing; the program takes x, y, z"),
        ((1, [2, 3], 4), {}, "3 positional arguments are given; the program takes x, y; give z by name"),
        ((1, [2, 3]), {"x": 1}, "argument x is given twice, by position and by name"),
        ((1, [2, 3]), {"w": 1}, "argument w is unknown; the program takes x, y, z"),
        ((1, [2]), {}, "y is a list of 1; it must be a list of 2"),
        ((1, 5), {}, "y is a int; it must be a list of 2"),
        (
            (1, [2, 3]),
            {"z": 4},
            f"z is 4; the program was compiled for None{FIX}",
        ),
    ],
)
def test_wrong_calls(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        flatten_call(args, kwargs, SIGNATURE)
    assert str(caught.value) == message


def test_wrong_values() -> None:
    with pytest.raises(ArgumentError, match="3 values are given; the structure holds 4"):
        unflatten([1, 2, 3], NESTED)
    with pytest.raises(ArgumentError, match="value has the keys a; they must be a, b"):
        flatten({"a": (1, None)}, NESTED)
    with pytest.raises(ArgumentError, match="is not a structure"):
        from_json('{"what": 1}')


OPTIONAL = {"optional": {"list": [LEAF, LEAF]}, "absent": [["f32", 1], "int"]}


def test_optionals() -> None:
    assert paths(OPTIONAL, "x") == ["x.is_given", "x.0", "x.1"] and n_leaves(OPTIONAL) == 3
    assert flatten([1, 2], OPTIONAL) == [True, 1, 2]
    is_given, array, number = flatten(None, OPTIONAL)
    assert (is_given, array.shape, number) == (False, (1,), 0)
    assert unflatten([True, 1, 2], OPTIONAL) == [1, 2] and unflatten([False, 1, 2], OPTIONAL) is None
    signature = {"positional": ["x"], "parameters": {"x": OPTIONAL}}
    assert flatten_call((), {}, signature)[0] is False
    assert from_json(to_json(OPTIONAL)) == OPTIONAL


@pytest.mark.parametrize(
    "kinds", [None, [], ["int"], ["int", "no"], [["f32", -1], "int"], [["f32", 99], "int"], [[[], 1], "int"]]
)
def test_optionals_of_files_are_checked(kinds: Any) -> None:
    with pytest.raises(ArgumentError, match="is not a structure of nested values"):
        from_json(to_json({**OPTIONAL, "absent": kinds}))


def test_lists_of_any_length() -> None:
    structure = {"many": "float"}
    assert paths(structure, "x") == ["x"] and n_leaves(structure) == 1
    assert flatten([1, 2.5], structure, "x") == [[1.0, 2.5]] and flatten((), structure, "x") == [[]]
    with pytest.raises(ArgumentError, match=r"x\[1\] is a str; it must be of kind float"):
        flatten([1.0, "a"], structure, "x")
    with pytest.raises(ArgumentError, match="x is a float; it must be a list of float"):
        flatten(1.0, structure, "x")
    for kind in (None, "tensor", ["int"], ["f32", -1], ["f32", 100], ["q", 1]):
        with pytest.raises(ArgumentError, match="is not a structure of nested values"):
            from_json(to_json({"many": kind}))


def test_lists_of_tensors_of_any_length() -> None:
    structure = from_json(to_json({"many": ["f32", 1]}))
    arrays = [np.zeros(3, np.float32), np.zeros(1, np.float32)]
    assert flatten(arrays, structure, "x") == [arrays] and flatten([], structure, "x") == [[]]
    for given, message in (
        ([*arrays, np.zeros(2)], r"x\[2\] is of f64 and rank 1; it must be of f32 and rank 1"),
        ([np.zeros((), np.float32)], r"x\[0\] is of f32 and rank 0; it must be of f32 and rank 1"),
        ([1.0], r"x\[0\] is a float; it must be a tensor of f32 and rank 1"),
        (3, "x is a int; it must be a list of tensors of f32 and rank 1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            flatten(given, structure, "x")


def test_a_list_of_one_length_says_why() -> None:
    structure = {"list": [LEAF], "why": "it is so"}
    with pytest.raises(ArgumentError, match="x is a list of 2; it must be a list of 1, because it is so"):
        flatten([1, 2], structure, "x")
