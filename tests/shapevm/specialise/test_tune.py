"""Tuning: what is measured fastest is kept, in the artifact and beside the cache, with the same bits."""

import errno
import os

import numpy as np
import pytest
import torch
from shapevm.jit.spec_reader import from_json
from shapevm.jit.tuning import FILE, TuningDatabase, schedules_of
from shapevm.vm.artifact import read, write

import shapevm
from shapevm.calls.profiles import Calls, Profile
from shapevm.specialise import tune
from shapevm.specialise.bake import identity
from shapevm.specialise.kernel_store import open_store


@pytest.fixture
def tuned(artifact, tmp_path, monkeypatch):
    """A program, what tuning made of it where a schedule that is not the default is measured fastest, the
    store, in a cache of its own, and that schedule."""
    with shapevm.settings.scope(cache_dir=str(tmp_path / "cache")):
        program, store = read(artifact), open_store()
        spec = next(s for s in (from_json(k.spec) for k in program.kernels) if s.family == "matmul")
        default = store.object(spec, (11,)).schedule_name
        fastest = next(name for name in schedules_of(spec, (5,), store.target) if name != default)
        monkeypatch.setattr(
            tune, "_times", lambda kernels, *rest: {name: 50 if name == fastest else 100 for name in kernels}
        )
        profile = Profile(identity(program), ("n",), {(n,): Calls(9 - n, 9, 1) for n in (5, 7)})
        yield program, tune.tune(program, profile, store, 600), store, fastest


def test_the_fastest_travels_with_the_same_bits(tuned, tmp_path):
    program, found, _, fastest = tuned
    assert len(found.found) == found.total == len(found.objects) == 2
    write(found.program(program), tmp_path / "tuned.svm")
    x = np.random.default_rng(0).random((5, 8), "f")
    with shapevm.load(tmp_path / "tuned.svm", strategy="bucket") as exe:
        result, expected = exe(x), exe.using("generic")(x)
        assert fastest in {entry.schedule.split()[0] for _, entry in exe.stats().entries}
        for name in expected:
            assert result[name].tobytes() == expected[name].tobytes()


def test_programs_of_static_shape_are_tuned(tmp_path, build, monkeypatch):
    with shapevm.settings.scope(cache_dir=str(tmp_path / "cache")):
        x = torch.randn(40, 96)
        build(torch.nn.Linear(96, 160), x).save(tmp_path / "static.svm")
        program, store = read(tmp_path / "static.svm"), open_store()
        monkeypatch.setattr(tune, "_times", lambda kernels, *rest: {n: 9 - (n == "6x16") for n in kernels})
        profile = Profile(identity(program), (), {(): Calls(1, 1, 1)})
        found = tune.tune(program, profile, store, 600)
        assert [name for name, _ in found.found.values()] == ["6x16"]
        write(found.program(program), tmp_path / "tuned.svm")
        with (
            shapevm.load(tmp_path / "static.svm", strategy="generic") as before,
            shapevm.load(tmp_path / "tuned.svm", strategy="bucket") as exe,
        ):
            assert np.asarray(exe(x)).tobytes() == np.asarray(before(x)).tobytes()
            assert [entry.schedule.split()[0] for _, entry in exe.stats().entries] == ["6x16"]


def test_the_database_is_used(tuned, tmp_path):
    program, found, store, fastest = tuned
    (kernel, dims), *_ = found.objects
    spec = from_json(program.kernels[kernel].spec)
    assert open_store().object(spec, dims).schedule_name == fastest
    assert open_store().object(spec, (11,)).schedule_name != fastest
    (tmp_path / "cache" / FILE).write_text("{")
    assert open_store().object(spec, dims).schedule_name != fastest


def test_no_time_and_an_interrupt_leave_what_there_was(artifact, tuned, monkeypatch):
    program, _, store, _ = tuned
    profile = Profile(identity(program), ("n",), {(n,): Calls(1, 1, 1) for n in (5, 6, 7)})
    assert tune.tune(program, profile, store, 0).found == {}

    def interrupt(done, total, what):
        if done == 2:
            raise KeyboardInterrupt

    found = tune.tune(program, profile, store, 600, interrupt)
    assert (len(found.found), found.total) == (2, 3) and "2 of 3" in found.text()


def test_a_database_forgets_what_it_does_not_know(tmp_path, artifact):
    database = TuningDatabase(tmp_path / FILE)
    spec = next(s for s in (from_json(k.spec) for k in read(artifact).kernels) if s.family == "matmul")
    assert len(schedules_of(spec, (5,), "x86-64-v4")) > 1
    database.put(spec, (5,), "x86-64-v4", "9x9")
    assert database.get(spec, (5,), "x86-64-v4") is None
    database.put(spec, (5,), "x86-64-v4", "14x32")
    assert TuningDatabase(tmp_path / FILE).get(spec, (5,), "x86-64-v4") == "14x32"
    assert database.get(spec, None, "x86-64-v4") is None


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000, "", "null", "[]", '{"format": "shapevm-tuning-1"}', "\0" * 9, '{"format": "other"}',
        '{"format": "shapevm-tuning-1", "schedules": 5}',
        '{"format": "shapevm-tuning-1", "schedules": [[[], 1]]}',
    ],
)  # fmt: skip
def test_a_damaged_database_is_empty(tmp_path, artifact, text):
    (tmp_path / FILE).write_text(text)
    database = TuningDatabase(tmp_path / FILE)
    spec = next(s for s in (from_json(k.spec) for k in read(artifact).kernels) if s.family == "matmul")
    assert database.get(spec, (5,), "x86-64-v4") is None
    database.put(spec, (5,), "x86-64-v4", "14x32")
    assert database.get(spec, (5,), "x86-64-v4") == "14x32"


def test_a_database_that_cannot_be_written_leaves_no_files(tmp_path, artifact, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("shapevm.jit.tuning.json.dump", full)
    spec = next(s for s in (from_json(k.spec) for k in read(artifact).kernels) if s.family == "matmul")
    TuningDatabase(tmp_path / FILE).put(spec, (5,), "x86-64-v4", "14x32")
    assert not list(tmp_path.iterdir())
