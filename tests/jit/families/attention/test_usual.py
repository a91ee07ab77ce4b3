"""Usual attention has the parts that attention of these heads has, whatever masks it."""

from dataclasses import replace

import pytest
from shapevm.jit.families.attention.usual import usual_attention
from shapevm.jit.spec import Buffer, Dim, Index, Instr, to_json
from shapevm.jit.spec_reader import from_json

from ..shared_parts import parts_of


@pytest.mark.parametrize("target", ["x86-64-v4-amx", "x86-64-v3", "aarch64"])
def test_attention_with_a_mask_of_keys_has_the_same_parts(target: str) -> None:
    usual = usual_attention(12, 32)
    assert from_json(to_json(usual)) == usual
    mask = Buffer("bool", (Dim(0), Dim(1)))
    body = (
        Instr("acc", "f32"),
        Instr("load", "bool", buffer=3, index=(Index(loop=0), Index(loop=3))),
        Instr("const", "f32", value="-inf"),
        Instr("select", "f32", (1, 0, 2)),
    )
    masked = replace(
        usual,
        buffers=(*usual.buffers[:3], mask, usual.buffers[3]),
        layout=replace(usual.layout, out=4),
        softmax=replace(usual.softmax, body=body),
    )
    found = parts_of(masked, target)
    assert len(found) > 10 and found <= parts_of(usual, target)


def test_masks_that_differ_by_query_are_attention_of_their_own() -> None:
    causal = usual_attention(12, 64, "query")
    assert from_json(to_json(causal)) == causal
    found, usual = (parts_of(usual_attention(12, 64, mask), "x86-64-v4") for mask in ("query", ""))
    assert 0 < len(found & usual) < len(found)
