"""Graphs written as text are the same graphs when read back."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapevm.compiler.ir.dims import floordiv, parse_dim, symbol
from shapevm.compiler.ir.errors import TextError
from shapevm.compiler.ir.graph import Graph, Node
from shapevm.compiler.ir.text import constants, format_graph, parse
from shapevm.compiler.ir.types import TensorType, parse_type
from shapevm.jit.spec import Buffer, Dim, Index, Instr, Nest
from sympy import Max

TEXT = """\
graph "demo"
  symbol batch min=1 max=64 multiple_of=2 why="model.py:9 \\"x\\""
  symbol s0 min=0 multiple_of=1
  structure {"inputs": "(*, *)", "state": ["n"]}
  state "steps" i64 int64[2](3, -1)
  state "scale = \\"x\\"" bf16 uint16[](16256)
  input %x: f32[batch, 384] as "x.0"
  input %c: bool
  input %n: int(s0)
  %w1: f32[384, 384] = constant() {array=float32[384, 384]@HASH, dtype="f32", name="w, {"}
  %e2: f32[2] = constant() {array=float32[2](0.1, nan), dtype="f32", name=""}  # a.py:3
  %b3: bool[3] = constant() {array=bool[3](True, False, True), dtype="bool", name="mask"}
  %z4: f32[0, 4] = constant() {array=float32[0, 4](), dtype="f32", name="empty"}
  %v5: f32[batch, 384] = matmul(%x, %w1)  # model.py:12
  %v6: i64[batch + 2*s0] = full() {value=-inf, other=1e-12, dims=[1, 2*s0, [true, none]], dim=floordiv(s0,2)}
  %"a = b": f32[batch, 384] = neg(%v5)
  %v7: f32[batch, 384], %v8: list<tuple<int, optional<f32[s0]>>> = if(%c)
    then:
      %y9: f32[batch, 384] = neg(%v5)
      yield %y9, %n
    else:
      yield %x, %n
  %v10: int = while(%n, none)
    cond(%p11: int):
      yield %c
    body(%p12: int):
      yield %p12
  = extern(%v10) {name="print", types=[type<f32[2, s0]>, type<dict<str, int>>]}
  output %v7 as "y"
  output %x as "x again"
