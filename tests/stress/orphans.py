"""Short programs one after the other on a busy machine, none of which leaves a process behind.

    python -m tests.stress.orphans [--programs N]

Each program loads an artifact, calls it while a process compiles for it, and ends: at its end, by os._exit as
the children of multiprocessing do, or killed. One second later none of its processes may be there, and at no
time more than MAX_PROCESSES.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

import shapevm
from shapevm.specialise.worker import MAX_PROCESSES

SECONDS = 1.0  # after which a program's processes must be gone
MARK = "SHORT_PROGRAM"  # a variable of the environment, by which a program's processes are known
ENDS = ("sys.exit()", "os._exit(0)", "os.kill(os.getpid(), 9)")
PROGRAM = """
import os, sys, time, numpy
import shapevm
from shapevm.specialise import kernel_requests, profitability
profitability.ASK_NS = profitability.START_SECONDS = 0
profitability.Gains.pays_after = lambda self, kernel, dims: 2
profitability.KernelGain.declined_from = 0
exe, n, end = shapevm.load(sys.argv[1], strategy="auto"), 1000, time.monotonic() + 60
while kernel_requests.PROCESS.pid is None and time.monotonic() < end:
    n += 1
    for _ in range(3): exe(numpy.ones((n, 16), "f"))
if kernel_requests.PROCESS.pid is None: print("no process was started", flush=True)
for n in range(5000, 5050): exe(numpy.ones((n, 16), "f")), exe(numpy.ones((n, 16), "f"))
"""


@dataclass
class Report:
    """What happened: `wrong` says what should not have; `mark`: of the programs' environment."""

    mark: str
    done: int = 0
    most: int = 0
    wrong: list[str] = field(default_factory=list)


@contextlib.contextmanager
def busy_machine(n: int | None = None) -> Iterator[None]:
    """Keep the machine busy with `n` loops, None: two for each of its CPUs."""
    loop = [sys.executable, "-S", "-c", "while True: pass"]
    loops = [subprocess.Popen(loop) for _ in range(n or 2 * len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1  # a thread may outlive the first one
    except OSError:
        return False


def orphans(mark: str) -> list[int]:
    """Return the processes whose environment has this mark."""
    found, wanted = [], f"{MARK}={mark}\0".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{name}/environ").read_bytes() and is_running(int(name)):
                found.append(int(name))
    return found


def run_short_programs(n: int, is_loud: bool = False) -> Report:
    """Run n short programs on a busy machine."""
    report = Report(f"{os.getpid()}-{time.monotonic_ns()}")
    rows = torch.export.Dim("rows", min=1, max=1 << 20)
    with tempfile.TemporaryDirectory() as folder, busy_machine():
        path = f"{folder}/model.svm"
        shapevm.compile(
            torch.nn.Linear(16, 32), (torch.ones(3, 16),), dynamic_shapes=({0: rows},), strategy="generic"
        ).save(path)
        for k in range(n):
            _run_one(ENDS[k % len(ENDS)], path, report)
            if is_loud and report.done % 20 == 0:
                print(f"{report.done} programs, {len(report.wrong)} wrong", file=sys.stderr, flush=True)
    return report


def _run_one(end: str, path: str, report: Report) -> None:
    settings = {"SHAPEVM_CACHE_DIR": f"{path}.cache", "SHAPEVM_COMPILE_BUDGET": "1000", MARK: report.mark}
    program = subprocess.Popen(
        [sys.executable, "-c", f"{PROGRAM}\n{end}", path], env={**os.environ, **settings},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        text = program.communicate(timeout=600)[0]
    finally:
        program.kill()
    report.most = max(report.most, len(orphans(report.mark)))
    time.sleep(SECONDS)
    left = orphans(report.mark)
    if text or left or report.most > MAX_PROCESSES:
        report.wrong.append(f"{end}: {text.strip()}; {len(left)} left, {report.most} at most")
    report.done += 1


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=300)
    report = run_short_programs(parser.parse_args().programs, is_loud=True)
    print(
        f"{report.done} short programs: {len(report.wrong)} wrong, {report.most} processes at most at an end"
    )
    for line in report.wrong[:20]:
        print(f"  {line}")
    return bool(report.wrong)


if __name__ == "__main__":
    sys.exit(main())
