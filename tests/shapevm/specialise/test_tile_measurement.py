"""Register tiles are measured once in the background, and used by stores that are made later."""

import json
import time

import numpy as np
import pytest
import torch
from shapevm.jit import tuning
from shapevm.jit.compile_job import Answer, TilesJob, answer
from shapevm.jit.compiler import compile_kernel, target_for
from shapevm.jit.families.matmul.tile_choice import (
    ANY,
    IN_PLACE,
    NARROW,
    STREAMS,
    UNASKED,
    TileChoice,
    name_of_weights,
    target_of_products,
)
from shapevm.jit.llvm.target import TARGETS, runs_here
from shapevm.jit.measure import narrow, streams, tiles
from shapevm.jit.measure.tiles import PROBE
from shapevm.jit.spec import SpecText, to_json
from shapevm.jit.text import parse_spec

import shapevm
from shapevm.cli import doctor
from shapevm.reports.inspect import inspection
from shapevm.specialise.compile_process import CompileProcess, TileMeasurement
from shapevm.specialise.kernel_store import open_store

OWN = {compile_kernel(parse_spec(PROBE), (rows,)).schedule_name for rows in (16, 17, 40)}
TILE = next(name for name in ("6x16", "12x32") if name not in OWN)  # none of this machine's own
OTHER = TileChoice({"few": TILE, "some": TILE, "many": TILE, ANY: TILE})


@pytest.fixture
def folder(tmp_path):
    with shapevm.settings.scope(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


class Process:
    """Takes one job; answers with `answers` one after the other."""

    def __init__(self, *answers):
        self.answers, self.jobs = list(answers), []

    def submit(self, job):
        self.jobs.append(job)
        return self

    def answer(self):
        return self.answers.pop(0)


def measuring(process, monkeypatch):
    found = TileMeasurement(process)
    found.go_on(open_store())
    assert process.jobs == []  # too early
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 3600)
    return found


def test_later_stores_use_what_the_process_measured(folder, monkeypatch):
    process = Process(None, Answer(OTHER.record()))
    found, spec = measuring(process, monkeypatch), parse_spec(PROBE)
    before = open_store()
    found.go_on(None)
    assert process.jobs == []
    for running in (True, True, False, False):
        found.go_on(open_store())
        assert (found.future is not None) is running
    assert process.jobs == [TilesJob(before.target)]
    after = open_store()
    assert after.tile_choice == OTHER and before.tile_choice is None
    names = [store.object(spec, (16,)).schedule_name for store in (before, after)]
    assert names[1] == TILE != names[0]
    with shapevm.settings.scope(measured_tiles=False):
        assert open_store().object(spec, (16,)).schedule_name == names[0]
        assert not open_store().wants_tiles
    process.jobs.clear()
    measuring(process, monkeypatch).go_on(open_store())
    assert process.jobs == []  # it is known


def test_schedules_of_texts_are_remembered(folder, monkeypatch):
    """A later process looks kernels up without the generators, by which the first one chose."""
    open_store().remember_tiles(OTHER.record())
    spec = SpecText(to_json(parse_spec(PROBE)))
    first = open_store().job(spec, (16,), b"").schedule
    monkeypatch.setattr(tuning, "preferred_schedule", lambda *given: pytest.fail("it was known"))
    assert open_store().job(spec, (16,), b"").schedule == first == TILE
    monkeypatch.setattr(tuning, "preferred_schedule", lambda *given: "another")
    assert open_store().job(spec, (17,), b"").schedule == "another"  # other sizes, other tiles
    open_store().remember_tiles(TileChoice({"some": TILE}).record())
    assert open_store().job(spec, (16,), b"").schedule == "another"


@pytest.mark.parametrize("name", TARGETS)
def test_targets_with_the_same_products_share_what_was_measured(folder, name):
    found = target_of_products(name)
    assert found == target_for(parse_spec(PROBE), name)
    open_store(name).remember_tiles(OTHER.record())
    assert open_store(found).tile_choice == OTHER
    others = [other for other in TARGETS if target_of_products(other) != found]
    assert all(open_store(other).tile_choice is None for other in others)


