"""The process that compiles ends with its program, however that ends and however busy the machine is."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from shapevm.jit.compile_job import Job
from shapevm.jit.llvm.target import host_target
from shapevm.jit.spec import to_json

from shapevm.specialise import worker
from shapevm.specialise.compile_process import CompileProcess
from tests.stress.orphans import busy_machine, is_running, orphans, run_short_programs

from .test_compile_process import TWICE, waited

ROOT = Path(__file__).parents[3]


def job(n: int, cache: Path) -> Job:
    return Job(to_json(TWICE), (n,), host_target(), None, b"", str(cache))


@pytest.fixture
def three() -> Iterator[list[CompileProcess]]:
    made = [CompileProcess() for _ in range(3)]
    yield made
    for process in made:
        process.end()


def test_two_of_a_user_work_in_the_background(three: list[CompileProcess], tmp_path: Path) -> None:
    first, second, third = (process.submit(job(3, tmp_path)) for process in three)
    assert first and second and not third
    assert three[2].is_usable  # it waits for its turn
    pid = three[0].pid
    three[0].end()
    waited(lambda: None if is_running(pid) else True)
    assert three[2].run(job(3, tmp_path)).record


def test_ended_processes_leave_the_systems_table(tmp_path: Path) -> None:
    pids = []
    for _ in range(3):
        process = CompileProcess(is_background=False)  # as each `compile` has one
        assert process.run(job(3, tmp_path)).record
        pids.append(process.pid)
        process.close()
    worker.reap()
    waited(lambda: worker.reap() or not any(Path(f"/proc/{pid}").exists() for pid in pids) or None)


def test_without_a_cache_one_works_beside_a_program(three: list[CompileProcess]) -> None:
    no_cache = Job(to_json(TWICE), (3,), host_target(), None, b"")
    assert [bool(process.submit(no_cache)) for process in three] == [True, False, False]


ENDING = """
    import os, sys, threading, time
    from pathlib import Path
    from shapevm.specialise.compile_process import CompileProcess
    from tests.shapevm.specialise.test_worker import job
    process = CompileProcess()
    def start():
        assert process.run(job(3, Path(sys.argv[1])))
    thread = threading.Thread(target=start)
    thread.start(), thread.join()
    time.sleep(0.2)
    assert Path(f"/proc/{process.pid}").exists()  # though the thread that has started it has ended
    print(process.pid, flush=True)
    END
"""
ENDS = ["os.kill(os.getpid(), 9)", "os._exit(0)", "sys.exit()", "os.execv('/bin/true', ['true'])"]


@pytest.mark.parametrize("end", ENDS)
def test_it_ends_however_its_program_ends(end: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ENDING).replace("END", end), str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert not done.stderr
    waited(lambda: None if is_running(int(done.stdout)) else True)


def test_its_priority_is_back_when_it_ends(tmp_path: Path) -> None:
    """At the lowest one this would take minutes: every processor has a busy loop and more."""
    process = CompileProcess()
    assert process.run(job(3, tmp_path)).record
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with busy_machine():
        start = time.monotonic()
        process.close()
        waited(lambda: None if is_running(pid) else True)
    assert time.monotonic() - start < 30


def test_a_frozen_program_starts_no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker.interpreter() == sys.executable
    monkeypatch.setattr(sys, "executable", "/usr/bin/uwsgi")
    assert os.path.basename(worker.interpreter()).startswith("python")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert worker.interpreter() == ""


def test_short_programs_leave_none_behind() -> None:
    report = run_short_programs(4)
    assert report.done == 4 and not report.wrong
    assert not orphans(report.mark)
