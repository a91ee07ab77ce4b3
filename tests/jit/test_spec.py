"""Specs are data: they survive serialisation, and equal specs have equal hashes."""

import dataclasses
import json

import pytest
from shapevm.jit.spec import Attention, Buffer, Dim, Index, Instr, Matmul, Nest, from_json, spec_hash, to_json

N = Dim(0)


def nest() -> Nest:
    body = (
        Instr("load", "f32", buffer=0, index=(Index(loop=0), Index(loop=1, scale=-1, offset=383))),
        Instr("const", "f32", value="-inf"),
        Instr("maximum", "f32", args=(0, 1)),
        Instr("dim", "i64", size=N),
        Instr("const", "bool", value=False),
        Instr("iota", "i64", loop=0),
        Instr("store", "f32", args=(2,), buffer=1, index=(Index(loop=0), Index(loop=1))),
    )
    return Nest(1, (Buffer("f32", (N, 384)), Buffer("f32", (N, 384), is_output=True)), (N, 384), body)


def matmul() -> Matmul:
    rows = (Index(loop=0), Index(loop=2))
    epilogue = (
        Instr("acc", "f32"),
        Instr("store", "f32", args=(0,), buffer=2, index=(Index(loop=0), Index(loop=1))),
    )
    buffers = (Buffer("f32", (N, 8)), Buffer("f32", (1, 8, 32)), Buffer("f32", (N, 32), True))
    return Matmul(1, buffers, (), N, 32, 8, 0, rows, 1, (), "panels", epilogue)


def prologue() -> Matmul:
    rows = (Index(value=0), Index(loop=2))
    steps = (
        Instr("load", "i64", buffer=3, index=(Index(loop=0),)),
        Instr("load", "bf16", buffer=0, index=rows),
        Instr("cast", "f32", args=(1,)),
    )
    buffers = (Buffer("bf16", (9, 8)), *matmul().buffers[1:], Buffer("i64", (N,)))
    return dataclasses.replace(matmul(), buffers=buffers, a=-1, a_index=(), prologue=steps)


def attention() -> Attention:
    place = (Index(loop=0), Index(loop=1, offset=Dim(1)), Index(loop=3))
    buffers = (*(Buffer("f32", (N, N, 32)) for _ in range(3)), Buffer("f32", (N, N, 32), True))
    fields = {"q": 0, "k": 1, "v": 2, "out": 3, "scale": 0.1, "safe_softmax": True, "body": ()}
    indices = dict.fromkeys(("q_index", "k_index", "v_index", "out_index"), place)
    return Attention(2, buffers, (N,), q_len=N, k_len=N, head_dim=32, v_dim=32, **fields, **indices)


@pytest.mark.parametrize("spec", [nest(), matmul(), prologue(), attention()])
def test_json_round_trip(spec):
    text = to_json(spec)
    again = from_json(text)
    assert again == spec and to_json(again) == text and spec_hash(again) == spec_hash(spec)
    assert [type(i.value) for i in getattr(again, "body", ())] == [
        type(i.value) for i in getattr(spec, "body", ())
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"n_dims": 2},
        {"domain": (N, 383)},
        {"domain": (384, N)},
        {"buffers": (Buffer("f16", (N, 384)), Buffer("f32", (N, 384), is_output=True))},
        {"buffers": (Buffer("f32", (N, 384)), Buffer("f32", (N, 384)))},
        {"body": nest().body[:-1]},
    ],
)
def test_hash_changes_with_every_field(change):
    assert spec_hash(dataclasses.replace(nest(), **change)) != spec_hash(nest())


def test_a_prologue_is_part_of_the_identity():
    shorter = dataclasses.replace(prologue(), prologue=prologue().prologue[:2])
    assert spec_hash(shorter) != spec_hash(prologue())
    assert "prologue" not in to_json(matmul())


def test_false_and_zero_are_different_constants():
    def of(value):
        return dataclasses.replace(nest(), body=(Instr("const", "bool", value=value),))

    assert spec_hash(of(False)) != spec_hash(of(0)) and from_json(to_json(of(False))).body[0].value is False


@pytest.mark.parametrize(("key", "value"), [("family", "loop"), ("version", 99)])
def test_unknown_family_or_version_is_refused(key, value):
    data = json.loads(to_json(nest())) | {key: value}
    with pytest.raises(ValueError, match=f"{value}"):
        from_json(json.dumps(data))
