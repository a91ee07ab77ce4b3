"""Specs that lie are refused with a sentence, or their kernels touch nothing but their buffers."""

from __future__ import annotations

import copy
import json

import pytest
from shapevm.jit.decode import SpecError
from shapevm.jit.families.table import FAMILIES
from shapevm.jit.spec import to_json
from shapevm.jit.spec_reader import from_json
from shapevm.jit.text import parse_spec

from . import lies


def _changed(data, path, value):
    """Return a copy of JSON data with another value at a path."""
    made = copy.deepcopy(data)
    place = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(made)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_lie_in_any_field_is_a_spec_or_a_sentence(family: str) -> None:
    for example in FAMILIES[family].examples:
        data, n_refused = json.loads(to_json(parse_spec(example.text))), 0
        for path, value in lies.leaves(data):
            for other in lies.others(value, path, data["n_dims"]):
                try:
                    from_json(_changed(data, path, other))
                except SpecError as error:
                    n_refused += 1
                    assert "\n" not in str(error) and len(str(error)) < 500
        assert n_refused > 50


@pytest.mark.parametrize("shard", range(4))
@pytest.mark.drawn
def test_kernels_of_lies_touch_nothing_else(shard: int, request: pytest.FixtureRequest) -> None:
    seed = request.config.option.seed + shard
    seen, wrong = lies.try_all(lies.draw(400, seed), seed)
    assert not wrong, (seed, wrong[:5])
    assert seen["ran"] > 20 and seen["refused"] > 100, seen


OUT = '{"dtype":"%s","is_output":true,"shape":%s}'
IN = '{"dtype":"%s","shape":%s}'


def _spec(family: str, buffers: str, **fields: object) -> str:
    data = {"family": family, "version": 1, "n_dims": 0, "buffers": json.loads(f"[{buffers}]"), **fields}
    return json.dumps(data)


def _buffers(*rows: tuple[str, list[int], bool]) -> str:
    return ",".join((OUT if is_output else IN) % (dtype, shape) for dtype, shape, is_output in rows)


LINE, ROW = [4], [1, 4]
MASK, PLACES = ("bool", LINE, False), ("i64", LINE, True)
VALUES, FOUND = ("f32", ROW, False), ("i64", ROW, True)
SORTED = ("f32", ROW, True)
WRONG = {
    "more places than there is room for": (
        _spec("nonzero", _buffers(MASK, PLACES), length=4, count=1 << 20), "written at 1048575",
    ),
    "a longer mask": (_spec("nonzero", _buffers(MASK, PLACES), length=5, count=4), "buffer 0 is read"),
    "places of bytes": (
        _spec("nonzero", _buffers(MASK, ("u8", LINE, True)), length=4, count=4), "buffers.1..dtype is 'u8'",
    ),
    "an input that is written": (
        _spec("nonzero", _buffers(MASK, ("i64", LINE, False)), length=4, count=4), "must be an output",
    ),
    "a short base": (
        _spec(
            "scatter",
            _buffers(("u8", [16], False), ("i64", [0], False), ("u8", [0], False), ("u8", [65536], True)),
            updates=[0], axis=0, mode="set",
        ), "buffer 0 is read or written at 65535",
    ),
    "more rows than values": (
        _spec("search", _buffers(VALUES, VALUES, FOUND), rows=4096, length=4, count=4, right=False),
        "written at 4095 along axis 0",
    ),
    "longer rows": (
        _spec("sort", _buffers(VALUES, SORTED, FOUND), rows=1, length=1 << 22, keep=4, descending=False),
        "written at 4194303 along axis 1",
    ),
    "more kept than a row has": (
        _spec("sort", _buffers(VALUES, ("f32", [1, 9], True), ("i64", [1, 9], True)), rows=1, length=4,
              keep=9, descending=False), "written at 8 along axis 1 of size 4",
    ),
    "sorted values of another width": (
        _spec("sort", _buffers(VALUES, ("u8", ROW, True), FOUND), rows=1, length=4, keep=4, descending=False),
        "must be f32",
    ),
    "places of a sum": (
        _spec("scan", _buffers(*[("f32", [1, 4, 1], i > 0) for i in range(2)], ("i64", [1, 4, 1], True)),
              rows=1, length=4, columns=1, op="sum"), "buffers is 3",
    ),
    "corners of too few boxes": (
        _spec("nms", _buffers(("f32", [4, 3], False), ("f64", [1], False), ("bool", LINE, True)), count=4),
        "buffer 0 is read or written at 3 along axis 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_sizes_kinds_and_directions_are_compared(name: str) -> None:
    text, said = WRONG[name]
    with pytest.raises(SpecError, match=said):
        from_json(text)
