"""What a program says of its outputs: graphs written as text, the declarations as text."""

from __future__ import annotations

import pytest
from shapevm.compiler.emit.contract import contract_of, outputs_of
from shapevm.compiler.ir.text import parse
from shapevm.vm.disassembler import output_text

GRAPH = """graph "g"
  symbol s min=1 multiple_of=1
  symbol t min=1 multiple_of=1
  input %x: f32[s, 2*t]
  input %n: int(s)
  %v: TYPE = RESULT
  output %v as "y"
"""


@pytest.mark.parametrize(
    ("type", "result", "declared"),
    [
        ("f32[s, 2*t]", "relu(%x)", "f32[s0, 2*s1]"),
        ("i64[2*s - 1]", 'iota() {axis=0, dtype="i64", shape=[2*s - 1]}', "i64[2*s0-1]"),
        ("f32[s*t, 2]", "reshape(%x) {shape=[s*t, 2]}", 'f32["s*t", 2]'),
        ("bf16[]", 'full() {value=1.0, dtype="bf16", shape=[]}', "bf16[]"),
    ],
)
def test_tensors(type: str, result: str, declared: str) -> None:
    graph = parse(GRAPH.replace("TYPE", type).replace("RESULT", result))
    assert [output_text(row) for row in outputs_of(graph, contract_of(graph))] == [f'output "y": {declared}']
