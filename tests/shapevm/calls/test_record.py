"""Recording, merging, metrics, freezing: counts are right, and what is frozen is what ran."""

import json
import os
import subprocess
import threading

import numpy as np
import pytest
from shapevm.vm.artifact import parse_object
from shapevm.vm.artifact import read as read_artifact

import shapevm
from shapevm.calls.profiles import Calls, Profile, from_json, merge, read


def rows(n):
    return np.random.default_rng(n).random((n, 8), "f")


# record ---------------------------------------------------------------------------------------------


def counts(profile):
    return {values: calls.count for values, calls in profile.sizes.items()}


def test_a_recording_counts_sizes_and_times(artifact, tmp_path):
    with shapevm.load(artifact, strategy="generic") as exe:
        exe(rows(9))  # before
        with shapevm.record() as recording:
            for n in (3, 5, 3, 3, 100):
                exe(rows(n))
            (inside,) = recording.profiles
        exe(rows(9))  # after
        (profile,) = recording.profiles
        assert counts(profile) == counts(inside) == {(3,): 3, (5,): 1, (100,): 1}
        assert profile.symbols == ("n",) and profile.dropped == 0 and profile.n_calls == 5
        assert all(0 < c.least_ns <= c.total_ns / c.count for c in profile.sizes.values())
        recording.save(tmp_path / "p.json")
        assert read(tmp_path / "p.json") == profile


def test_refused_calls_are_not_counted(artifact):
    with shapevm.load(artifact, strategy="generic") as exe, shapevm.record(exe) as recording:
        with pytest.raises(shapevm.ShapeError):
            exe(rows(101))
        assert recording.profiles == []


def test_programs_loaded_and_closed_inside(artifact):
    with shapevm.record() as recording:
        for n in (4, 4, 6):
            with shapevm.load(artifact, strategy="generic") as exe:
                exe(rows(n))
    assert [counts(p) for p in recording.profiles] == [{(4,): 2, (6,): 1}]


def test_only_the_programs_named(artifact):
    with shapevm.load(artifact) as a, shapevm.load(artifact) as b:
        with shapevm.record(a) as outer, shapevm.record() as inner:
            a(rows(1)), b(rows(2))
        assert counts(outer.profiles[0]) == {(1,): 1} and counts(inner.profiles[0]) == {(1,): 1, (2,): 1}
        with shapevm.record() as none:
            pass
        with pytest.raises(shapevm.ArgumentError, match="0 programs were called"):
            none.save("nowhere.json")


def test_threads_are_all_counted(artifact):
    with shapevm.load(artifact, strategy="generic") as exe, shapevm.record(exe) as recording:

        def work():
            for i in range(200):
                exe(rows(1 + i % 50))

        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert counts(recording.profiles[0]) == {(n,): 16 for n in range(1, 51)}


def test_merging_adds():
    a = Profile("p", ("n",), {(1,): Calls(2, 20, 8), (2,): Calls(1, 5, 5)}, 1)
    b = Profile("p", ("n",), {(1,): Calls(3, 30, 7)}, 2)
    assert merge([a, b]) == Profile("p", ("n",), {(1,): Calls(5, 50, 7), (2,): Calls(1, 5, 5)}, 3)
    assert from_json(merge([a, b]).json()) == merge([b, a])
    with pytest.raises(shapevm.ArgumentError, match="merge those of one program"):
        merge([a, Profile("q", ("n",))])


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"}, {"version": 2}, {"symbols": 5}, {"dropped": -1}, {"sizes": [{}]},
        {"sizes": [{"values": [1, 2], "count": 1, "total_ns": 0, "least_ns": 0}]},
        {"sizes": [{"values": [-1], "count": 1, "total_ns": 0, "least_ns": 0}]},
        {"sizes": [{"values": [1], "count": 0, "total_ns": 0, "least_ns": 0}]},
        {"sizes": [{"values": [1], "count": True, "total_ns": 0, "least_ns": 0}]},
        {"sizes": 2 * [{"values": [1], "count": 1, "total_ns": 0, "least_ns": 0}]},
        {"sizes": [{"values": [1 << 63], "count": 1, "total_ns": 0, "least_ns": 0}]},
        {"sizes": [{"values": [1], "count": 10**4000, "total_ns": 0, "least_ns": 0}]},
        {"sizes": [{"values": [1] * 9999, "count": 1, "total_ns": 0, "least_ns": 0}]}, {"format": "x" * 9999},
        {"symbols": ["n", "n"], "sizes": []},
    ],
)  # fmt: skip
def test_other_json_is_refused(change):
    data = json.loads(Profile("p", ("n",), {(1,): Calls(1, 1, 1)}).json())
    assert from_json(json.dumps(data)).n_calls == 1
    with pytest.raises(shapevm.ArgumentError, match="is no profile") as caught:
        from_json(json.dumps({**data, **change}))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("size", [0, 1 << 40, (1 << 63) - 1])
