"""The process that compiles beside a program: its priority, its answers, its end."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from shapevm.jit.compile_job import Job, answer, write_payload
from shapevm.jit.llvm.target import host_target
from shapevm.jit.spec import Buffer, Dim, Index, Instr, Nest, to_json

import shapevm
from shapevm.specialise import compile_process, kernel_requests, profitability
from shapevm.specialise.compile_process import CompileProcess
from tests.stress.orphans import is_running

AT = (Index(0),)
TWICE = Nest(
    1,
    (Buffer("f32", (Dim(0),)), Buffer("f32", (Dim(0),), True)),
    (Dim(0),),
    (
        Instr("load", "f32", buffer=0, index=AT),
        Instr("add", "f32", (0, 0)),
        Instr("store", "f32", (1,), buffer=1, index=AT),
    ),
)


def job(n):
    return Job(to_json(TWICE), (n,), host_target(), None, b"")


def waited(find, seconds=120):
    end = time.monotonic() + seconds
    while (found := find()) is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


@pytest.fixture
def process():
    made = CompileProcess()
    yield made
    pid = made.pid
    made.end()
    waited(lambda: None if is_running(pid) else True)  # its place is free for the next test's


def test_its_answer_is_that_of_this_process(process):
    assert process.pid is None
    for n in (3, 4):
        future = process.submit(job(n))
        found = waited(future.answer)
        assert found.record == answer(job(n)).record and found.seconds > 0 and not found.failure
        assert future.answer() is None


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux")
def test_it_has_the_lowest_priority(process):
    assert process.run(job(3))
    assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
    tasks = [int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()]
    usual = [task for task in tasks if os.sched_getscheduler(task) != os.SCHED_IDLE]
    assert len(tasks) > len(usual) == 1  # which waits for the program's end
    assert os.getpgid(process.pid) != os.getpgid(0)  # no signal of a terminal reaches it


def test_it_shares_its_programs_time(process):
    """Linux schedules each session by itself (autogroups): one more would get half of a busy core."""
    future = process.submit(job(3))
    assert os.getsid(process.pid) == os.getsid(0)
    assert os.getpgid(process.pid) == process.pid  # Ctrl-C at the terminal is not for it
    assert future.wait()


def test_what_cannot_be_compiled_is_told(process):
    assert "ValueError: nest kernel: size n0 is -1" in process.run(job(-1)).failure
    assert process.run(job(5)).record


def test_it_does_one_job_at_a_time(process):
    first = process.submit(job(3))
    assert first is not None and process.submit(job(4)) is None
    process.close()  # somebody waits for it
    assert process.pid is not None
    first.drop()
    assert first.answer() is None
    second = waited(lambda: process.submit(job(4)))
    assert first.answer() is None and waited(second.answer).record == answer(job(4)).record
    process.close()
    assert process.pid is None
    assert waited(lambda: process.submit(job(3))).wait().record


def test_its_death_is_one_failed_kernel_and_many_are_enough(process, caplog):
    for n in range(compile_process.MAX_DEATHS):
        future = waited(lambda n=n: process.submit(job(n)))
        os.kill(process.pid, signal.SIGKILL)
        assert waited(future.answer).failure == "the process that compiles has ended"
    assert not process.is_usable and process.submit(job(9)) is None
    assert sum("compiled by a thread" in record.getMessage() for record in caplog.records) == 1


@pytest.fixture
def many_files():
    """So many open files that the next ones have numbers beyond those that `select` takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096) if hard < 0 else min(4096, hard), hard))
    files = []
    try:
        while not files or files[-1] < 1100:
            files.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_program_may_have_many_open_files(process, many_files):
    assert process.run(job(3)).record


def test_who_waits_for_a_forgotten_job_goes_on(process):
    assert process.run(job(3)).record
    os.kill(process.pid, signal.SIGSTOP)  # it never answers
    found = []
    thread = threading.Thread(target=lambda: found.append(process.run(job(4))), daemon=True)
    thread.start()
    waited(lambda: process._current)
    process.end()
    thread.join(60)
    assert found == [None] and process.pid is None