def test_a_loaded_program_uses_what_was_measured(folder, tmp_path):
    rows, example = torch.export.Dim("rows", max=64), torch.randn(3, 96)
    exe = shapevm.compile(torch.nn.Linear(96, 160), (example,), dynamic_shapes=({0: rows},))
    exe.save(tmp_path / "linear.svm")
    open_store().remember_tiles(OTHER.record())
    with shapevm.load(tmp_path / "linear.svm", strategy="jit") as loaded:
        loaded(np.ones((40, 96), np.float32))
        assert [entry.schedule.split()[0] for _, entry in loaded.stats().entries] == [TILE]


def test_a_failure_leaves_the_built_in_tiles(folder, monkeypatch):
    found = measuring(Process(Answer(failure="no memory")), monkeypatch)
    found.go_on(open_store())
    found.go_on(open_store())
    assert found.future is None and open_store().tile_choice is None


def test_a_tuned_schedule_comes_first(folder):
    spec, store = parse_spec(PROBE), open_store()
    store.remember_tiles(OTHER.record())
    store.tuning.put(spec, (16,), store.object(spec, (16,)).target, "12x16")
    assert open_store().object(spec, (16,)).schedule_name == "12x16"
    assert open_store().object(spec, (17,)).schedule_name == TILE


def test_measured_tiles_leave_the_bits(folder):
    model, x = torch.nn.Linear(96, 160), np.random.default_rng(0).random((40, 96), "f")
    rows, results, schedules = torch.export.Dim("rows", max=64), [], []
    for choice in (None, OTHER):
        if choice is not None:
            open_store().remember_tiles(choice.record())
        example = torch.randn(3, 96)
        with shapevm.compile(model, (example,), dynamic_shapes=({0: rows},), strategy="jit") as exe:
            results += [np.asarray(exe(x)).tobytes(), np.asarray(exe.using("generic")(x)).tobytes()]
            schedules += [entry.schedule.split()[0] for _, entry in exe.stats().entries]
    assert len(set(results)) == 1
    assert schedules[0] != TILE == schedules[-1]


def test_the_process_that_compiles_measures():
    process = CompileProcess()
    try:
        made = process.run(TilesJob(open_store().target))
    finally:
        process.close()
    assert TileChoice.parse(made.record) is not None and made.cpu_seconds > 0


def test_tiles_and_narrow_weights_are_measured_together(monkeypatch):
    of_weights = TileChoice({name_of_weights("i8"): IN_PLACE})
    monkeypatch.setattr(tiles, "measure", lambda target: OTHER)
    monkeypatch.setattr(narrow, "measure", lambda target: of_weights)
    found = TileChoice.parse(answer(TilesJob(open_store().target)).record)
    assert found.tiles == {**OTHER.tiles, **of_weights.tiles}


@pytest.mark.parametrize("weights", ["bf16", "int8", "int4"])
def test_narrow_weights_are_read_in_place_where_that_was_measured(folder, weights):
    model, x = torch.nn.Linear(4096, 65), np.random.default_rng(0).random((36, 4096), "f")  # not in digits
    rows, results, schedules = torch.export.Dim("rows", max=64), [], []
    for is_measured in (False, True):
        if is_measured:
            choice = TileChoice({name_of_weights(dtype): IN_PLACE for dtype in NARROW})
            open_store().remember_tiles(choice.record())
        given = {"dynamic_shapes": ({0: rows},), "strategy": "jit"}
        options = shapevm.Options(weights=weights)
        with shapevm.compile(model, (torch.randn(3, 4096),), **given, options=options) as exe:
            results += [np.asarray(exe(x)).tobytes(), np.asarray(exe.using("generic")(x)).tobytes()]
            schedules.append({IN_PLACE in entry.schedule for _, entry in exe.stats().entries})
    assert len(set(results)) == 1
    assert schedules == [{False}, {True}]


