"""Streams of shapes: the generic tier's bits everywhere, and memory that does not grow with them."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch
from shapevm.vm.program import Symbol

import shapevm
from shapevm.promises.stress import (
    MAX_GROWTH,
    STREAMS,
    Flat,
    Run,
    distinct,
    failing_compilations,
    many_shapes,
    shapes,
    stress,
)

N_SHAPES = 100_000
CODE_BYTES = 1 << 20

pytestmark = pytest.mark.failing_kernels  # compilations fail on purpose


@pytest.mark.parametrize("stream", STREAMS)
def test_streams_keep_the_contract_and_repeat(stream):
    symbols = [Symbol("n", 3, 40, 4), Symbol("m", 0)]
    taken = [tuple(s.values()) for s, _ in zip(shapes(symbols, stream, 7), range(500), strict=False)]
    again = [tuple(s.values()) for s, _ in zip(shapes(symbols, stream, 7), range(500), strict=False)]
    assert taken == again and all(4 <= n <= 40 and n % 4 == 0 and 0 <= m <= 256 for n, m in taken)
    assert len(set(taken)) > 8


@pytest.mark.parametrize("stream", STREAMS)
def test_bits_under_eviction_and_failures(two_sizes, stream):
    with shapevm.settings.scope(compile_budget=0, hot_calls=1, plans=8), failing_compilations(0.3):
        run = Run(two_sizes, code_bytes=1)
        try:
            run.work(stream, seed=1, n_calls=60)
            assert run.exe.wait_until_specialised(timeout=600)
            report = run.finish()
        finally:
            run.close()
    assert report.problems == [] and report.calls == 60
    assert report.evicted > 0
    assert report.failed_compilations > 0 or stream == "alternating"  # which has few shapes


def test_all_at_once(two_sizes):
    report = stress(two_sizes, seconds=4, n_threads=5)
    assert report.problems == []
    assert report.calls > 100 and report.shapes > 50 and report.evicted > 0


def test_a_wrong_result_is_noticed(two_sizes, monkeypatch):
    run = Run(two_sizes, code_bytes=1 << 20)
    try:
        call = run.exe.machine.call
        wrong = lambda xs: [x * (1 + (xs[0].shape[0] == 5)) for x in call(xs)]  # noqa: E731
        monkeypatch.setattr(run.exe.machine, "call", wrong)
        run.work("growing", seed=0, n_calls=10)
        report = run.finish()
    finally:
        run.close()
    assert len(report.problems) == 1 and report.problems[0].startswith("{'n': 5")


def test_memory_is_flat_over_many_shapes(large_sizes):
    """Plans, entries of call sites, requests and code all have their bounds. Code has a low one here, which
    is reached while warming up."""
    flat = many_shapes(large_sizes, N_SHAPES, CODE_BYTES)
    assert flat.shapes == N_SHAPES and flat.wrong == 0, flat.text()
    assert flat.warm_bytes > 0.9 * CODE_BYTES and flat.evicted > flat.compiled / 2, flat.text()
    assert flat.growth <= MAX_GROWTH, flat.text()
    assert flat.slowdown < 1.5, flat.text()  # caches that others use as well


def test_a_cache_that_has_only_the_first_shapes_is_no_growth(large_sizes, tmp_path):
    """The compiler takes 28 MiB in the process that loads it."""
    run = textwrap.dedent("""
        import itertools, sys
        from pathlib import Path
        from shapevm.promises import stress

        distinct, path, n_first = stress.distinct, Path(sys.argv[1]), int(sys.argv[2])
        stress.distinct = lambda symbols, n: itertools.islice(distinct(symbols, n), n_first)
        stress.many_shapes(path, 200, 1 << 30)
    """)
    environment = {**os.environ, "SHAPEVM_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", run, str(large_sizes), "60"], env=environment, check=True)
    command = [sys.executable, "-m", "shapevm", "stress", str(large_sizes), "--shapes", "200", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert done.returncode == 0 and max(report["resident"]) < 1.05 * report["resident"][0], done.stdout


def test_wrong_results_and_growth_fail():
    small, large = 100 << 20, 1000 << 20
    for start, end, wrong, has_failed in [
        (large, large, 0, False), (large, large, 1, True), (large, int(large * 1.06), 0, True),
        (large, int(large * 1.04), 0, False), (small, small + (7 << 20), 0, False),
        (small, small + (9 << 20), 0, True),
    ]:  # fmt: skip
        flat = Flat(200, 0, 0, wrong, 0, [start] * 19 + [end], [], [])
        assert flat.has_failed == has_failed


def test_call_sites_of_a_large_program_drop_entries():
    """Beyond 8,192 entries, sites that have 256 drop those that no plan uses when their tables are full."""
    layers = torch.nn.Sequential(*(torch.nn.Linear(3 + i, 4 + i) for i in range(36)))
    rows = torch.export.Dim("rows", min=1, max=700)
    options = {"dynamic_shapes": ({0: rows},), "strategy": "generic"}
    with shapevm.settings.scope(plans=16), shapevm.compile(layers, (torch.randn(3, 3),), **options) as exe:
        for n in range(1, 601):
            exe(torch.zeros(n, 3))
        kernels = [kernel for kernel, _ in exe.stats().entries]
    assert len(set(kernels)) == 36 and len(kernels) < 2 * 8192  # 36 * 600 if none were dropped


def test_shapes_are_distinct():
    symbols = [Symbol("n", 3, 40, 4), Symbol("m", 0)]
    found = [tuple(sizes.values()) for sizes in distinct(symbols, 200)]
    assert len(set(found)) == len(found) and all(4 <= n <= 40 and n % 4 == 0 for n, _ in found)
    assert found[1][0] != found[2][0] and len({m for _, m in found}) > 10
    assert list(distinct([], 100)) == [{}]


def test_forks_in_the_middle(two_sizes):
    script = textwrap.dedent("""
        import os, sys, threading
        import shapevm
        from shapevm.promises.stress import Run
        with shapevm.settings.scope(compile_budget=0, hot_calls=1, plans=8):
            run = Run(sys.argv[1], 1 << 16)
        threads = [threading.Thread(target=run.work, args=("uniform", i)) for i in range(2)]
        [t.start() for t in threads]
        children = []
        for i in range(6):
            run.work("zipf", 10 + i, 20)
            child = os.fork()
            if not child:
                import faulthandler
                faulthandler.dump_traceback_later(200, exit=True)
                run.work("adversarial", 20 + i, 30)
                os._exit(len(run.report.problems))
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        run.stop()
        [t.join() for t in threads]
        print(codes, run.report.problems)
    """)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, two_sizes], capture_output=True, text=True, timeout=600
    )
    assert done.stdout == "[0, 0, 0, 0, 0, 0] []\n", done.stdout + done.stderr[-2000:]


def test_processes_that_are_killed_leave_others_alone(two_sizes, tmp_path):
    """Processes share a disk cache and are killed while they fill it; a later one has the right bits."""
    command = [sys.executable, "-m", "shapevm", "stress", two_sizes, "--seconds", "30"]
    environment = {**os.environ, "SHAPEVM_CACHE_DIR": str(tmp_path)}
    for i in range(3):
        workers = [
            subprocess.Popen(
                [*command, "--seed", str(10 * i + j)], env=environment, stdout=subprocess.DEVNULL
            )
            for j in range(2)
        ]
        end = time.monotonic() + 300
        while not any(tmp_path.glob("??/*")) and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(0.37 * i)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
            worker.wait()
    assert any(tmp_path.glob("??/*"))
    command[-1] = "3"
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.endswith("ok\n") and done.returncode == 0, done.stdout
