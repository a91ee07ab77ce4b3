"""Functions that are written for one structure give what a walk of the structure gives."""

from collections import OrderedDict
from types import MappingProxyType

import numpy as np
import pytest
from shapevm.vm.errors import ArgumentError

from shapevm.calls import quick_forms
from shapevm.calls.pytree import LEAF, form, read_signature, to_json


def flattener(signature):
    return read_signature(to_json(signature)).flattener()


def builder(structure):
    return form(structure).builder()


def flatten_call(args, kwargs, signature):
    return read_signature(to_json(signature)).flatten(args, kwargs)


def unflatten(leaves, structure):
    return form(structure).unflatten(leaves)


NESTED = {
    "dict": {
        "pair": {"tuple": [LEAF, {"list": [LEAF]}]},
        "no": {"constant": None},
        "it's": {"dict": {"0": LEAF, "7": {"tuple": []}}, "int_keys": True},
    }
}
SIGNATURE = {"positional": ["x", "y"], "parameters": {"x": NESTED, "y": LEAF}}


def value():
    return {"pair": (1, [2]), "no": None, "it's": {0: 3, 7: ()}}


def test_flattens():
    run = flattener(SIGNATURE)
    assert run((value(), 4)) == flatten_call((value(), 4), {}, SIGNATURE) == [1, 2, 3, 4]
    swapped = {**value(), "pair": [1, (2,)]}  # lists and tuples are taken for each other, as by pytree
    assert run((swapped, 4)) == flatten_call((swapped, 4), {}, SIGNATURE)


@pytest.mark.parametrize(
    "args",
    [
        (),
        (value(),),
        (value(), 1, 2),
        ({}, 1),
        ({**value(), "more": 1}, 1),
        ({"pair": (1, [2]), "no": None, "other": 1}, 1),
        ({**value(), "no": 3}, 1),
        ({**value(), "pair": (1, 2)}, 1),
        ({**value(), "pair": (1, [2], 3)}, 1),
        ({**value(), "pair": "ab"}, 1),
        ({**value(), "it's": {0: 3, 8: ()}}, 1),
        (OrderedDict(value()), 1),
        (MappingProxyType(value()), 1),
    ],
)
def test_leaves_the_rest_to_pytree(args):
    assert flattener(SIGNATURE)(args) is None


@pytest.mark.parametrize("constant", [16000, -1, True, "it's"])
def test_constants_are_compared(constant):
    signature = {"positional": ["x", "rate"], "parameters": {"x": LEAF, "rate": {"constant": constant}}}
    run = flattener(signature)
    assert run((7, constant)) == flatten_call((7, constant), {}, signature) == [7]
    for other in (None, 2, 1.0, 16000.0, 1, "its"):
        assert run((7, other)) is None


def test_constants_of_other_kinds_are_left_to_pytree():
    assert flattener({"positional": ["x"], "parameters": {"x": {"constant": float("nan")}}}) is None


def test_builds():
    built = builder(NESTED)([1, 2, 3])
    assert built == unflatten([1, 2, 3], NESTED) == value()
    assert isinstance(built["pair"], tuple) and isinstance(built["pair"][1], list)


@pytest.mark.parametrize(
    "structure",
    [
        {"namedtuple": "a:B", "fields": {"x": LEAF}},
        {"constant": 3},
        {"list": [{"constant": 3}]},
        {"list": []},
    ],
)
def test_other_structures_are_walked(structure):
    assert builder(structure) is None


def test_names_are_literals():
    key = "'] + [__import__('os').system('x')] + ['\n"
    structure = {"dict": {key: LEAF}}
    assert builder(structure)([1]) == {key: 1}
    assert flattener({"positional": ["x"], "parameters": {"x": structure}})(({key: 1},)) == [1]


def test_deep_and_wide_structures_are_walked():
    deep = LEAF
    for _ in range(60):
        deep = {"list": [deep]}
    assert builder(deep)([1]) == unflatten([1], deep)
    for _ in range(400):
        deep = {"list": [deep]}
    with pytest.raises(ArgumentError, match="it nests deeper than 200"):
        form(deep)
    assert builder({"list": [LEAF] * 2000}) is None
    wide = {"positional": ["x"], "parameters": {"x": {"list": [LEAF] * 2000}}}
    assert flattener(wide) is None


OPTIONAL = {
    "positional": ["x", "y"],
    "parameters": {
        "x": {"optional": LEAF, "absent": [["f32", 2]]},
        "y": {"optional": {"tuple": [LEAF, {"list": [LEAF]}]}, "absent": ["int", "str"]},
    },
}


def test_optionals():
    run = flattener(OPTIONAL)
    for args in ((3, (1, [2])), (3, None)):
        assert run(args) == flatten_call(args, {}, OPTIONAL)
    assert run((3, None)) == [True, 3, False, 0, ""]
    absent, array, *rest = run((None, (1, [2])))
    assert not absent and array.shape == (1, 1) and array.dtype == "float32" and rest == [True, 1, 2]
    assert run((3, (1, 2))) is None and run((3, (1,))) is None


