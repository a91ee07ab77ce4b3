"""The n-th call of malloc, calloc, realloc, mmap, pthread_create, write, fsync or rename fails: the runner
must end with a sentence and an exit code, or with the right outputs.

    python -m tests.runtime_c.failures [--sample N]

Runs five models with every n (or a sample of N runs), each with all of the runner's outputs.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import shapevm

CALLS = ("malloc", "calloc", "realloc", "mmap", "pthread_create", "write", "fsync", "rename")
EXIT_CODES = {2, 3, 4, 5}
SECONDS = 30  # what a run may take


class Counter3(torch.nn.Module):
    """A model with state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Count calls."""
        self.n += 1
        return x * self.n


class Found(torch.nn.Module):
    """A model whose sizes depend on data: it is interpreted."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the positive numbers and where they are."""
        return x[x > 0], torch.nonzero(x > 0)


@dataclass(frozen=True)
class Case:
    """One model and the arguments of its run."""

    name: str
    model: Path
    inputs: tuple[str, ...]


def cases(folder: Path) -> list[Case]:
    """Compile the five models into `folder`."""
    rows = torch.export.Dim("rows", min=1, max=1 << 16)
    mlp = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
    conv = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.MaxPool2d(2))
    norm = torch.nn.Sequential(torch.nn.LayerNorm(32), torch.nn.Softmax(-1))
    models = (
        ("mlp", mlp, torch.randn(300, 64), ({0: rows},)),
        ("conv", conv, torch.randn(2, 3, 20, 20), None),
        ("norm", norm, torch.randn(5, 32), ({0: rows},)),
        ("state", Counter3(), torch.randn(4, 3), ({0: rows},)),
        ("found", Found(), torch.randn(50), None),
    )
    found = []
    for name, model, x, dims in models:
        path = folder / f"{name}.svm"
        with shapevm.compile(model.eval(), (x,), dynamic_shapes=dims, strategy="generic") as exe:
            exe.save(path)
            (row,) = [row for row in exe.machine.inputs if not row.name.startswith("state.")]
        np.save(folder / f"{name}.npy", x.numpy())
        found.append(Case(name, path, ("--input", f"{row.name}={folder / f'{name}.npy'}")))
    return found


class Runner:
    """Runs cases with one failure each."""

    def __init__(self, folder: Path, runner: Path) -> None:
        self.folder, self.runner = folder, runner
        self.library = folder / "failures.so"
        source = Path(__file__).with_name("failures.c")
        command = ["cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(self.library), "-ldl"]
        subprocess.run(command, check=True)

    def run(self, case: Case, call: str, at: int) -> tuple[int, str, int, dict[str, bytes]]:
        """Return exit code, standard error, number of calls, and the files that were written."""
        out = self.folder / "out"
        out.mkdir(exist_ok=True)
        for path in out.iterdir():
            path.unlink()
        report = self.folder / "count"
        report.unlink(missing_ok=True)
        environment = {
            **os.environ, "LD_PRELOAD": str(self.library), "FAIL_CALL": call, "FAIL_AT": str(at),
            "FAIL_REPORT": str(report),
        }  # fmt: skip
        outputs = (
            "--output",
            out / "y.npz",
            "--metrics",
            out / "m.txt",
            "--record",
            out / "r.json",
            "--trace",
            out / "t.json",
        )
        rest = ("--threads", "2", "--repeat", "2", "--stats")
        command = [self.runner, case.model, *case.inputs, *outputs, *rest]
        try:
            done = subprocess.run(
                [str(part) for part in command], env=environment, capture_output=True, text=True,
                timeout=SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return -1000, "it hung", 0, {}
        files = {path.name: path.read_bytes() for path in out.iterdir()}
        count = int(report.read_text()) if report.exists() else 0
        return done.returncode, done.stderr, count, files

    def problem(self, case: Case, call: str, at: int, expected: bytes) -> str | None:
        """Return what is wrong with a run, None if nothing is."""
        code, text, _, files = self.run(case, call, at)
        if code == 0:
            return None if files.get("y.npz") == expected else "exit 0 without the right outputs"
        if code not in EXIT_CODES:
            return f"exit {code}: {text[-200:]!r}"
        if not text.startswith("shapevm-run: ") or len(text.split()) < 4:
            return f"exit {code} without a sentence: {text[-200:]!r}"
        if not text.isprintable() and not text.rstrip("\n").isprintable():
            return f"exit {code} with {text!r}"
        return None


def run_all(sample: int | None, runner: Path, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """Run every n, or `sample` of them; return how many runs there were by function, and what was wrong."""
    done: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="failures-") as name:
        folder = Path(name)
        runs, expected = [], {}
        tool = Runner(folder, runner)
        for case in cases(folder):
            for call in CALLS:
                code, text, count, files = tool.run(case, call, 0)
                assert code == 0, (case.name, text)
                expected[case.name] = files["y.npz"]
                runs += [(case, call, at) for at in range(1, count + 1)]
        if sample is not None:
            runs = random.Random(seed).sample(runs, min(sample, len(runs)))
        for case, call, at in runs:
            problem = tool.problem(case, call, at, expected[case.name])
            done[call] += 1
            if problem:
                wrong.append(f"{case.name}, {call} {at}: {problem}")
    return done, wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int)
    options = parser.parse_args(arguments)
    done, wrong = run_all(options.sample, shapevm.runner_path())
    counts = ", ".join(f"{n} {name}" for name, n in sorted(done.items()))
    print(f"{done.total()} failures injected ({counts})")
    print(f"{len(wrong)} without a sentence and an exit code")
    for line in wrong[:40]:
        print(f"  {line}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
