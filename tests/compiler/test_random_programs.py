"""Random programs about kernels of all families, all tiers against the references: some that never change."""

from __future__ import annotations

import pytest
from shapevm.compiler.emit.emit import emit
from shapevm.compiler.ir.text import constants, format_graph, parse
from shapevm.compiler.ops import OPS
from shapevm.compiler.passes.pipeline import run
from shapevm.vm.artifact import from_bytes, to_bytes
from shapevm.vm.assembler import assemble
from shapevm.vm.disassembler import disassemble, large_arrays

from .random_check import LONG_EVERY, check, failures, graph_of
from .random_rules import RULES

PARTS, SEEDS = 20, 1000
PLAIN = {"value", "control"}  # kinds of operators that work on no tensors


@pytest.mark.drawn
@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs(part: int) -> None:
    assert not failures("kernels", range(part, SEEDS, PARTS))


def test_programs_hold_all_operators() -> None:
    graphs = (graph_of(seed, about) for about in RULES for seed in range(0, SEEDS, LONG_EVERY // 2))
    found = {node.op for graph in graphs for node in graph.nodes()}
    drawn = {op.name for op in OPS.values() if op.kind not in PLAIN} - {
        "bits",
        "dequantize",
        "fft",
        "half_bits",
        "paged_attention",
        "segment_attention",
    }  # have tests apart
    assert drawn <= found


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
        ),
        exact_every=1,
    )


@pytest.mark.parametrize("about", RULES)
def test_programs_come_back_from_their_texts(about: str) -> None:
    """Graphs, and their programs' artifacts byte for byte. Machine code is left out: it is bytes anyway."""
    for seed in range(0, SEEDS, 5 * LONG_EVERY):
        graph = graph_of(seed, about)
        text = format_graph(graph)
        parsed = parse(text, constants(graph))
        assert format_graph(parsed) == text
        run(parsed)
        content = to_bytes(emit(parsed))
        program = from_bytes(content)
        assert to_bytes(assemble(disassemble(program, full=True), large_arrays(program))) == content
