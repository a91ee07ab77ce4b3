"""Specs written as text are the same specs when read back."""

import pytest
from shapevm.jit.spec import Buffer, Dim, Index, Instr, Nest, bodies
from shapevm.jit.text import format_spec, parse_spec

from .test_spec import attention, matmul, prologue

N = Dim(0)
PLACES = (
    Index(),
    Index(loop=0),
    Index(loop=1, scale=-1, offset=383),
    Index(value=0, scale=2, offset=Dim(3)),
    Index(scale=2, offset=-5),
    Index(scale=3),
    Index(offset=Dim(1)),
)


def nest() -> Nest:
    body = (
        Instr("load", "i64", buffer=0, index=PLACES),
        Instr("const", "f32", value="-inf"),
        Instr("const", "bool", value=False),
        Instr("const", "f32", value=1.0),
        Instr("dim", "i64", size=N),
        Instr("dim", "i64", size=3),
        Instr("iota", "i64", loop=0),
        Instr("reduce.sum", "f32", args=(3,)),
        Instr("store", "f32", args=(7,), buffer=1, index=(Index(loop=0),)),
    )
    return Nest(4, (Buffer("i64", (N, 384) * 3 + (1,)), Buffer("f32", (N,), is_output=True)), (N, 384), body)


@pytest.mark.parametrize("spec", [nest(), matmul(), prologue(), attention()])
def test_round_trip(spec):
    text = format_spec(spec)
    again = parse_spec(text)
    assert again == spec and format_spec(again) == text
    values = [[instr.value for body in bodies(s) for instr in body] for s in (spec, again)]
    assert list(map(repr, values[0])) == list(map(repr, values[1]))


def test_text_is_readable():
    assert format_spec(matmul()) == (
        'matmul n_dims=1 batch=[] m=n0 n=32 k=8 a=0 a_index=[i0,i2] b=1 b_index=[] b_layout="panels"\n'
        "  b0 f32[n0,8]\n  b1 f32[1,8,32]\n  b2 f32[n0,32] output\n"
        "  v0 = acc f32\n  v1 = store f32 v0 b2[i0,i1]"
    )


def test_a_prologues_values_have_a_letter_of_their_own():
    assert format_spec(prologue()).endswith(
        "  p0 = load i64 b3[i0]\n  p1 = load bf16 b0[p0,i2]\n  p2 = cast f32 p1\n"
        "  v0 = acc f32\n  v1 = store f32 v0 b2[i0,i1]"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loop n_dims=0", "family 'loop' is not one of nest, concat, "),
        ("nest n_dims=0", "lacks domain="),
        ("nest n_dims=0 domain=[2]\n b0 f32(2)", "is not a buffer"),
        ("nest n_dims=0 domain=[2]\n b0 f32[2]\n v0 = load f32 b0[x]", "index 'x' is not of the form"),
        ("nest n_dims=0 domain=[2]\n v0 = add f32 v1 what", "'what' in .* is not understood"),
    ],
)
def test_errors_name_the_text(text, message):
    with pytest.raises(ValueError, match=message):
        parse_spec(text)