def test_the_doctor_shows_it(folder):
    def told():
        return {f.name: f.value for f in doctor.examine(measure=False) if f.group == "machine"}

    assert "not measured" in told()["register tiles"]
    times = {"6x64": 100.0, "6x16": 90.0}
    ways = {"own": "copied", "turns": [{"copied": 100.0, "in_place": 80.0}]}
    few = {"own": "6x64", "turns": [times, times]}
    record = {
        "tiles": {"few": "6x16", "i8 weights": "in_place"},
        "measured": {"few": few, "i8 weights, 12 rows": ways},
    }
    open_store().remember_tiles(json.dumps(record).encode())
    assert told()["register tiles"] == "6x16 for few rows, in_place for i8 weights"
    assert told()["i8 weights, 12 rows"] == "copied; share of its time that others take: in_place 0.80"
    assert told()["few rows"] == "6x64; share of its time that others take: 6x16 0.90"
    with shapevm.settings.scope(measured_tiles=False):
        assert "SHAPEVM_MEASURED_TILES=0" in told()["register tiles"]


def decoder():
    """Return a layer of one row whose weight, 2 MiB, comes from memory."""
    return torch.nn.Linear(512, 1024), (torch.randn(1, 512),)


def asks(exe, folder):
    """Return whether a program's products of few rows ask for lines."""
    exe.save(folder / "model.svm")
    report = inspection(folder / "model.svm")
    schedules = [name for kernel in report["kernels"] for name in kernel["schedules"].values()]
    return not any(UNASKED in name for name in schedules)


def test_the_first_program_of_few_rows_has_streams_measured(folder, monkeypatch):
    """Nothing else has: it takes 0.1 s. Later programs know it, those with any number of rows as well."""
    calls = []

    def measured(target):
        calls.append(target)
        return TileChoice({STREAMS: UNASKED})

    monkeypatch.setattr(streams, "measure", measured)
    rows = torch.export.Dim("rows", max=64)
    any_rows = {"dynamic_shapes": ({0: rows},)}
    model, (row,) = decoder()
    given = torch.randn(3, 512)
    first = shapevm.compile(model, (given,), **any_rows)
    assert calls == []
    exe = shapevm.compile(model, (row,))
    assert len(calls) == 1
    later = shapevm.compile(model, (given,), **any_rows)
    assert len(calls) == 1
    assert [asks(each, folder.parent) for each in (first, exe, later)] == [True, False, False]
    for each, x in ((first, given), (later, given), (exe, row)):
        assert torch.equal(each(x), first(x))
    with shapevm.settings.scope(measured_tiles=False):
        plain = shapevm.compile(model, (row,))
        assert asks(plain, folder.parent)
        assert torch.equal(plain(row), exe(row))


@pytest.mark.skipif(not runs_here("x86-64-v4-vnni"), reason="this CPU has no AVX512_VNNI")
def test_a_program_of_any_rows_in_digits_has_streams_measured(folder, monkeypatch):
    calls, choice = [], TileChoice({STREAMS: UNASKED})
    monkeypatch.setattr(streams, "measure", lambda target: calls.append(target) or choice)
    options = shapevm.Options(weights="int8", target="x86-64-v4-vnni")
    model, rows = torch.nn.Linear(1024, 1024), torch.export.Dim("rows", max=64)
    exe = shapevm.compile(model, (torch.randn(3, 1024),), dynamic_shapes=({0: rows},), options=options)
    assert len(calls) == 1 and not asks(exe, folder.parent)


def test_small_weights_and_many_rows_have_nothing_measured(folder, monkeypatch):
    monkeypatch.setattr(streams, "measure", lambda target: pytest.fail("it was measured"))
    shapevm.compile(torch.nn.Linear(64, 32), (torch.randn(1, 64),))
    shapevm.compile(torch.nn.Linear(512, 1024), (torch.randn(9, 512),))


def test_the_doctor_measures_and_shows_streams(folder):
    found = {f.name: f.value for f in doctor.examine(measure=True)}
    assert "take at most, in times" in found["weights of few rows"]
    assert "take at most, in times" in found["layout changes"]
    later = {f.name: f.value for f in doctor.examine(measure=False)}
    assert later["weights of few rows"] == found["weights of few rows"]
