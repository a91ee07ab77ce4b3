"""exe.profile() and `shapevm profile`: whole times, right counts, every kernel's line, work and threads."""

import json
import threading

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import shapevm
from shapevm.__main__ import main

from ..program.test_executable import run_python


def rows(n):
    return np.random.default_rng(n).random((n, 8), "f")


@pytest.fixture
def exe(artifact):
    with shapevm.load(artifact, strategy="generic") as exe:
        yield exe


def test_counts_lines_and_work(exe):
    profile = exe.profile((rows(5),), calls=7)
    data = json.loads(profile.to_json())
    assert data["calls"] == 7 and data["lost"] == 0
    assert data["limits"]["flops"] > 1e9 and data["threads"] == shapevm.get_threads()
    kernels = {row["kernel"]: row for row in data["kernels"]}
    assert len(kernels) == len(exe.machine.kernels)
    for index, row in kernels.items():
        info = exe.machine.kernels[index]
        assert (row["label"], row["source"]) == (info.label, info.source)
        assert (row["calls"], row["dims"], row["tier"]) == (7, [5], "generic")
        assert row["total_ms"] > 0 and 0 < row["time_share"] < 1 and row["variant"]
        assert sum(own["tiles"] for own in row["threads"].values()) > 0
        assert row["rates"]["gflops"] == pytest.approx(row["flops"] / (row["total_ms"] * 1e6 / 7))
    matmul = next(row for row in data["kernels"] if row["label"].startswith("matmul"))
    assert matmul["flops"] == 5 * 16 * (2 * 8 + 2)
    assert data["flops"] == sum(row["calls"] * row["flops"] for row in data["kernels"]) > 7 * matmul["flops"]
    reached = data["flops"] / data["total_ms"] / 1e6
    share = reached * 1e9 / data["limits"]["flops"]
    assert f"all calls: {reached:.1f} GFLOP/s, {share:.0%} of the limit\n" in str(profile)
    inside = sum(row["total_ms"] for row in data["kernels"])
    assert inside + data["outside_ms"] == pytest.approx(data["total_ms"])


def test_block_at_several_shapes_and_tiers(exe):
    with exe.profile() as profile:
        assert "not complete" in repr(profile) and "not complete" in str(profile)
        with pytest.raises(shapevm.ArgumentError, match="after the with block"):
            profile.to_json()
        exe(rows(3))
        exe(rows(3))
        exe.using("bucket")(rows(3))
        exe(rows(9))
    found = {(row.kernel, row.dims, row.tier): row.calls for row in profile.kernels}
    for kernel in range(len(exe.machine.kernels)):
        assert found[kernel, (3,), "generic"] == 2 and found[kernel, (3,), "exact"] == 1
        assert found[kernel, (9,), "generic"] == 1
    with pytest.raises(shapevm.ArgumentError, match="taken already"), profile:
        pass


def test_nothing_is_noted_outside_of_the_block(exe):
    exe(rows(3))
    with exe.profile() as profile:
        pass
    exe(rows(3))
    assert profile.data["calls"] == 0 and profile.kernels == []
    assert "0 calls" in str(profile)


def test_one_profile_at_a_time(exe):
    with exe.profile() as outer:
        exe(rows(3))
        with pytest.raises(shapevm.ArgumentError, match="being taken already; end it first"):
            exe.profile((rows(3),))
        exe(rows(3))
    assert outer.data["calls"] == 3  # the inner one's call to warm up is a call
    assert exe.profile((rows(3),), calls=2).data["calls"] == 2
    with pytest.raises(shapevm.ShapeError), exe.profile() as broken:
        exe(np.zeros((3, 9), "f"))
    assert broken.data["calls"] <= 1 and exe.profile((rows(3),), calls=1).data["calls"] == 1


def test_named_inputs_and_wrong_calls(exe):
    assert exe.profile({"x": rows(2)}, calls=1).data["calls"] == 1
    assert exe.profile(rows(2), calls=2).data["calls"] == 2
    with pytest.raises(shapevm.ArgumentError, match="calls is 0; give a whole number, 1 or more"):
        exe.profile((rows(2),), calls=0)