def test_sizes_that_the_program_does_not_take_are_refused(artifact, tmp_path, size):
    from shapevm.vm.artifact import read as read_program

    from shapevm.specialise.bake import check_profile

    with shapevm.load(artifact, strategy="generic") as exe, shapevm.record(exe) as recording:
        exe(rows(3))
        profile = recording.profiles[0]
    program = read_program(artifact)
    check_profile(program, profile)
    wrong = Profile(profile.program, profile.symbols, {(size,): Calls(1, 1, 1)})
    with pytest.raises(shapevm.ArgumentError, match=f"= {size}; the program takes"):
        check_profile(program, wrong)


def test_a_fifo_is_no_profile(tmp_path):
    os.mkfifo(tmp_path / "p.json")
    with pytest.raises(shapevm.Error, match="it is no regular file"):
        read(tmp_path / "p.json")


def test_the_runner_and_python_write_one_format(artifact, tmp_path):
    np.save(tmp_path / "x.npy", rows(6))
    command = [shapevm.runner_path(), artifact, "--input", f"x={tmp_path / 'x.npy'}", "--repeat", "4"]
    command += ["--record", tmp_path / "p.json", "--metrics", tmp_path / "m.txt"]
    subprocess.run(command, check=True, capture_output=True)
    profile = read(tmp_path / "p.json")
    assert counts(profile) == {(6,): 4}
    with shapevm.load(artifact, strategy="generic") as exe, shapevm.record(exe) as recording:
        exe(rows(6))
        assert recording.profiles[0].program == profile.program
        ours = exe.metrics()
    theirs = (tmp_path / "m.txt").read_text()
    names = [line for line in theirs.splitlines() if line.startswith("# TYPE")]
    assert [line for line in ours.splitlines() if line in names] == names
    assert 'shapevm_calls_total{model="net"} 4\n' in theirs and theirs.endswith("# EOF\n")


# metrics --------------------------------------------------------------------------------------------


def test_metrics_are_openmetrics_and_count(artifact):
    with shapevm.load(artifact, strategy="jit") as exe:
        for n in (3, 4, 4):
            exe(rows(n))
        lines = exe.metrics().splitlines()
    assert lines[-1] == "# EOF" and lines.count("# EOF") == 1
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values['shapevm_calls_total{model="net"}'] == "3"
    assert values['shapevm_replays_total{model="net"}'] == "1"
    misses = [value for name, value in values.items() if name.startswith("shapevm_site_misses_total{")]
    assert misses == ["2", "2"]  # n=3 and n=4, at two kernels
    assert (
        int(values['shapevm_code_installed_total{model="net"}']) == 2
    )  # two kernels at n=4; n=3 is in the artifact
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(set(families)) == len(families)
    for name in values:
        assert any(name.startswith(family) for family in families), name


# freeze ---------------------------------------------------------------------------------------------


def test_what_is_frozen_is_what_ran(artifact, tmp_path):
    path = tmp_path / "frozen.svm"
    with shapevm.load(artifact, strategy="jit") as exe:
        expected = {n: exe(rows(n))["sum"].tobytes() for n in (3, 7, 20)}
        ran = {parse_object(x) for k in range(len(exe.machine.kernels)) for x in exe.machine.installed(k)}
        assert {o.exact_dims for o in ran} == {(7,), (20,)}
        assert exe.freeze() == len(ran) == 4
        assert exe.freeze() == 0  # all are in
        exe.save(path)
    frozen = {o for kernel in read_artifact(path).kernels for o in kernel.objects}
    assert ran <= frozen and {o.exact_dims for o in frozen} == {None, (3,), (7,), (20,)}
    with shapevm.load(path, strategy="bucket") as exe:
        for n, bits in expected.items():
            assert exe(rows(n))["sum"].tobytes() == bits
        assert exe.stats().tier() == "exact" and exe.stats().compiled == exe.stats().from_cache == 0


def test_freezing_while_threads_call(artifact, tmp_path):
    with shapevm.settings.scope(compile_budget=0), shapevm.load(artifact, strategy="auto") as exe:
        stop = threading.Event()

        def work():
            n = 0
            while not stop.is_set():
                n = n % 60 + 1
                exe(rows(n))

        threads = [threading.Thread(target=work) for _ in range(2)]
        [t.start() for t in threads]
        for i in range(5):
            exe.freeze()
            exe.save(tmp_path / f"{i}.svm")
        stop.set()
        [t.join() for t in threads]
    for i in range(5):
        read_artifact(tmp_path / f"{i}.svm")
