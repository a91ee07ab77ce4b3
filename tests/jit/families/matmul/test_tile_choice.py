"""Register tiles by measurement: what other machines would measure chooses other tiles, noise does not."""

import json
from dataclasses import replace

import pytest
from shapevm.jit.families.matmul.tile_choice import (
    ANY,
    ASKED,
    CLASSES,
    UNASKED,
    Measured,
    TileChoice,
    choose,
    choose_layouts,
    choose_streams,
    class_of,
)
from shapevm.jit.families.nest.asking import LAYOUTS, WITHOUT_ASKING
from shapevm.jit.llvm.target import host_target
from shapevm.jit.measure import streams
from shapevm.jit.measure.tiles import PROBE, measure
from shapevm.jit.spec import Dim
from shapevm.jit.text import parse_spec
from shapevm.jit.tuning import preferred_schedule, schedules_of
from shapevm.vm.program import SizeRange

from ...nests import copy, transpose

TILES = ("6x64", "14x32", "12x32", "6x16", "12x16")
V4 = "x86-64-v4"


def measured(**times: list[tuple[float, ...]]) -> dict[str, Measured]:
    """Return measurements of classes whose built-in tile is 6x64, turn by turn in the order of TILES."""
    return {
        name: Measured("6x64", [dict(zip(TILES, turn, strict=False)) for turn in turns])
        for name, turns in times.items()
    }


#: As on cores whose vector units are half as wide as their registers, with 32 KB of first-level cache.
HALF_WIDTH = measured(
    few=[(100, 105, 96, 91, 84), (102, 103, 97, 91, 85)],
    some=[(100, 104, 97, 95, 94), (101, 105, 99, 95, 94)],
    many=[(100, 101, 99, 99, 97), (100, 101, 99, 99, 98)],
)


def test_classes_cover_all_numbers_of_rows() -> None:
    assert [class_of(rows) for rows in (15, 32, 33, 128, 129, 10**9, None)] == [
        "few", "few", "some", "some", "many", "many", ANY,
    ]  # fmt: skip
    assert all(of.most is None or of.probe <= of.most for of in CLASSES.values())


def test_another_machine_takes_other_tiles() -> None:
    choice = choose(HALF_WIDTH, "6x64", TILES)
    of_long = {f"{name}, a page or more": "6x16" for name in ("few", "some")}
    assert choice.tiles == {"few": "12x16", "some": "12x16", "many": "12x16", ANY: "12x16", **of_long}
    spec, lengths = parse_spec(PROBE), [(16,), (64,), (256,), (14,), None]
    names = {dims: preferred_schedule(spec, dims, V4, choice) for dims in lengths}
    assert names == {(14,): None} | dict.fromkeys([(16,), (64,), (256,), None], "12x16")
    for top in (32, 512):
        assert preferred_schedule(spec, (SizeRange(1, top),), V4, choice) == "12x16"


@pytest.mark.parametrize("steps", [1024, 1536, 4100])
def test_long_rows_take_low_tiles(steps: int) -> None:
    """A set of the first-level cache might have to hold a line of each of 12 rows."""
    choice = choose(HALF_WIDTH, "6x64", TILES[:-1])
    text = PROBE.replace("k=384", f"k={steps}").replace("n0,384]\n  b1", f"n0,{steps}]\n  b1")
    spec = parse_spec(text.replace("[12,384,32]", f"[12,{steps},32]"))
    names = {dims: preferred_schedule(spec, dims, V4, choice) for dims in [(16,), (64,), (256,), None]}
    assert names == {(16,): "6x16", (64,): "6x16", (256,): None, None: "6x16"}


@pytest.mark.parametrize(
    ("few", "why"),
    [
        ([(100, 120, 99, 110), (100, 120, 99, 110)], "less than 1.5 %"),
        ([(100, 120, 94, 110), (100, 120, 99, 110)], "one turn of two"),
        ([(100, 120, 60, 110), (100, 120, 101, 110)], "noise in one turn"),
    ],
)
def test_noise_changes_nothing(few: list[tuple[float, ...]], why: str) -> None:
    assert choose(measured(few=few), "6x64", TILES).tiles == {}, why


@pytest.mark.parametrize(("third", "tiles"), [(99, {"few": "6x16"}), (101, {})])
def test_a_turn_in_which_all_wait_for_the_memory_hides_no_gain(third: int, tiles: dict[str, str]) -> None:
    few = [(100, 120, 110, time) for time in (84, third, 85)]
    choice = choose(measured(few=few), "14x32", TILES)
    assert {name: tile for name, tile in choice.tiles.items() if name == "few"} == tiles


def test_code_for_any_rows_changes_where_no_class_loses() -> None:
    gain, loss = [(100, 120, 80, 110)] * 2, [(100, 120, 101, 110)] * 2
    assert choose(measured(few=gain, many=loss), "6x64", TILES).tiles == {"few": "12x32"}
    assert choose(measured(few=gain), "6x64", ("14x32", "6x16")).tiles == {"few": "12x32"}


