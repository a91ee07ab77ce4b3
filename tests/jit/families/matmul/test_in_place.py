"""Narrow weights that several row tiles widen as they read them: the bits are those of a copy in f32."""

import re
from dataclasses import replace

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel, kernel_text
from shapevm.jit.evaluation import f32_to_bf16
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.grouped import pack_grouped
from shapevm.jit.families.matmul.layouts import pack_panels
from shapevm.jit.families.matmul.schedules import ALWAYS_ENDING, IN_PLACE_ENDING, schedule_of
from shapevm.jit.families.matmul.tile_choice import (
    ALWAYS_IN_PLACE,
    COPIED,
    IN_PLACE,
    NARROW,
    STREAMS,
    UNASKED,
    Measured,
    TileChoice,
    choose_narrow,
    name_of_weights,
)
from shapevm.jit.llvm.target import find_target, host_target, runs_here
from shapevm.jit.measure import narrow
from shapevm.jit.tuning import preferred_schedule, schedules_of
from shapevm.vm.program import SizeRange

V3, V4 = "x86-64-v3", "x86-64-v4"
TARGETS = [name for name in dict.fromkeys([V3, V4, host_target()]) if runs_here(name)]
MOST = schedule_of("6x64-in_place").rows_in_place


def weight(dtype: str, k: int, n: int) -> np.ndarray:
    """Return a random weight of `dtype` as it lies in memory."""
    rng = np.random.default_rng(k + n)
    if dtype == "i4":
        scales = rng.random((k // narrow.GROUP, n)).astype(np.float32)
        return pack_grouped(rng.integers(-8, 8, (k, n)).astype(np.int8), scales)
    if dtype == "i8":
        return pack_panels(rng.integers(-128, 128, (k, n)).astype(np.int8))
    return pack_panels(f32_to_bf16(rng.standard_normal((k, n)).astype(np.float32)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("k", "n"), [(64, 72), (416, 167), (8288, 96)])
@pytest.mark.parametrize("dtype", NARROW)
def test_both_ways_give_the_same_bits(dtype: str, k: int, n: int, target: str) -> None:
    packed = weight(dtype, k, n)
    spec = narrow.probe(dtype, packed, k, n)
    ways = {name: Kernel(compile_kernel(spec, None, target, schedule=name)) for name in names_of(target)}
    for m in (1, 7, 12, 13, MOST, MOST + 1):
        a = np.random.default_rng(m).standard_normal((m, k)).astype(np.float32)
        exact = {name: Kernel(compile_kernel(spec, (m,), target, schedule=name)) for name in names_of(target)}
        results = set()
        for kernel in (*ways.values(), *exact.values()):
            out = np.full((m, n), np.nan, np.float32)
            kernel.run([a, packed, out], (m,))
            assert np.isfinite(out).all()
            results.add(out.tobytes())
        assert len(results) == 1


def names_of(target: str) -> tuple[str | None, ...]:
    """Return the schedules to compare: the built-in one first."""
    has_wide = find_target(target).n_vector_registers > 16
    wide = ("14x32-in_place", "6x64-in_place", "6x64-always_in_place") if has_wide else ()
    return (None, IN_PLACE_ENDING, "6x16-in_place", *wide)


@pytest.mark.parametrize("dtype", NARROW)
def test_so_many_row_tiles_read_in_place(dtype: str) -> None:
    """Micro-kernels of a copy have no element's name, those of int4 are called `group`."""
    packed = weight(dtype, 416, 160)
    spec = narrow.probe(dtype, packed, 416, 160)

    def copies(dims: object, schedule: str | None) -> bool:
        text = kernel_text(spec, dims, V4, schedule)[0]
        return re.search(r"define .*@(?:copied|group)_", text) is not None

    assert [copies((m,), None) for m in (16, MOST, MOST + 1)] == [True, True, True]
    assert [copies((m,), IN_PLACE_ENDING) for m in (16, MOST, MOST + 1)] == [False, False, True]
    assert copies(None, IN_PLACE_ENDING)  # any number of rows may be more
    assert not copies((SizeRange(1, MOST),), IN_PLACE_ENDING)
    assert not copies((MOST + 1,), ALWAYS_ENDING) and not copies((200,), ALWAYS_ENDING)


def choice_of(dtype: str, *turns: tuple[float, float]) -> TileChoice:
    """Return the choice where the copy took 100 and reading in place so long for few and for more rows."""
    times = [[{COPIED: 100.0, IN_PLACE: turn[i]} for turn in turns] for i in range(2)]
    few, more = (Measured(COPIED, of) for of in times)
    return choose_narrow(dtype, {12: few, 36: more})


@pytest.mark.parametrize(
    ("turns", "chosen"),
    [
        (((80, 98), (79, 97), (81, 96)), IN_PLACE),
        (((80, 92), (79, 91), (81, 94)), ALWAYS_IN_PLACE),
        (((96, 98), (95, 97), (95, 98)), ""),  # less than 5 %
        (((80, 92), (79, 101), (81, 94)), ""),  # a turn that loses
        (((85, 120), (84, 121), (85, 120)), ""),  # conversions take multiply-adds' time
    ],
)
def test_weights_are_read_in_place_where_that_is_no_slower(turns: tuple, chosen: str) -> None:
    choice = choice_of("i8", *turns)
    assert choice.tiles == ({"i8 weights": chosen} if chosen else {})
    assert TileChoice.parse(choice.record()) == choice


def test_the_choice_is_for_weights_of_the_dtype_and_several_row_tiles() -> None:
    choice = choice_of("bf16", (80, 98)).beside(TileChoice({STREAMS: UNASKED, "few": "6x16"}))
    spec = narrow.probe("bf16", weight("bf16", 416, 160), 416, 160)
    names = {dims: preferred_schedule(spec, dims, V4, choice) for dims in [(8,), (14,), (15,), (200,), None]}
    assert names == {
        (8,): "-unasked", (14,): None, (15,): "-in_place", (200,): "-in_place", None: "-in_place-unasked",
    }  # fmt: skip
    assert preferred_schedule(spec, (15,), V3, choice) == "-in_place"
    assert preferred_schedule(spec, (200,), V4, choice_of("bf16", (80, 92))) == "-always_in_place"
    tiles = replace(spec, bf16x6=True)
    amx = [preferred_schedule(tiles, dims, "x86-64-v4-amx", choice) for dims in ((16,), (128,), None)]
    assert amx == ["-in_place", None, "-unasked"]  # rows of AMX tiles come in another way
    for other in ("i8", "i4"):
        like = narrow.probe(other, weight(other, 416, 160), 416, 160)
        assert preferred_schedule(like, (16,), V4, choice) is None
    few_columns = narrow.probe("bf16", weight("bf16", 416, 64), 416, 64)
    assert preferred_schedule(few_columns, (16,), V4, choice) is None


def test_the_ways_are_among_the_schedules_to_tune_among() -> None:
    spec = narrow.probe("bf16", weight("bf16", 416, 160), 416, 160)
    found = {m: schedules_of(spec, (m,), V4) for m in (4, 12, 16)}
    assert {"6x64-in_place", "6x64-always_in_place"} <= {*found[16]}
    assert not any(IN_PLACE in name for m in (4, 12) for name in found[m])
    made = compile_kernel(spec, (16,), V4, schedule="6x64-in_place-unasked")
    assert made.schedule_name == "6x64-in_place-unasked"
    for wrong in ("5x5-in_place", "6x64-unasked-in_place", "-in"):
        with pytest.raises(ValueError, match="is unknown"):
            compile_kernel(spec, (16,), V4, schedule=wrong)


def test_this_machine_is_measured_in_time() -> None:
    found = narrow.measure(host_target(), seconds=60)
    assert {name.split(",")[0] for name in found.measured} == {name_of_weights(dtype) for dtype in NARROW}
    for name, of in found.measured.items():
        assert of.own == COPIED and len(of.turns) == 3
        assert all(0 < time < float("inf") for turn in of.turns for time in turn.values()), name
    assert narrow.measure(host_target(), seconds=0).measured == {}
