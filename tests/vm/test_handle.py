"""A program may be closed by one thread while others use it."""

from __future__ import annotations

import os
import random
import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.errors import ArgumentError, IndexOutOfRange
from shapevm.vm.handle import ProgramClosed
from shapevm.vm.machine import Machine

from .kernels import GATHER_TEXT, HOST_TEXT, add_program, with_code
from .test_files import MAPPED, weighted

#: `make tsan` closes as many.
N_CLOSES = int(os.environ.get("SVM_TEST_CLOSES", "150"))

TABLE = np.arange(4, dtype="f4")


def in_threads(n: int, work: Callable[[int], object]) -> list[BaseException]:
    """Run work(0..n-1) at once; return what they raised."""
    problems: list[BaseException] = []

    def guarded(seed: int) -> None:
        try:
            work(seed)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems


def check_failing_call(m: Machine, wrong: int) -> None:
    with pytest.raises((IndexOutOfRange, ProgramClosed)) as caught:
        m.call([TABLE, np.array([1, wrong, 0])])
    if caught.type is IndexOutOfRange:
        assert f"index {wrong} " in str(caught.value) and caught.value.source == "model.py:8"


def test_closing_while_threads_use_the_program() -> None:
    data = artifact.to_bytes(with_code(assemble(GATHER_TEXT)))
    current = [Machine.from_bytes(data)]
    ended = threading.Event()

    def right_call(m: Machine) -> None:
        indices = np.arange(1 + random.randrange(5)) % 4
        np.testing.assert_array_equal(m.call([TABLE, indices])[0], TABLE[indices])

    def recording(m: Machine) -> None:
        m.record()
        assert '"symbols":["n"]' in m.profile().replace(" ", "")
        m.record(False)

    def timeline(m: Machine) -> None:
        m.timeline()
        m.timeline_data()

    uses: list[Callable[[Machine], object]] = [
        right_call, right_call, lambda m: check_failing_call(m, 1000 + random.randrange(1000)),
        lambda m: m.call_as("generic", [TABLE, np.array([1])]), Machine.metrics, Machine.stats,
        lambda m: m.site(0), recording, timeline, lambda m: (m.kernels, m.functions, m.externs),
        lambda m: m.bind([TABLE, np.array([1, 2])]), lambda m: m.set_strategy("generic"),
        lambda m: m.wait_request(0.001),
    ]  # fmt: skip

    def work(seed: int) -> None:
        if seed == 0:
            for _ in range(N_CLOSES):
                m, current[0] = current[0], Machine.from_bytes(data)
                m.close()
            ended.set()
            return
        while not ended.is_set():
            m = current[0]
            for use in random.sample(uses, 4):
                with suppress(ArgumentError):  # the program is closed; no compiler is attached
                    use(m)

    assert in_threads(9, work) == []
    current[0].close()


def test_a_closed_program_says_so_and_is_freed(tmp_path: Path) -> None:
    (tmp_path / "closed.svm").write_bytes(artifact.to_bytes(add_program()))
    m = Machine.open(tmp_path / "closed.svm")
    x = np.ones(3, "f4")
    for _ in range(3):
        m.call([x, x])
    m.close()
    m.close()
    uses: list[Callable[[], object]] = [
        lambda: m.call([x, x]), lambda: m.call_as("jit", [x, x]), lambda: m.kernels, m.stats, m.metrics,
        m.profile, m.record, m.timeline, m.timeline_data, lambda: m.site(0), lambda: m.bind([x, x]),
        lambda: m.set_strategy("auto"), m.check_weights, m.hurry, lambda: m.wait_request(0.0), m.check_open,
        lambda: m.call_function("main", [x, x, 3]), lambda: next(m.installed(0)), lambda: m.meta,
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(ArgumentError, match="the program is closed; load the artifact again"):
            use()
    assert not m.is_open and m.inputs


def test_a_call_that_runs_ends_after_closing() -> None:
    m = Machine.from_bytes(artifact.to_bytes(assemble(HOST_TEXT)))

    def host(x: np.ndarray[Any, Any]) -> list[Any]:
        m.close()
        with pytest.raises(ProgramClosed):
            m.stats()
        return [x + 1]

    m.register_extern("host", host)
    np.testing.assert_array_equal(m.call([np.zeros(2, "f4")])[0], [1, 1])
    with pytest.raises(ProgramClosed):
        m.call([np.zeros(2, "f4")])


def test_the_last_user_frees(tmp_path: Path) -> None:
    path = tmp_path / "mapped.svm"
    artifact.write(weighted(1 << 16), path)

    def is_mapped() -> bool:
        return str(path) in Path("/proc/self/maps").read_text()

    m = Machine.open(path, MAPPED)
    entered, closed = threading.Event(), threading.Event()

    def use(seed: int) -> None:
        if seed:
            entered.wait()
            m.close()
            assert is_mapped()
            closed.set()
            return
        with m._handle.use():
            entered.set()
            closed.wait()
        assert not is_mapped()

    assert in_threads(2, use) == []


def test_a_forked_child_frees_what_its_parents_threads_used(tmp_path: Path) -> None:
    path = tmp_path / "mapped.svm"
    artifact.write(weighted(1 << 16), path)
    m = Machine.open(path, MAPPED)
    entered, forked = threading.Event(), threading.Event()

    def use(seed: int) -> None:
        with m._handle.use():
            entered.set()
            forked.wait()

    thread = threading.Thread(target=use, args=(0,))
    thread.start()
    entered.wait()
    if (child := os.fork()) == 0:
        m.close()
        os._exit(str(path) in Path("/proc/self/maps").read_text())
    forked.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    m.close()


def test_threads_get_the_errors_of_their_own_calls() -> None:
    m = Machine.from_bytes(artifact.to_bytes(with_code(assemble(GATHER_TEXT))))
    for _ in range(3):
        m.call([TABLE, np.array([1, 2, 3])])

    def work(seed: int) -> None:
        for _ in range(2000):
            with pytest.raises(IndexOutOfRange) as caught:
                m.call([TABLE, np.array([0, 1000 + seed, 2])])
            found = re.search(r"index (\d+)", str(caught.value))
            assert found and int(found[1]) == 1000 + seed

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        assert in_threads(8, work) == []
    finally:
        sys.setswitchinterval(interval)
        m.close()