def test_other_products_keep_the_built_in_tile() -> None:
    choice = choose(HALF_WIDTH, "6x64", TILES)
    text = (
        PROBE.replace("n=384", "n=64")
        .replace("b1 f32[12,", "b1 f32[2,")
        .replace("f32[n0,384] o", "f32[n0,64] o")
    )
    for other in (text, PROBE.replace("b1 f32", "b1 bf16")):
        assert preferred_schedule(parse_spec(other), (16,), V4, choice) is None
    on_tiles = replace(parse_spec(PROBE), bf16x6=True)
    assert "6x64" not in schedules_of(on_tiles, None, "x86-64-v4-amx")
    wide = TileChoice({ANY: "6x64"})
    assert preferred_schedule(on_tiles, None, "x86-64-v4-amx", wide) is None


def test_a_choice_survives_its_record() -> None:
    choice = choose(HALF_WIDTH, "6x64", TILES)
    assert TileChoice.parse(choice.record()) == choice
    for broken in (b"", b"[]", b"{}", json.dumps({"tiles": 3, "measured": {}}).encode(), b'{"tiles": {}}'):
        assert TileChoice.parse(broken) is None


def test_this_machine_is_measured_in_time() -> None:
    spec, target = parse_spec(PROBE), host_target()
    assert spec.product.m == Dim(0)
    found = measure(target, seconds=60)
    for name, of in found.measured.items():
        assert of.own in of.turns[0] and len(of.turns) == 3
        assert all(0 < time < float("inf") for turn in of.turns for time in turn.values()), name
    if not target.startswith("x86-64-v3"):  # 16 registers hold one tile of few rows: nothing to choose
        assert "few" in found.measured
    assert measure(target, seconds=0).measured == {}


def test_layout_changes_leave_memory_to_the_processor_where_that_is_faster() -> None:
    turns = [{ASKED: 100.0, UNASKED: 80.0}, {ASKED: 100.0, UNASKED: 90.0}]
    choice = choose_layouts({"there": Measured(ASKED, turns), "back": Measured(ASKED, turns)})
    assert choice.tiles == {LAYOUTS: UNASKED}
    assert choose_layouts({"there": Measured(ASKED, [{ASKED: 100.0, UNASKED: 97.0}])}).tiles == {}
    copies = [preferred_schedule(nest, (), V4, choice) for nest in (transpose(64, 64), copy())]
    assert copies == [WITHOUT_ASKING, None]
    assert WITHOUT_ASKING in schedules_of(transpose(64, 64), (), V4)


def of_streams(*turns: tuple[float, float]) -> TileChoice:
    """Return the choice where code that asks took 100, and other code so long for 1 and for 4 rows."""
    times = [[{ASKED: 100.0, UNASKED: turn[i]} for turn in turns] for i in range(2)]
    return choose_streams({name: Measured(ASKED, of) for name, of in zip(("1", "4"), times, strict=True)})


@pytest.mark.parametrize(
    ("turns", "is_left"),
    [
        (((85, 45), (93, 50), (88, 49)), True),
        (((98, 95), (97, 96), (98, 95)), False),  # less than 5 %
        (((85, 45), (101, 50), (88, 49)), False),  # a turn that loses
        (((120, 45), (120, 45), (120, 45)), False),  # one row loses
    ],
)
def test_few_rows_ask_for_lines_where_that_is_no_slower(turns, is_left) -> None:
    choice = of_streams(*turns)
    assert bool(choice.tiles) == is_left
    assert TileChoice.parse(choice.record()) == choice


def test_the_choice_is_for_kernels_that_may_have_few_rows() -> None:
    choice, spec = of_streams(*[(85, 45)] * 3).beside(choose(HALF_WIDTH, "6x64", TILES)), parse_spec(PROBE)
    names = {dims: preferred_schedule(spec, dims, V4, choice) for dims in [(1,), (8,), (9,), (16,), None]}
    assert names == {(1,): "-unasked", (8,): "-unasked", (9,): None, (16,): "12x16", None: "12x16-unasked"}
    narrow = parse_spec(PROBE.replace("b1 f32", "b1 bf16"))
    assert preferred_schedule(narrow, None, V4, choice) == "-unasked"
    short = PROBE.replace("k=384", "k=24").replace("b0 f32[n0,384]", "b0 f32[n0,24]")
    short = short.replace(",384,32]", ",24,32]")
    assert preferred_schedule(parse_spec(short), (1,), V4, choice) is None


def test_streams_of_this_machine_are_measured_in_time() -> None:
    found = streams.measure(host_target(), seconds=60)
    assert [*found.measured] == ["layout changes of 64 x 3136", "layout changes of 3136 x 64", "1", "4"]
    for of in found.measured.values():
        assert all(0 < time < float("inf") for turn in of.turns for time in turn.values())
    assert streams.measure(host_target(), seconds=0) == TileChoice()
