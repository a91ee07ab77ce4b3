"""Mutants of the source, and whether the tests notice them.

    python -m tests.mutation --collect [-n 2]        # which test runs which line: once, half an hour
    python -m tests.mutation --count 300 --seed 1    # draw so many mutants and run their tests
    python -m tests.mutation --count 300 --budget 300    # the survivors, with more tests of their lines
    python -m tests.mutation --count 300 --retry tests/vm/test_new.py    # the survivors, with new tests

A mutant changes one place of `jit/`, `compiler/passes/`, `compiler/lower/` or `runtime_c/`. The tests that
run its line are run, the fastest case of each function first, until one fails: then the mutant is killed.
Those that survive are listed. A mutant in the log is not run again. (`make mutants` is about something else:
damaged artifacts.)
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from . import c_coverage, c_source, child, python_source
from .c_build import CBuild
from .coverage_map import FOLDER, LONGEST, ROOT, SOURCES, CoverageMap
from .mutant import Mutant

BUDGET = 60.0  # seconds of tests for each mutant
SETTLED = ("killed", "refused")
POOL = ("tests/jit", "tests/compiler", "tests/vm", "tests/runtime_c", "tests/shapevm", "tests/stress")
C_POOL = (
    "tests/vm",
    "tests/runtime_c/test_runner.py",
    "tests/runtime_c/test_plugins.py",
    "tests/stress",
    "tests/shapevm",
    "--ignore=tests/shapevm/integrations",
)
LONGEST_OF_C = 5.0  # seconds: slower tests are not run to see what they run of C
C_FOLDERS = ("base", "values", "program", "run", "runner")


def candidates() -> list[Mutant]:
    """Return all mutants there are."""
    found: list[Mutant] = []
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found += python_source.mutants_of(path.relative_to(ROOT), path.read_bytes())
    for part in C_FOLDERS:
        place = ROOT / "runtime_c" / part
        for path in sorted(place.glob("*.c")) if place.is_dir() else [place]:
            found += c_source.mutants_of(path.relative_to(ROOT), path.read_bytes())
    return found


class How(NamedTuple):
    """How mutants are tried: with the tests of `files`, or with `seconds` of those that run their lines.
    `is_again`: those too that survived before. `under`: those alone whose files' paths begin so."""

    files: tuple[str, ...]
    seconds: float
    is_again: bool
    under: str


class Trial:
    """Runs tests against mutants, one at a time."""

    def __init__(self, known: CoverageMap, folder: Path, how: How) -> None:
        self.known, self.folder, self.how = known, folder, how
        self._c: CBuild | None = None

    def verdict(self, mutant: Mutant) -> str:
        """Return "killed", "survived", "refused" (it does not compile) or "no test runs it"."""
        source = mutant.apply((ROOT / mutant.path).read_bytes())
        if mutant.path.suffix == ".c":
            return self._of_c(mutant, source)
        replaced = child.Replaced({str((ROOT / mutant.path).resolve()): source}, {})
        return self._tested(replaced, {}, mutant)

    def _of_c(self, mutant: Mutant, source: bytes) -> str:
        self._c = self._c or CBuild(self.folder / "c")
        built = self._c.mutated(mutant.path, source)
        if built is None:
            return "refused"
        module, runner, changed = built
        tested = {"TESTED_RUNNER": runner, "TESTED_SOURCE": f"{ROOT / mutant.path}={changed}"}
        return self._tested(child.Replaced({}, {"shapevm.vm._runtime": module}), tested, mutant)

    def _tested(self, replaced: child.Replaced, tested: Mapping[str, str], mutant: Mutant) -> str:
        if self.how.files:
            tests = dict.fromkeys(_listed(self.how.files), LONGEST)
        else:
            tests = self.known.tests_of(str(mutant.path), mutant.line, self.how.seconds)
        if not tests:
            return "no test runs it"
        return "survived" if child.run(replaced, tested, tests, self.folder) == 0 else "killed"


@cache
def _listed(arguments: Sequence[str]) -> list[str]:
    """Return the tests that pytest finds."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "--drawn=1", *arguments]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    return [name for name in listed if "::" in name]


def run(count: int, seed: int, log: Path, how: How) -> Counter[str]:
    """Draw mutants, try those that the log lacks or, again, has not settled; write verdicts to it and to the
    terminal."""
    import numpy  # noqa: F401
    import sympy  # noqa: F401
    import torch.export  # noqa: F401

    drawn = random.Random(seed).sample(candidates(), count)
    done = dict(map(json.loads, log.read_text().splitlines())) if log.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(CoverageMap.read(), Path(folder), how)
        for i, mutant in enumerate(drawn):
            is_settled = done.get(mutant.key) in (SETTLED if how.is_again else done.values())
            if not is_settled and str(mutant.path).startswith(how.under):
                begin = time.monotonic()
                done[mutant.key] = found = trial.verdict(mutant)
                with open(log, "a") as file:
                    file.write(json.dumps([mutant.key, found]) + "\n")
                print(f"{i + 1}/{count} {found} in {time.monotonic() - begin:.1f} s: {mutant}", flush=True)
    return Counter(done.get(mutant.key, "not tried") for mutant in drawn)


def collect(extra: Sequence[str]) -> int:
    """Run the tests once, noting what they run."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.mutation.coverage_map",
        "--drawn=1",
        *POOL,
        *extra,
    ]
    return subprocess.run(command, cwd=ROOT).returncode or collect_c()


def collect_c() -> int:
    """Run the tests of the C runtime once, but for the slow ones, noting which lines of C they run."""
    import torch.export  # noqa: F401

    known = CoverageMap.read()
    tests = [name for name in _listed(C_POOL) if known.seconds.get(name, 0) < LONGEST_OF_C]
    with tempfile.TemporaryDirectory() as folder:
        code = c_coverage.collect(tests, Path(folder))
        print(Path(folder, "output.txt").read_text().splitlines()[-1])
    return 1 if code is None else code


def main() -> None:
    """Print how many mutants of those drawn are killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collect", action="store_true", help="note which test runs which line")
    parser.add_argument("--collect-c", action="store_true", help="the same of the C runtime alone")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, default=FOLDER / "verdicts.jsonl")
    parser.add_argument("--retry", nargs="+", default=[], metavar="FILE", help="survivors, with these tests")
    parser.add_argument("--budget", type=float, help="survivors, with tests of so many seconds for each")
    parser.add_argument("--under", default="", metavar="PATH", help="only mutants of these files")
    options, extra = parser.parse_known_args()
    if options.collect:
        sys.exit(collect(extra))
    if options.collect_c:
        sys.exit(collect_c())
    is_again = bool(options.retry or options.budget)
    how = How(tuple(options.retry), options.budget or BUDGET, is_again, options.under)
    found = run(options.count, options.seed, options.log, how)
    counted = sum(found.values()) - found["refused"]
    print(f"{found['killed']} of {counted} killed ({found['killed'] / max(counted, 1):.1%}); {dict(found)}")


if __name__ == "__main__":
    main()