def test_results_that_may_be_none():
    structure = {"tuple": [{"optional": {"tuple": [LEAF, LEAF]}, "absent": ["int", "int"]}, LEAF]}
    for leaves in ([True, 1, 2, 3], [False, 0, 0, 3]):
        assert builder(structure)(leaves) == unflatten(leaves, structure)
    assert builder(structure)([False, 0, 0, 3]) == (None, 3)


def test_lists_of_any_length():
    signature = {"positional": ["x", "y"], "parameters": {"x": {"many": "int"}, "y": LEAF}}
    run = flattener(signature)
    for items in ([], [1], [1, 2, 3]):
        assert run((items, 7)) == flatten_call((items, 7), {}, signature) == [items, 7]
    for items in ((1, 2), [True], [1.0], 3):
        assert run((items, 7)) is None


@pytest.mark.parametrize(
    ("structure", "values", "others"),
    [
        ({"many": ["f32", 1]}, [[], [np.zeros(2, np.float32)]], [[1], [np.zeros(2)], 3]),
        ({"many": {"tuple": ["str", "int"]}}, [[], [("a", 1), ["b", 2]]], [[("a",)], [("a", 1.0)], {}]),
        ({"pairs": ["str", {"many": "int"}]}, [{}, {"a": [1], "b": []}], [[], {1: []}, {"a": 1}]),
    ],
)
def test_columns(structure, values, others):
    signature = {"positional": ["x", "y"], "parameters": {"x": structure, "y": LEAF}}
    run = flattener(signature)
    for value in values:
        assert run((value, 7)) == flatten_call((value, 7), {}, signature)
    for value in others:
        assert run((value, 7)) is None


def test_optional_columns():
    structure = {"optional": {"pairs": ["str", "int"]}, "absent": [{"many": "str"}, {"many": "int"}]}
    signature = {"positional": ["x"], "parameters": {"x": structure}}
    run = flattener(signature)
    for value in (None, {}, {"a": 1}):
        assert run((value,)) == flatten_call((value,), {}, signature)
    assert run((None,)) == [False, [], []] and run(([],)) is None


IDS = {"many": {"record": {"ids": {"many": "int"}, "name": "str"}}}
PAIRS = {"pairs": ["str", {"many": {"optional": "int"}}]}


@pytest.mark.parametrize(
    ("structure", "value", "other"),
    [
        (
            {"tuple": [IDS, LEAF]},
            ([{"ids": [1], "name": "a"}, {"ids": [], "name": ""}], 7),
            ([{"ids": []}], 7),
        ),
        ({"dict": {"a": PAIRS, "b": {"tuple": [PAIRS]}}}, {"a": {"k": [1, None]}, "b": ({},)}, {"a": {}}),
        ({"list": [LEAF, {"many": {"pairs": ["int", "str"]}}]}, [3, [{1: "x"}, {}]], [3, [{"x": 1}]]),
    ],
)
def test_columns_in_containers(structure, value, other):
    signature = {"positional": ["x"], "parameters": {"x": structure}}
    leaves = flattener(signature)((value,))
    assert leaves == flatten_call((value,), {}, signature) and flattener(signature)((other,)) is None
    assert builder(structure)(leaves) == unflatten(leaves, structure) == value


CODE = "int: return None\n except KeyError: pass\nraise SystemExit\ndef run(args):\n try:\n  if 0"


@pytest.mark.parametrize(
    "structure",
    [
        {"many": CODE},
        {"list": [LEAF], "many": CODE},
        {"pairs": [CODE, "int"]},
        {"dict": {CODE: LEAF}, "int_keys": True},
        {"dict": {"1_0": LEAF}, "int_keys": True},
        {"optional": LEAF, "absent": [CODE]},
        {"optional": LEAF, "absent": [[CODE, 1]]},
    ],
)
def test_texts_of_files_are_no_code(structure):
    with pytest.raises(ArgumentError, match="the structure of the outputs: "):
        form(structure)


def test_what_is_executed_holds_no_text_of_a_form(monkeypatch):
    sources = []
    monkeypatch.setattr(
        quick_forms, "compile", lambda text, *rest: sources.append(text) or compile(text, *rest), False
    )
    quick_forms._compiled.cache_clear()
    mark = "mark"
    structure = {
        "dict": {
            mark: {"constant": f"{mark}1"}, "a": {"constant": None}, "b": {"many": {"record": {mark: "int"}}},
            "c": {"optional": {"dict": {mark: LEAF}}, "absent": ["str"]}, "d": {"many": "str"},
        }
    }  # fmt: skip
    value = {mark: f"{mark}1", "a": None, "b": [{mark: 3}], "c": {mark: 4}, "d": ["x"]}
    leaves = flattener({"positional": [mark], "parameters": {mark: structure}})((value,))
    assert leaves == [[3], True, 4, ["x"]] and builder({"dict": {mark: LEAF}})([1]) == {mark: 1}
    assert len(sources) == 3 and not any(mark in source for source in sources)
