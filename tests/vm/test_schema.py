"""JSON from outside is what its schema says, or is refused with its place."""

import json
from typing import Any

import pytest
from shapevm.vm.errors import ArtifactError
from shapevm.vm.meta import read_meta
from shapevm.vm.schema import (
    BOOLEAN,
    MAX_BYTES,
    NULL,
    Exactly,
    Fixed,
    Integer,
    ListOf,
    Made,
    MapOf,
    Number,
    Object,
    OneOf,
    Schema,
    Text,
    decode,
)

ROW = Object({"name": Text(8)}, {"sizes": ListOf(Integer(0, 9), least=1, most=3)})
RIGHT: list[tuple[Schema, Any]] = [
    (Text(), "ä\n"), (Text(among={"a": 1}), "a"), (Integer(), -(2**63)), (Number(), 1), (Number(), 1.5),
    (Exactly(("*", 1)), 1), (NULL, None), (BOOLEAN, True), (ListOf(NULL), []),
    (Fixed((NULL, BOOLEAN)), [None, True]),
    (MapOf(Integer()), {"a": 1, "": 2}), (ROW, {"name": "x"}), (ROW, {"sizes": [9], "name": ""}),
    (OneOf((NULL, ROW)), {"name": "x"}), (OneOf(lambda: (NULL, Text())), None),
]  # fmt: skip
WRONG: list[tuple[Schema, Any, str]] = [
    (Text(2), "abc", "the whole is 'abc'; it must be a string of at most 2 characters"),
    (Text(), "a\0b", "is 'a.x00b'"),
    (Text(), "\ud800", r"is '\\ud800'"),
    (Text(among=("a", "b")), "c", "half characters: a, b"),
    (Integer(0, 9), 10, "the whole is 10; it must be a whole number from 0 to 9"),
    (Integer(), True, "is True"),
    (Integer(), 1.0, "is 1.0"),
    (Integer(), 2**63, "is 9223372036854775808"),
    (Number(), float("nan"), "is nan; it must be a finite number"),
    (Number(), 1 << 70, "it must be a finite number"),
    (Exactly(("*", 1)), True, 'is True; it must be "[*]" or 1'),
    (ROW, [], r"the whole is \[\]; it must be an object with name"),
    (ROW, {}, "it must be an object with name"),
    (ROW, {"name": "x", "more": 1}, "the whole has the key 'more'; it knows name, sizes"),
    (ROW, {"name": "x", "sizes": []}, r"sizes is \[\]; it must be a list of 1 to 3 items"),
    (ROW, {"name": "x", "sizes": [1, "2"]}, r"sizes\[1\] is '2'; it must be a whole number"),
    (Object({"a": NULL, "b": NULL}), {"a": None}, "b is missing"),
    (MapOf(NULL, Text(2)), {"abc": None}, "a key of the whole is 'abc'"),
    (MapOf(NULL, least=1), {}, "it must be an object of 1 to 65536 keys"),
    (Fixed((NULL,)), [None, None], "it must be a list of 1"),
    (OneOf((NULL, BOOLEAN)), 1, "the whole is 1; it must be null, or false or true"),
    (Made(NULL, lambda _: int("x")), None, "the whole: invalid literal"),
]


@pytest.mark.parametrize(("schema", "data"), RIGHT)
def test_takes(schema: Schema, data: Any) -> None:
    assert decode(json.dumps(data), schema, "it") == data
    assert decode(json.dumps(data).encode(), schema, "it") == data


@pytest.mark.parametrize(("schema", "data", "message"), WRONG)
def test_refuses(schema: Schema, data: Any, message: str) -> None:
    with pytest.raises(ArtifactError, match=f"it: .*{message}") as caught:
        decode(json.dumps(data), schema, "it")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "it is not JSON: Expecting"),
        (b"", "it is not JSON"),
        (b"\xff", "it is not JSON: 'utf-8' codec"),
        ('"a"'.encode("utf-16"), "it is not JSON"),
        (b'{"a": 1, "a": 2}', "a key stands twice"),
        (b"[" * 201 + b"]" * 201, "it nests deeper than 200"),
        (b"[" * 10**6, "it nests deeper than 200|not JSON"),
        (b'{"a":' * 10**5, "it nests deeper than 200|not JSON"),
        (b"9" * 10**5, "it is not JSON: Exceeds the limit"),
        (b" " * (MAX_BYTES + 1), "at most 16777216 are read"),
    ],
)
def test_refuses_texts(text: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        decode(text, OneOf((ListOf(NULL), MapOf(NULL))), "it")
    assert "\n" not in str(caught.value)


def test_a_message_is_short_whatever_it_shows() -> None:
    for data in ("x" * 60000, ["y" * 60000] * 100, {"k" * 60000: 1}, int("9" * 4000)):
        with pytest.raises(ArtifactError) as caught:
            decode(json.dumps(data), ROW, "it")
        assert len(str(caught.value)) < 400


def test_meta() -> None:
    assert read_meta(b'{"name": "main", "structure": {"state": ["a"]}}')["structure"] == {"state": ["a"]}
    for text in (b"[]", b'{"origin": 1}', b'{"structure": {"state": [1]}}', b'{"weights": [{}]}'):
        with pytest.raises(ArtifactError, match="section META: "):
            read_meta(text)