"""


def canonical(text: str) -> str:
    return text.replace("batch + 2*s0", "batch+2*s0")


def test_round_trip_of_text():
    array = np.random.default_rng(0).standard_normal((384, 384)).astype("float32")
    graph = Graph("hash")
    graph.body.nodes.append(Node("constant", [], {"array": array}))
    (digest,) = constants(graph)
    text = TEXT.replace("HASH", digest)
    again = parse(text, {digest: array})
    assert format_graph(again) == canonical(text)
    assert constants(again)[digest] is array


def test_parsed_graph_is_whole():
    digest = "0123456789abcdef"
    graph = parse(TEXT.replace("HASH", digest), {digest: np.zeros((384, 384), "float32")})
    assert graph.inputs == ["x.0", "c", "n"] and graph.outputs == ["y", "x again"]
    assert graph.symbols["batch"].max == 64 and graph.symbols["batch"].why == 'model.py:9 "x"'
    branch = next(node for node in graph.nodes() if node.op == "if")
    assert len(branch.regions) == 2 and branch.args[0].users == [branch]
    assert branch.results[0].node is branch and branch.regions[0].nodes[0].op == "neg"
    full = next(node for node in graph.nodes() if node.op == "full")
    assert full.attrs["value"] == -np.inf and full.attrs["dims"] == (1, 2 * symbol("s0"), (True, None))
    assert full.attrs["dim"] == parse_dim("s0//2")
    assert graph.new_name() == "v13"
    assert list(graph.state) == ["steps", 'scale = "x"']
    array, dtype = graph.state["steps"]
    assert dtype == "i64" and array.tolist() == [3, -1]


def test_arrays_keep_their_bits():
    arrays = {
        "f16": np.array([0.1, -0.0, 65504], "float16"),
        "bf16": np.array([16256, 49024], "uint16"),
        "f64": np.array(0.1 + 0.2),
        "i64": np.array([[2**63 - 1, -(2**63)]]),
        "f32": np.float32([1e-45, 3.4028235e38, np.inf, -np.inf, 0.1]),
    }
    graph = Graph("arrays")
    for dtype, array in arrays.items():
        graph.body.nodes.append(Node("constant", [], {"array": array, "dtype": dtype}))
    again = parse(format_graph(graph))
    for before, after in zip(graph.nodes(), again.nodes(), strict=True):
        a, b = before.attrs["array"], after.attrs["array"]
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_kernel_specs_are_written_once():
    place = (Index(loop=0),)
    instrs = (Instr("load", "f32", buffer=0, index=place), Instr("store", "f32", (0,), 1, place))
    spec = Nest(1, (Buffer("f32", (Dim(0),)), Buffer("f32", (Dim(0),), True)), (Dim(0),), instrs)
    graph = Graph("specs")
    x = graph.input("x", TensorType("f32", (symbol("s"),)))
    for _ in range(2):
        graph.body.nodes.append(Node("kernel", [x], {"spec": spec, "dims": (symbol("s"),), "label": "copy"}))
    text = format_graph(graph)
    assert text.count("nest n_dims=1") == 1 and "b1 f32[n0] output" in text
    again = parse(text)
    assert all(node.attrs["spec"] == spec for node in again.nodes()) and format_graph(again) == text


def test_specs_over_symbols_are_written_so():
    length = symbol("n0")  # no number of a size
    place = (Index(loop=0, scale=-1, offset=length - 1), Index(offset=floordiv(length, 2)), Index(offset=3))
    instrs = (Instr("load", "f32", buffer=0, index=place), Instr("dim", "i64", size=length * 2))
    spec = Nest(0, (Buffer("f32", (length, Max(0, length - 2), 4)),), (length * length,), instrs)
    graph = Graph("specs")
    graph.body.nodes.append(Node("kernel", [], {"spec": spec}))
    text = format_graph(graph)
    assert " symbolic\n  nest n_dims=0 domain=[n0**2]\n    b0 f32[n0,Max(0,n0-2),4]\n" in text
    assert "v0 = load f32 b0[-1*i0+(n0-1),(floordiv(n0,2)),3]\n    v1 = dim i64 size=2*n0\n" in text
    again = parse(text)
    assert again.body.nodes[0].attrs["spec"] == spec and format_graph(again) == text
    with pytest.raises(TextError, match="'other' is not understood; a spec may be 'symbolic'"):
        parse(text.replace(" symbolic", " other"))


FUSED = """\
graph "fused"
  symbol s min=0 multiple_of=1
  input %x: f32[s]
  %k3: f32[s] = fused()  # model.py:2
    body:
      %v1: f32[s] = neg(%x)  # model.py:1
      %v2: f32[s] = exp(%v1)  # model.py:2
      yield %v2
  output %k3 as "y"