def test_chrome_trace(exe, tmp_path):
    path = tmp_path / "trace.json"
    exe.profile((rows(4),), calls=2).to_chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert len(kernels) == 2 * len(exe.machine.kernels)
    assert all(event["args"]["bytes"] > 0 and event["args"]["share"] > 0 for event in kernels)
    assert sum(event.get("cat") == "call" for event in events) == 2
    with pytest.raises(shapevm.Error, match="cannot be written"):
        exe.profile((rows(4),), calls=1).to_chrome_trace(tmp_path / "missing" / "trace.json")


def test_host_functions_have_their_time(build):
    exe = build(lambda self, x: torch.linalg.svdvals(x) + 1, torch.randn(6, 6))
    profile = exe.profile((torch.randn(6, 6),), calls=3)
    (host,) = profile.data["host"]
    assert host["name"].startswith("aten::") and host["calls"] == 3 and host["total_ms"] > 0
    assert host["source"] == exe.machine.extern_sources[host["name"]]
    assert "in PyTorch" in profile.text()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_is_whole(exe, width):
    profile = exe.profile((rows(5),), calls=3)
    text = profile.text(width)
    assert max(map(len, text.splitlines())) <= max(width, 80) and "…" not in text
    for row in profile.kernels:
        assert f"{row.total_ms:.3f}" in text and f"k{row.kernel}" in text
    assert profile.kernels[0].source in text.replace("\n", "")


def test_threads_call_while_timelines_come_and_go(exe):
    """Calls of four threads run to their end while profiles are taken; each profile is whole JSON."""
    stop, failures = threading.Event(), []
    expected = exe(rows(50))["sum"]

    def work():
        while not stop.is_set():
            if not np.array_equal(exe(rows(50))["sum"], expected):
                failures.append("another result")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            with exe.profile() as profile:
                exe(rows(50))
            assert profile.data["calls"] >= 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


def run(*args, code=0):
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result


def test_command(artifact, tmp_path):
    trace = tmp_path / "trace.json"
    done = run("profile", artifact, "--sizes", "n=5", "--calls", 4, "--trace", trace, "--strategy", "generic")
    assert "4 calls of" in done.stdout and "net_of_test.py" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stderr == "" and json.loads(trace.read_text())["traceEvents"]
    quiet = run("profile", artifact, "--sizes", "n=5", "--sizes", "n=3", "--calls", 2, "--json", "--quiet")
    data = json.loads(quiet.stdout)
    assert data["calls"] == 4 and quiet.stderr == ""
    assert {tuple(row["dims"]) for row in data["kernels"]} == {(5,), (3,)}
    np.save(tmp_path / "x.npy", rows(6))
    found = run("profile", artifact, "--input", f"x={tmp_path / 'x.npy'}", "--calls", 1, "--json", "-q")
    assert json.loads(found.stdout)["kernels"][0]["dims"] == [6]


def test_command_without_sizes_says_what_to_give(artifact):
    failed = run("profile", artifact, code=2)
    assert "--sizes n=1" in failed.stderr


def test_a_child_of_fork_is_another_thread(artifact):
    done = run_python(
        """
        import os, sys, threading, numpy, shapevm
        exe = shapevm.load(sys.argv[1])
        def own_thread():
            profile = exe.profile((numpy.ones((5, 8), "f"),), calls=2)
            return {event["tid"] for event in profile.timeline["traceEvents"] if event.get("cat") == "call"}
        assert own_thread() == {threading.get_native_id()}
        pid = os.fork()
        if pid == 0:
            os._exit(0 if own_thread() == {os.getpid()} else 3)
        assert os.waitpid(pid, 0)[1] == 0 and own_thread() == {os.getpid()}
        """,
        artifact,
    )
    assert done.returncode == 0, done.stderr
