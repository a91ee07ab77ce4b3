"""Random programs, all tiers against the references: in CI a few that never change.

python -m tests.compiler.test_random_programs --seeds 100:400 [--length 30]      # half a second for each
"""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Callable
from functools import partial

import pytest
from shapevm.compiler.ir import Graph
from shapevm.compiler.ops import OPS
from shapevm.compiler.text import format_graph, parse

from shapevm.build import build_program, run_passes
from shapevm.executable import executable_of
from shapevm.specialise import open_store

from .random_graphs import SHAPES, difference, expected, inputs_of, random_graph, same_bits, stored

SEEDS, LENGTH = range(12), 16
EXACT_EVERY = 4  # most of a check's time is compiling exact code: a seed has it at every fourth shape


def check(make: Callable[[], Graph], seed: int = 0) -> None:
    """Compare a graph at every shape: the generic tier with the reference and, at some shapes, others for
    the next seed, the exact one with the generic one, bit by bit."""
    graph, whole, store = make(), make(), open_store(None)  # passes change what they are given
    run_passes(graph)
    program = build_program(graph, store)
    generic, exact = (executable_of(program, strategy, store) for strategy in ("generic", "jit"))
    for i, shape in enumerate(SHAPES):
        inputs = stored(whole, inputs_of(whole, shape, seed))
        results = generic.run(inputs)
        again = exact.run(inputs) if i % EXACT_EVERY == seed % EXACT_EVERY else results
        wanted = expected(whole, shape, seed)
        for name, result, (value, tolerance) in zip(whole.outputs, whole.body.results, wanted, strict=True):
            where = f"seed {seed}, s, t = {shape}, {name} ({result.node})"
            assert same_bits(results[name], again[name]), f"{where}: the tiers differ"
            problem = difference(result, results[name], value, tolerance)
            assert not problem, f"{where}: {problem}"


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graph(seed: int) -> None:
    check(lambda: random_graph(seed, LENGTH), seed)


def test_graphs_hold_all_kinds() -> None:
    kinds = {OPS[node.op].kind for seed in SEEDS for node in random_graph(seed, LENGTH).body.nodes}
    assert kinds >= {"pointwise", "view", "concat", "reduce", "composite", "standalone", "matmul"}


def test_a_matrix_needed_in_two_orders() -> None:
    """One operand is read through a transposition of what the other one needs in memory; s or t are also the
    columns and the inner size, 0 among them."""
    check(
        lambda: parse(
            """graph "g"
              symbol s min=0 max=600 multiple_of=1 why=""
              symbol t min=0 max=600 multiple_of=1 why=""
              input %x: f32[s, t]
              %y: f32[t, s] = permute(%x) {axes=[1, 0]}
              %z: f32[s, t] = permute(%y) {axes=[1, 0]}
              %p: f32[s, s] = matmul(%z, %y) {}
              %q: f32[t, t] = matmul(%y, %z) {}
              output %p as "p"
              output %q as "q"
            """
        )
    )


def main() -> None:
    """Check a range of seeds; show the graph of each that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0:100")
    parser.add_argument("--length", type=int, default=24, help="rules of a program")
    parser.add_argument("--show", action="store_true", help="print the graphs that fail")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(":"))
    bad = 0
    for seed in range(first, last):
        try:
            check(partial(random_graph, seed, options.length), seed)
        except Exception as error:
            bad += 1
            print(f"seed {seed}: {''.join(traceback.format_exception_only(error)).strip()[:600]}", flush=True)
            if options.show:
                print(format_graph(random_graph(seed, options.length)))
    print(f"{bad} of {last - first} programs fail")


if __name__ == "__main__":
    main()
