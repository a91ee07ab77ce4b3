"""Specs are data: they survive serialisation, and equal specs have equal hashes."""

import dataclasses
import json

import pytest
from shapevm.jit.decode import SpecError
from shapevm.jit.families.attention.spec import Attention, Extents, Layout, Softmax
from shapevm.jit.families.concat.spec import Concat, Piece
from shapevm.jit.families.conv.spec import Conv, Window
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.jit.spec import Buffer, BufferAccess, Dim, Index, Instr, Nest, bodies, prove, spec_hash, to_json
from shapevm.jit.spec_check import check_common
from shapevm.jit.spec_reader import from_json
from shapevm.jit.text import parse_spec
from shapevm.vm.errors import ArtifactError

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
    return Matmul(1, buffers, MatrixProduct((), N, 32, 8, 0, rows, 1, (), "panels", epilogue))


def prologue() -> Matmul:
    rows = (Index(value=0), Index(loop=2))
    steps = (
        Instr("load", "i64", buffer=3, index=(Index(loop=0),)),
        Instr("load", "bf16", buffer=0, index=rows),
        Instr("cast", "f32", args=(1,)),
    )
    buffers = (Buffer("bf16", (9, 8)), *matmul().buffers[1:], Buffer("i64", (N,)))
    spec = dataclasses.replace(matmul(), buffers=buffers)
    return spec.with_product(a=-1, a_index=(), prologue=steps)


def attention() -> Attention:
    place = (Index(loop=0), Index(loop=1, offset=Dim(1)), Index(loop=3))
    buffers = (*(Buffer("f32", (N, N, 32)) for _ in range(3)), Buffer("f32", (N, N, 32), True))
    layout = Layout(0, 1, 2, 3, place, place, place, place)
    return Attention(2, buffers, Extents((N,), N, N, 32, 32), layout, Softmax(0.1, True, ()))


def test_bodies_are_found_in_every_part_of_a_spec():
    pieces = (Piece((N,), nest().body), Piece((4,), nest().body[1:2]))
    assert list(bodies(Concat(1, nest().buffers, pieces))) == [nest().body, nest().body[1:2]]
    assert sorted(bodies(prologue()), key=len) == [prologue().product.epilogue, prologue().product.prologue]
    assert not list(bodies(attention()))


@pytest.mark.parametrize("spec", [nest(), matmul(), prologue(), attention()])
def test_json_round_trip(spec):
    text = to_json(spec)
    again = from_json(text)
    assert again == spec and to_json(again) == text and spec_hash(again) == spec_hash(spec)
    kinds = [[type(i.value) for body in bodies(s) for i in body] for s in (again, spec)]
    assert kinds[0] == kinds[1]


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
    shorter = prologue().with_product(prologue=prologue().product.prologue[:2])
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


def conv() -> Conv:
    buffers = (Buffer("f32", (N, 9, 9, 8)), Buffer("f32", (1, 72, 32)), Buffer("f32", (N, 32), True))
    window = Window(out=(7, 7), kernel=(3, 3), stride=(1, 1), dilation=(1, 1), expansion=(1, 1), low=(0, 0))
    return Conv(1, buffers, dataclasses.replace(matmul().product, a_index=(), k=72), window)


BROKEN = [
    ("buffers", 0, "dtype", "f33"),
    ("buffers", 0, "dtype", 3),
    ("buffers", 0, "shape", [{"dim": 1}]),
    ("buffers", 0, "shape", [-1]),
    ("buffers", 0, "shape", [1 << 70]),
    ("buffers", 0, "shape", [True]),
    ("buffers", 0, "shape", [{"dim": 0, "x": 1}]),
    ("buffers", 0, "is_output", 1),
    ("buffers", {}),
    ("buffers", [None]),
    ("n_dims", 33),
    ("n_dims", None),
    ("n_dims", "1"),
    ("domain", [{"dim": -1}]),
    ("body", 0, "buffer", 9),
    ("body", 0, "index", []),
    ("body", 0, "index", 0, "loop", 2),
    ("body", 0, "index", 0, "value", 5),
    ("body", 0, "index", 0, "scale", 1e3),
    ("body", 0, "op", "sore"),
    ("body", 0, "op", "acc"),
    ("body", 1, "value", "infinite"),
    ("body", 2, "args", [0]),
    ("body", 2, "args", [0, 2]),
    ("body", 2, "args", [0, 4]),
    ("body", 2, "op", "reduce.mean"),
    ("body", 2, "dtype", "bool"),
    ("body", 3, "size", None),
    ("body", 5, "loop", 7),
    ("body", 6, "buffer", 0),
    ("body", 6, "unknown", 1),
    ("family", ["nest"]),
    ("version", {}),
]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"size": None}, r"body\[1\]\.size"),
        ({"dtype": "i32"}, r"body\[1\]\.dtype"),
        ({"args": ()}, r"body\[1\]\.args"),
        ({"args": (0, 0, 0)}, r"body\[1\]\.args"),
        ({"args": (0, 2)}, r"body\[1\]\.args"),
    ],
)
def test_a_checked_index_is_i64_of_an_integer_and_has_a_size(change, place):
    checked = dataclasses.replace(Instr("checked", "i64", (0, 0), size=4), **change)
    load = Instr("load", "i32", buffer=0, index=(Index(loop=0),))
    spec = Nest(1, (Buffer("i32", (Dim(0),)),), (Dim(0),), (load, checked))
    with pytest.raises(SpecError, match=place):
        from_json(to_json(spec))


