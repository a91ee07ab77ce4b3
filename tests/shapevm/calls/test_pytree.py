"""Nested values as leaves and back."""

import sys
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from shapevm.vm.errors import ArgumentError

from shapevm.calls.pytree import LEAF, form, read_signature, read_structure, to_json

FIX = (
    ": compile it with an example of this argument, or use shapevm.accelerate, which compiles a program for "
    "each form"
)
Point = namedtuple("Point", "x y")
POINT = {"namedtuple": f"{__name__}:Point", "fields": {"x": LEAF, "y": {"list": [LEAF, LEAF]}}}
NESTED = {"dict": {"a": {"tuple": [LEAF, {"constant": None}]}, "b": POINT}}
SIGNATURE = {
    "positional": ["x", "y"],
    "parameters": {"x": LEAF, "y": {"list": [LEAF, LEAF]}, "z": {"constant": None}},
}


def test_round_trip() -> None:
    value = {"a": (1, None), "b": Point(2, [3, 4])}
    assert form(NESTED).flatten(value) == [1, 2, 3, 4]
    assert form(NESTED).paths() == ["a.0", "b.x", "b.y.0", "b.y.1"]
    assert form(NESTED).n_leaves == 4
    sys.modules.setdefault(__name__, sys.modules.get(__name__) or type(sys)(__name__))
    result = form(NESTED).unflatten([1, 2, 3, 4])
    assert form(NESTED).flatten(result) == [1, 2, 3, 4] and result["a"] == (1, None)


def test_classes_of_modules_that_are_not_loaded_become_dicts() -> None:
    structure = {"object": "no_such_module:Output", "fields": {"value": LEAF}}
    assert form(structure).unflatten([1]) == {"value": 1}


def test_names_that_are_no_records_are_not_called() -> None:
    assert form({"object": "os:system", "fields": {"command": LEAF}}).unflatten([1]) == {"command": 1}


def test_int_keys() -> None:
    structure = {"dict": {"0": LEAF, "7": LEAF}, "int_keys": True}
    assert form(structure).unflatten([1, 2]) == {0: 1, 7: 2}
    assert form(structure).flatten({7: 2, 0: 1}) == [1, 2]


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
    assert read_signature(to_json(SIGNATURE)).flatten(args, kwargs) == [1, 2, 3]
    assert read_signature(to_json(SIGNATURE)).paths() == ["x", "y.0", "y.1"]


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
        read_signature(to_json(SIGNATURE)).flatten(args, kwargs)
    assert str(caught.value) == message


def test_wrong_values() -> None:
    with pytest.raises(ArgumentError, match="3 values are given; the structure holds 4"):
        form(NESTED).unflatten([1, 2, 3])
    with pytest.raises(ArgumentError, match="value has the keys a; they must be a, b"):
        form(NESTED).flatten({"a": (1, None)})
    with pytest.raises(ArgumentError, match="the whole is {'what': 1}; it must be"):
        read_structure('{"what": 1}')


OPTIONAL = {"optional": {"list": [LEAF, LEAF]}, "absent": [["f32", 1], "int"]}


def test_optionals() -> None:
    assert form(OPTIONAL).paths("x") == ["x.is_given", "x.0", "x.1"] and form(OPTIONAL).n_leaves == 3
    assert form(OPTIONAL).flatten([1, 2]) == [True, 1, 2]
    is_given, array, number = form(OPTIONAL).flatten(None)
    assert (is_given, array.shape, number) == (False, (1,), 0)
    assert form(OPTIONAL).unflatten([True, 1, 2]) == [1, 2]
    assert form(OPTIONAL).unflatten([False, 1, 2]) is None
    signature = {"positional": ["x"], "parameters": {"x": OPTIONAL}}
    assert read_signature(to_json(signature)).flatten((), {})[0] is False


def test_results_of_two_forms() -> None:
    either = form({"either": [LEAF, {"list": [LEAF, LEAF]}]})
    assert either.paths("y") == ["y.is_second", "y.first", "y.second.0", "y.second.1"]
    assert either.unflatten([False, 1, 2, 3]) == 1 and either.unflatten([True, 1, 2, 3]) == [2, 3]
    build = either.builder()
    assert build is not None and (build([False, 1, 2, 3]), build([True, 1, 2, 3])) == (1, [2, 3])
    with pytest.raises(ArgumentError, match="a list of 2 to 2 items"):
        form({"either": [LEAF]})


@pytest.mark.parametrize(
    "kinds", [None, [], ["int"], ["int", "no"], [["f32", -1], "int"], [["f32", 99], "int"], [[[], 1], "int"]]
)
def test_optionals_of_files_are_checked(kinds: Any) -> None:
    with pytest.raises(ArgumentError, match="the structure of the outputs: .*; it must|absent has"):
        form({**OPTIONAL, "absent": kinds})


def test_lists_of_any_length() -> None:
    structure = {"many": "float"}
    assert form(structure).paths("x") == ["x"] and form(structure).n_leaves == 1
    assert form(structure).flatten([1, 2.5], "x") == [[1.0, 2.5]] and form(structure).flatten((), "x") == [[]]
    with pytest.raises(ArgumentError, match=r"x\[1\] is a str; it must be of kind float"):
        form(structure).flatten([1.0, "a"], "x")
    with pytest.raises(ArgumentError, match="x is a float; it must be a list of float"):
        form(structure).flatten(1.0, "x")
    for kind in (None, "tensor", ["int"], ["f32", -1], ["f32", 100], ["q", 1]):
        with pytest.raises(ArgumentError, match="the structure of the outputs: .*; it must|absent has"):
            form({"many": kind})


def test_lists_of_tensors_of_any_length() -> None:
    structure = {"many": ["f32", 1]}
    arrays = [np.zeros(3, np.float32), np.zeros(1, np.float32)]
    assert form(structure).flatten(arrays, "x") == [arrays] and form(structure).flatten([], "x") == [[]]
    for given, message in (
        ([*arrays, np.zeros(2)], r"x\[2\] is of f64 and rank 1; it must be of f32 and rank 1"),
        ([np.zeros((), np.float32)], r"x\[0\] is of f32 and rank 0; it must be of f32 and rank 1"),
        ([1.0], r"x\[0\] is a float; it must be a tensor of f32 and rank 1"),
        (3, "x is a int; it must be a list of tensors of f32 and rank 1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            form(structure).flatten(given, "x")


def test_a_list_of_one_length_says_why() -> None:
    structure = {"list": [LEAF], "why": "it is so"}
    with pytest.raises(ArgumentError, match="x is a list of 2; it must be a list of 1, because it is so"):
        form(structure).flatten([1, 2], "x")