"""


def test_fused_nodes_have_a_body():
    graph = parse(FUSED)
    (node,) = graph.body.nodes
    assert node.op == "fused" and [inner.op for inner in node.regions[0].nodes] == ["neg", "exp"]
    assert node.regions[0].nodes[0].args == graph.body.params
    assert format_graph(graph) == FUSED


@pytest.mark.parametrize(
    "text",
    ["f32[]", "bf16[2, s0]", "i64[floordiv(s0,2), 2*s0 + 1]", "int", "int(2*u0)", "none", "list<f32[2, 3]>",
     "tuple<>", "tuple<int, dict<str, tuple<f32[2], bool>>>", "optional<list<int>>"],
)  # fmt: skip
def test_types(text):
    type = parse_type(text)
    assert parse_type(str(type)) == type


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('graph "g"\n  %y: f32[2] = neg(%x)', "line 2: %x is not defined before its use, in '%y: f32"),
        ('graph "g"\n input %x: q32[2]', "type 'q32.2.' is not a tensor"),
        ('graph "g"\n input %x: int\n input %x: int', "%x is defined twice"),
        ('graph "g"\n symbol s', "a symbol such as"),
        ('graph "g"\n %x: f32[2] = constant() {array=float32[2]@00}', "constant 00 is not given with"),
        ('graph "g"\n what', "a node such as"),
        ('graph "g"\n input %x: int\n output %x as "y"\n input %z: int', "'output' expected"),
        ("", "line 1: 'graph' expected, in ''"),
        ('graph "g"\n state "s" f32 int64[1](0)', "line 2: the array is int64, which does not hold f32"),
        ('graph "g"\n state "s" f32', "a state such as"),
        ('graph "g"\n structure [1]', "it must be an object with inputs"),
        (f'graph "g"\n structure {"[" * 100000}', "line 2: it nests deeper than 200"),
        (f'graph "g"\n input %x: {"list<" * 9999}int{">" * 9999}', "line 2: the text is nested too deeply"),
        ('graph "g"\n input %x: f32[9**9**9]', "'9 .. 9 .. 9' is no sum, product"),
        ('graph "g"\n input %x: f32[n//0]', "dimension 'n//0': a division by 0"),
        ('graph "g"\n input %x: f32[Min()]', "dimension: Min has 0 arguments"),
        ('graph "g"\n input %x: f32[True]', "'True' is no sum"),
        (f'graph "g"\n input %x: f32[{"-" * 9999}1]', "not an expression"),
        ('graph "g"\n symbol n min=0 multiple_of=0', "multiple_of is 0; it must be at least 1"),
        (f'graph "g"\n symbol n min={"9" * 5000} multiple_of=1', "99 is no integer of 64 bits"),
        ('graph "g"\n %x: f32[2] = constant() {array=object[1](0)}', "dtype 'object' of an array is not one"),
        ('graph "g"\n %x: bool[1] = constant() {array=bool[1](2)}', "line 2: 2, in"),
        ('graph "g"\n %x: f32[3] = constant() {array=float32[3](1.0)}', "cannot reshape array of size 1"),
        ('graph "g"\n= f() {axis=99999999999999999999}', "99999999999999999999 is no integer of 64 bits"),
        ('graph "g"\nspec @0\n  nothing n_dims=1', "line 2: kernel spec: family 'nothing' is not one of"),
    ],
)
def test_errors_name_the_line(text, message):
    with pytest.raises(TextError, match=message):
        parse(text)


def test_data_only():
    graph = Graph("g")
    graph.body.nodes.append(Node("full", [], {"value": object()}))
    with pytest.raises(TextError, match="an attribute of type object is not data"):
        format_graph(graph)


def test_an_array_must_be_the_one_that_the_text_says():
    text = 'graph "g"\n  %x: f32[2] = constant() {array=float32[40]@00}'
    with pytest.raises(TextError, match=r"line 2: constant 00 is float32\[40, 1\]"):
        parse(text, {"00": np.zeros((40, 1), "float32")})


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_malformed_text_is_refused(data):
    """Lines and pieces of lines of a sound text in any order are a graph or a TextError, nothing else."""
    pieces = st.sampled_from(re.findall(r"\w+|\s|[^\w\s]", canonical(TEXT)))
    lines = canonical(TEXT).splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        row = data.draw(st.integers(0, len(lines) - 1))
        at = data.draw(st.integers(0, len(lines[row])))
        match data.draw(st.sampled_from(("cut", "drop", "piece", "noise", "copy"))):
            case "cut":
                lines[row] = lines[row][:at] + lines[row][at + data.draw(st.integers(1, 9)) :]
            case "drop":
                lines[row] = ""
            case "piece":
                lines[row] = lines[row][:at] + data.draw(pieces) + lines[row][at:]
            case "noise":
                lines[row] = lines[row][:at] + data.draw(st.text(max_size=4)) + lines[row][at:]
            case "copy":
                lines.insert(row, data.draw(st.sampled_from(lines)))
    try:
        graph = parse("\n".join(lines))
        text = format_graph(graph)
    except TextError:
        return
    assert format_graph(parse(text)) == text
