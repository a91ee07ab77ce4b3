"""Random programs, all tiers against the references, at eight shapes each.

python -m tests.compiler.random_check --seeds 1000:4000 [--length 20] [--cache build/random]
python -m tests.compiler.random_check --seeds 0:25000 --log build/random.log    # 50,000 programs, resumable

A program takes a fifth of a second, three quarters of it in LLVM: less with many kernels in the cache. With
`--log`, seeds that the log has are not checked again; several processes may share one, over ranges of their
own.
"""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from shapevm.compiler.ir.graph import Graph
from shapevm.compiler.ir.text import format_graph
from shapevm.jit.object.cache import DiskCache
from shapevm.jit.store import KernelStore

from shapevm.build.build import build_program, run_passes
from shapevm.program.opening import executable_of
from shapevm.promises.prove import Prover
from shapevm.settings import settings

from .random_graphs import SHAPES, difference, expected, inputs_of, random_graph, same_bits, stored
from .random_rules import RULES

SHORT, LONG, LONG_EVERY = 3, 14, 8  # rules of programs: each of so many seeds has a long one
EXACT_EVERY = len(
    SHAPES
)  # half of a check's time is compiling exact code: a seed has it at every so many shapes
THREADS, SAVED_EVERY, EXACT_SHARE = (2, 3), 4, 0.03
MAX_BYTES = 16 * 2**30


@cache
def _store(folder: Path | None) -> KernelStore:
    """Return a store on a disk cache, if there is to be one: programs have many kernels in common."""
    return KernelStore(folder and DiskCache(folder, MAX_BYTES))


def check(
    make: Callable[[], Graph], seed: int = 0, exact_every: int = EXACT_EVERY, store: KernelStore | None = None
) -> None:
    """Compare a graph at every shape: the generic tier with the reference and, at some shapes, others for
    the next seed, the exact one with the generic one, bit by bit. `store`: of kernels, without one on the
    user's cache."""
    graph, store = make(), store or _store(settings.cache_path())
    made = [inputs_of(graph, shape, seed) for shape in SHAPES]
    wanted = [expected(graph, shape, inputs) for shape, inputs in zip(SHAPES, made, strict=True)]
    given = [stored(graph, inputs) for inputs in made]
    outputs = list(graph.body.results)
    run_passes(graph)
    program = build_program(graph, store)
    exe = executable_of(program, "generic", [store])
    for i, (shape, inputs) in enumerate(zip(SHAPES, given, strict=True)):
        results = again = exe(*inputs.values())
        if i % exact_every == seed % exact_every:
            again = exe.using("jit")(*inputs.values())
        for result, ours, exact, right in zip(outputs, results, again, wanted[i], strict=True):
            problem = difference(result, ours, *right) if same_bits(ours, exact) else "the tiers differ"
            assert not problem, f"seed {seed}, s, t = {shape}, {result.node}: {problem}"
    prover = Prover(program, exe, seed=seed, exact_share=EXACT_SHARE)
    problems = relations(prover, given[seed % len(SHAPES)], seed)
    assert not problems, f"seed {seed}: {problems[0]}"


def relations(prover: Prover, inputs: dict[str, Any], seed: int) -> list[str]:
    """Return which relations that need no reference do not hold at `inputs`: other numbers of threads, a
    saved and loaded copy, and rows alone, permuted and in other batches along s and t."""
    case = prover.case(list(inputs.values()))
    prover.threads(case, THREADS)
    if seed % SAVED_EVERY == 0:
        prover.saved(case, runs=False)
    for name in prover.verdicts:
        prover.rows(case, name)
    found = prover.report.relations
    return [f"{name}: {text}" for name, relation in found.items() for text in relation.differences]


def graph_of(seed: int, about: str, length: int = 0) -> Graph:
    """Return the graph of a seed, of `length` rules or, for 0, as many as the seed has."""
    return random_graph(seed, length or (SHORT if seed % LONG_EVERY else LONG), about)


def failures(
    about: str, seeds: Sequence[int], length: int = 0, store: KernelStore | None = None
) -> dict[int, str]:
    """Return what is wrong with the programs of those seeds that are not right."""
    found = {}
    for seed in seeds:
        try:
            check(partial(graph_of, seed, about, length), seed, store=store)
        except Exception as error:
            found[seed] = "".join(traceback.format_exception_only(error)).strip()[:600]
    return found


def main() -> None:
    """Check a range of seeds; show the graph of each that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0:100")
    parser.add_argument("--length", type=int, default=0, help="rules of a program; without: as in the tests")
    parser.add_argument(
        "--about", default="", choices=("", *RULES), help="without: each seed's programs of all kinds"
    )
    parser.add_argument(
        "--cache", type=Path, default=Path("build/random"), help="a folder for compiled kernels"
    )
    parser.add_argument("--log", type=Path, help="a file of what was checked; what it has is left out")
    parser.add_argument("--show", action="store_true", help="print the graphs that fail")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(":"))
    log, store = Log(options.log), _store(options.cache)
    for seed in range(first, last):
        for about in (options.about,) if options.about else RULES:
            key = f"{about} {seed} {options.length}"
            if key in log.done:
                continue
            found = failures(about, [seed], options.length, store)
            log.add(key, found.get(seed, ""))
            if found:
                print(f"{about} {seed}: {found[seed]}", flush=True)
                if options.show:
                    print(format_graph(graph_of(seed, about, options.length)))
    kernels = f"{store.stats.compiled} kernels made, {store.stats.from_cache} shared"
    bad = sum(map(bool, log.done.values()))
    print(f"{bad} of {len(log.done)} programs fail, seeds {options.seeds} and those of the log; {kernels}")


class Log:
    """What was checked, by kind, seed and length: "" or what is wrong; a line of JSON each in a file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.done: dict[str, str] = {}
        if path is not None and path.exists():
            whole = [line for line in path.read_text().splitlines(True) if line.endswith("\n")]
            self.done = dict(map(json.loads, whole))

    def add(self, key: str, problem: str) -> None:
        """Note one program; on disk before the next one is begun."""
        self.done[key] = problem
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps([key, problem]) + "\n")


if __name__ == "__main__":
    main()