def test_a_full_disk_is_like_no_process(process, monkeypatch, caplog):
    full = lambda *args, **kwargs: open("/dev/full", "r+b", buffering=0)  # noqa: E731, SIM115
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    while process.is_usable:
        assert process.submit(job(3)) is None and process.pid is None
        time.sleep(0.01)
    assert not process.is_usable and process.run(job(3)) is None
    assert sum("No space left" in record.getMessage() for record in caplog.records) == 1


def test_a_part_of_an_answer_is_none(monkeypatch, tmp_path):
    """A file that cannot grow takes the first bytes: `serve` ends, and the program hears of that."""
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: len(data) - 1)
    with open(tmp_path / "payload", "wb") as file, pytest.raises(OSError, match="No space left"):
        write_payload(file.fileno(), b"answer")


def test_it_ends_with_its_program():
    code = """
        import os, sys, time
        from shapevm.specialise.compile_process import CompileProcess
        from tests.shapevm.specialise.test_compile_process import job
        process = CompileProcess()
        assert process.submit(job(3))
        print(process.pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    status = Path(f"/proc/{int(done.stdout)}/stat")

    def is_gone():
        try:
            return True if status.read_text().rpartition(")")[2].split()[0] == "Z" else None
        except OSError:
            return True

    assert waited(is_gone)


FORKED = """
    import os, sys, time, numpy, shapevm
    from shapevm.specialise import profitability, kernel_requests
    profitability.ASK_NS = 0
    profitability.Gains.pays_after = lambda self, kernel, dims: 2
    profitability.KernelGain.declined_from = 0  # whatever is measured
    exe = shapevm.load(sys.argv[1], strategy="auto")
    def serve(n):
        x = numpy.ones((n, 8), "f")
        while {e.tier for _, e in exe.stats().entries if e.dims == (n,)} != {"exact"}:
            exe(x), time.sleep(0.001)  # a busy core is not shared
        return kernel_requests.PROCESS.pid
    for n in range(4, 30):
        exe(numpy.ones((n, 8), "f")), exe(numpy.ones((n, 8), "f"))
    while kernel_requests.PROCESS.pid is None:
        time.sleep(0.001)
    pid, own = kernel_requests.PROCESS.pid, os.fork()
    if not own:
        assert kernel_requests.PROCESS.pid is None
        os._exit(0 if serve(40) != pid else 1)
    assert serve(50) == pid and os.waitpid(own, 0)[1] == 0
    assert "shapevm.jit.families.table" not in sys.modules  # the program itself never needs the compiler
    print("both")
"""


def test_a_forked_child_has_one_of_its_own(artifact, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKED), str(artifact)], capture_output=True, text=True,
        env={**os.environ, "SHAPEVM_CACHE_DIR": str(tmp_path), "SHAPEVM_COMPILE_BUDGET": "1000"}, timeout=120,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("both\n", "")


def test_a_program_has_its_code_compiled_there(artifact, tmp_path, monkeypatch):
    monkeypatch.setattr(profitability, "ASK_NS", 0)
    monkeypatch.setattr(profitability.Gains, "pays_after", lambda self, kernel, dims: 2)
    monkeypatch.setattr(profitability.KernelGain, "declined_from", 0)  # whatever is measured
    x = np.random.default_rng(0).random((37, 8), "f")
    with (
        shapevm.settings.scope(cache_dir=str(tmp_path), compile_budget=1000),
        shapevm.load(artifact, strategy="auto") as exe,
    ):
        first = exe(x)

        def is_exact():
            exe(x), time.sleep(0.001)
            return True if exe.stats().tier() == "exact" else None

        waited(is_exact)
        n_dynamic = len({kernel for kernel, entry in exe.stats().entries if entry.dims})
        assert exe.stats().compiled == n_dynamic  # no generic code again
        assert exe.specialisation.gains and all(ratio > 0 for ratio in exe.specialisation.gains.values())
        np.testing.assert_array_equal(exe(x)["sum"], first["sum"])
        assert kernel_requests.PROCESS.pid not in (None, os.getpid())
    with shapevm.settings.scope(cache_dir=str(tmp_path)), shapevm.load(artifact, strategy="jit") as exe:
        exe(x)
        assert exe.stats().compiled == 0  # the cache has it