@pytest.mark.parametrize("size", [Dim(7), Dim(-1), -1, 2**62 + 1])
def test_every_size_is_checked(size):
    wanted = "a size from n0" if isinstance(size, Dim) else "from 0 to 2"
    spec = nest()
    load = dataclasses.replace(spec.body[0], index=(Index(offset=size), *spec.body[0].index[1:]))
    for broken in (
        {"domain": (size,)},
        {"buffers": (Buffer("f32", (size,)),)},
        *([{"body": (load,)}] if isinstance(size, Dim) else []),
    ):
        with pytest.raises(SpecError, match=wanted):
            check_common(dataclasses.replace(spec, **broken))


@pytest.mark.parametrize("change", BROKEN, ids=str)
def test_a_broken_spec_is_refused_by_its_place(change):
    data = json.loads(to_json(nest()))
    at = data
    for name in change[:-2]:
        at = at[name]
    at[change[-2]] = change[-1]
    with pytest.raises(SpecError, match="kernel spec: ") as caught:
        from_json(json.dumps(data))
    assert isinstance(caught.value, ArtifactError) and len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"family": "nest"}', "[" * 100_000, "9" * 5000])
def test_what_is_no_spec_is_refused(text):
    with pytest.raises(SpecError):
        from_json(text)


def leaves(data, path=()):
    """Yield the paths of all values in JSON data."""
    if path:
        yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, item in items:
        yield from leaves(item, (*path, name))


@pytest.mark.parametrize("spec", [nest(), matmul(), prologue(), conv(), attention()])
def test_every_value_may_be_broken(spec):
    """Whatever stands in one place of the text, it is a spec or a SpecError."""
    text = to_json(spec)
    for path in leaves(json.loads(text)):
        for wrong in (None, -1, 1 << 62, 1 << 64, 0.5, "x", [], {}, [[]], True, {"dim": 40}):
            data = json.loads(text)
            at = data
            for name in path[:-1]:
                at = at[name]
            at[path[-1]] = wrong
            try:
                made = from_json(json.dumps(data))
            except SpecError:
                continue
            assert from_json(to_json(made)) == made


@pytest.mark.parametrize(
    ("layout", "whole", "a", "weight"),
    [("panels", "2,24,32", "f32", "f32"), ("quads", "2,6,32,4", "u8", "i8")],
)
def test_weights_without_all_panels_are_refused(layout, whole, a, weight):
    """A buffer that is another's, or too short, would be read beyond its end."""
    text = """matmul n_dims=1 batch=[] m=n0 n=40 k=24 a=0 a_index=[i0,i2] b={b} b_index=[] b_layout="{layout}"
      b0 {a}[n0,24]
      b1 {weight}[{shape}]
      b2 {acc}[n0,40] output
      b3 {weight}[n0,24]
      v0 = acc {acc}
      v1 = store {acc} v0 b2[i0,i1]"""
    kinds = {"a": a, "weight": weight, "acc": "i32" if a == "u8" else a, "layout": layout}

    def read(b, shape):
        return from_json(to_json(parse_spec(text.format(b=b, shape=shape, **kinds))))

    assert read(1, whole).product.b_layout == layout
    for b, shape in ((3, whole), (1, "1,24,32"), (1, "n0,24,32")):
        with pytest.raises(SpecError, match="panels of 40 columns and 24 steps"):
            read(b, shape)


def test_of_many_offsets_along_a_loop_the_outermost_are_checked() -> None:
    def taps(*offsets: int) -> list[BufferAccess]:
        return [BufferAccess(0, (Index(loop=0, offset=i), Index(loop=1)), (Dim(1), 384)) for i in offsets]

    assert prove(nest(), taps(1, 80, *range(2, 80))) == ((Dim(1), 1, 1, N), (Dim(1), 1, 80, N))
    with pytest.raises(SpecError, match="at 8 along axis 0 of size 8"):
        prove(nest(), taps(0, 1, 2, 3), (8, 6))
