"""Lowered graphs written as text, emitted, and run on the reference interpreter."""

import numpy as np
import pytest
from shapevm.compiler.emit.emit import emit, state_graph
from shapevm.compiler.ir.errors import ShapeError, UnsupportedOp
from shapevm.compiler.ir.graph import Graph
from shapevm.compiler.ir.text import format_graph, parse
from shapevm.vm.errors import Error
from shapevm.vm.instruction import decode_all
from shapevm.vm.program import Axis, Program

NEG = """
spec @neg
  nest n_dims=1 domain=[n0]
  b0 f32[n0]
  b1 f32[n0] output
  v0 = load f32 b0[i0]
  v1 = neg f32 v0
  v2 = store f32 v1 b1[i0]
"""
IOTA = """
spec @iota
  nest n_dims=2 domain=[n0]
  b0 i64[n0] output
  v0 = iota i64 i0
  v1 = dim i64 size=n1
  v2 = add i64 v0 v1
  v3 = store i64 v2 b0[i0]
"""


def opcodes(program: Program, function: int = 0) -> list[str]:
    return [instruction.op.name for instruction in decode_all(program.functions[function].code)]


# Sizes and kernels ---------------------------------------------------------------------------------


def test_kernel_with_symbolic_sizes(run):
    text = """graph "g"
      symbol s min=1 multiple_of=1
      symbol t min=0 multiple_of=1
      input %x: f32[s, t]
      %k: f32[s, t] = kernel(%x) {spec=@neg, dims=[s*t], label="neg"}  # model.py:7
      %i: i64[2*s + t - 1] = kernel() {spec=@iota, dims=[2*s + t - 1, s + 5*t], label="iota"}
      output %k as "y"
      output %i as "i"
    """
    x = np.arange(6, dtype="float32").reshape(2, 3)
    y, i = run(text + NEG + IOTA, x)
    assert np.array_equal(y, -x) and np.array_equal(i, np.arange(6) + 2 + 15)


@pytest.mark.parametrize(
    ("shape", "expected"), [((2, 3), 2), ((3, 3), -1), ((4, 2), -1), ((1, 9), 2), ((0, 1), 2)]
)
def test_sizes_choose_one_of_two_kernels(run, shape, expected):
    """The second of these is another function, which no lowering makes, so that one sees which it is."""
    twice = """
spec @twice
  nest n_dims=2 domain=[n1,n0]
  b0 f32[n1,n0]
  b1 f32[n1,n0] output
  v0 = load f32 b0[i0,i1]
  v1 = add f32 v0 v0
  v2 = store f32 v1 b1[i0,i1]
"""
    text = """graph "g"
      symbol s min=0 multiple_of=1
      symbol t min=0 multiple_of=1
      input %x: f32[s, t]
      %k: f32[s, t] = kernel(%x) {spec=@neg, dims=[s*t], label="k", exchanged=[@twice, [t, s], s + 1, t + 1]}
      output %k as "y"
    """
    assert parse(format_graph(parse(text + NEG + twice))).body.nodes[0].attrs["exchanged"][2:]
    (y,) = run(text + NEG + twice, np.ones(shape, "float32"))
    assert np.array_equal(y, np.full(shape, expected, "float32"))


@pytest.mark.parametrize(
    ("dim", "value"),
    [
        ("7", 7), ("s", 6), ("-s+10", 4), ("2*s*t-3", 57), ("s**3", 216), ("floordiv(s+t,2)", 5),
        ("Mod(s*t,4)", 2), ("Max(s,t,9)", 9), ("Min(s,t)", 5), ("floordiv(s,4)*t+1", 6), ("s*(s-1)", 30),
        ("5000000000", 5000000000),
        ("-1", -1), ("-2*s", -12),
    ],
)  # fmt: skip
def test_size_expressions(run, dim, value):
    text = f"""graph "g"
      symbol s min=0 multiple_of=1
      symbol t min=0 multiple_of=1
      input %x: f32[s, t]
      %n: int({dim}) = size() {{dim={dim}}}
      output %n as "n"
    """
    assert run(text, np.zeros((6, 5), "float32")) == [value]


def test_equal_sizes_are_computed_once():
    text = """graph "g"
      symbol s min=1 multiple_of=1
      input %x: f32[s, 3]
      %a: f32[3*s] = kernel(%x) {spec=@neg, dims=[3*s], label="neg"}
      %b: f32[3*s] = kernel(%a) {spec=@neg, dims=[3*s], label="neg"}
      %f: f32[3*s] = kernel(%b) {spec=@neg, dims=[3*s], label="neg"}
      output %f as "y"
    """
    program = emit(parse(text + NEG))
    assert opcodes(program).count("mul") == 1 and len(program.kernels) == 1


def test_registers_are_used_again(execute):
    lines = [f'%k{i + 1}: f32[s] = kernel(%k{i}) {{spec=@neg, dims=[s], label="neg"}}' for i in range(50)]
    text = (
        'graph "g"\n symbol s min=0 multiple_of=1\n input %k0: f32[s]\n'
        + "\n".join(lines)
        + '\n output %k50 as "y"'
    )
    program = emit(parse(text + NEG))
    assert program.functions[0].n_registers <= 4
    (y,) = execute(program, [np.ones(3, "float32")])
    assert np.array_equal(y, np.ones(3))


def test_lines_name_the_model():
    text = """graph "g"
      input %x: f32[4]
      %a: f32[4] = kernel(%x) {spec=@neg, dims=[4], label="neg"}  # model.py:7
      %b: f32[4] = kernel(%a) {spec=@neg, dims=[4], label="neg"}  # model.py:9
      output %b as "y"
    """
    function = emit(parse(text + NEG)).functions[0]
    launches = [i.pc for i in decode_all(function.code) if i.op.name == "kernel"]
    assert [function.source(pc) for pc in launches] == ["model.py:7", "model.py:9"]


def test_each_spec_is_compiled_once():
    text = """graph "g"
      input %x: f32[4]
      %a: f32[4] = kernel(%x) {spec=@neg, dims=[4], label="first"}
      %b: f32[4] = kernel(%a) {spec=@neg, dims=[4], label="second"}
      output %b as "y"
    """
    asked = []
    program = emit(parse(text + NEG), compile=lambda spec: asked.append(spec) or [])
    assert len(asked) == 1 and [kernel.label for kernel in program.kernels] == ["first"]


# Control flow --------------------------------------------------------------------------------------

BRANCH = """graph "g"
  symbol s min=0 multiple_of=1
  input %x: f32[s]
  input %c: bool
  input %n: int
  %r: f32[s], %m: int = if(%c)
    then:
      %a: f32[s] = kernel(%x) {spec=@neg, dims=[s], label="neg"}
      %one: int = size() {dim=1}
      %p: int = int_add(%n, %one)
      yield %a, %p
    else:
      yield %x, %n
  output %r as "y"
  output %m as "n"
"""


@pytest.mark.parametrize("taken", [True, False])
def test_if(run, taken):
    x = np.arange(3, dtype="float32")
    y, n = run(BRANCH + NEG, x, taken, 41)
    assert np.array_equal(y, -x if taken else x) and n == (42 if taken else 41)


LOOP = """graph "g"
  input %n: int
  input %a: int
  input %b: int
  %zero: int(0) = size() {dim=0}
  %i: int, %x: int, %y: int = while(%zero, %a, %b)
    cond(%p1: int, %p2: int, %p3: int):
      %c: bool = int_lt(%p1, %n)
      yield %c
    body(%q1: int, %q2: int, %q3: int):
      %one: int(1) = size() {dim=1}
      %next: int = int_add(%q1, %one)
      %sum: int = int_add(%q2, %q3)
      yield %next, %q3, %sum
  output %x as "x"
  output %y as "y"
  output %i as "i"
"""


@pytest.mark.parametrize("n", [0, 1, 10])
def test_while_moves_all_carried_values_at_once(run, n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    assert run(LOOP, n, 0, 1) == [a, b, n]


def test_values_made_before_a_loop_outlive_it(run):
    text = """graph "g"
      symbol s min=0 multiple_of=1
      input %n: int
      input %x: f32[s]
      %k: f32[s] = kernel(%x) {spec=@neg, dims=[s], label="neg"}
      %zero: int(0) = size() {dim=0}
      %i: int, %r: f32[s] = while(%zero, %x)
        cond(%p1: int, %p2: f32[s]):
          %c: bool = int_lt(%p1, %n)
          yield %c
        body(%q1: int, %q2: f32[s]):
          %one: int(1) = size() {dim=1}
          %next: int = int_add(%q1, %one)
          %t: f32[s] = kernel(%k) {spec=@neg, dims=[s], label="neg"}
          %u: f32[s] = kernel(%t) {spec=@neg, dims=[s], label="neg"}
          yield %next, %u
      output %r as "r"
    """
    x = np.arange(4, dtype="float32")
    for n in (0, 1, 5):
        (r,) = run(text + NEG, n, x)
        assert np.array_equal(r, -x if n else x)


def test_calls_pass_the_symbols_values(run):
    text = """graph "g"
      symbol s min=0 multiple_of=1
      input %x: f32[s, 2]
      %v: f32[2*s] = reshape(%x) {shape=[2*s]}
      %r: f32[2*s] = call(%v) {function="negate", symbols=[2*s]}
      output %r as "y"
    """
    callee = """graph "negate"
      symbol n min=0 multiple_of=1
      input %x: f32[n]
      %k: f32[n] = kernel(%x) {spec=@neg, dims=[n], label="neg"}
      output %k as "y"
    """
    x = np.arange(6, dtype="float32").reshape(3, 2)
    (y,) = run(text, x, functions={"negate": parse(callee + NEG)})
    assert np.array_equal(y, -x.reshape(-1))


def test_extern(execute):
    text = """graph "g"
      symbol s min=0 multiple_of=1
      input %x: f32[s]
      %r: f32[s], %n: int = extern(%x) {name="double", types=[type<f32[s]>, type<int>]}
      output %r as "y"
      output %n as "n"
    """
    program = emit(parse(text))
    x = np.arange(3, dtype="float32")
    y, n = execute(program, [x], {"double": lambda x: [x * 2, 7]})
    assert np.array_equal(y, x * 2) and n == 7 and "double" in program.strings


# The contract --------------------------------------------------------------------------------------


def test_axes_of_the_contract():
    text = """graph "g"
      symbol s min=2 max=64 multiple_of=2 why="model.py:3"
      input %x: f32[s, 2*s + 1, 384]
      output %x as "y"
    """
    program = emit(parse(text))
    assert program.inputs[0].axes == (Axis.of(0), Axis.of(0, 2, 1), Axis.const(384))
    (s,) = program.symbols
    assert (s.min, s.max, s.multiple_of, s.why) == (2, 64, 2, "model.py:3")


def test_other_axes_are_guarded(execute):
    text = """graph "g"
      symbol s min=0 multiple_of=1
      symbol t min=0 multiple_of=1
      input %x: f32[s, t]
      input %y: f32[s + t]
      output %y as "y"
    """
    program = emit(parse(text))
    x = np.zeros((2, 3), "float32")
    assert execute(program, [x, np.ones(5, "float32")])[0].shape == (5,)
    with pytest.raises(Error, match='input "y": axis 0 must have size s\\+t, as other inputs determine s, t'):
        execute(program, [x, np.ones(6, "float32")])


def test_int_inputs_bind_symbols(execute):
    text = """graph "g"
      symbol n min=0 max=9 multiple_of=1
      input %n: int(n)
      %i: i64[n] = kernel() {spec=@iota, dims=[n, n + 1], label="iota"}
      output %i as "y"
    """
    program = emit(parse(text + IOTA))
    assert np.array_equal(execute(program, [3])[0], [4, 5, 6])
    with pytest.raises(Error, match="must be at most 9"):
        execute(program, [10])


def test_a_symbol_that_nothing_determines():
    text = 'graph "g"\n symbol s min=0 multiple_of=1\n symbol t min=0 multiple_of=1\n'
    text += ' input %x: f32[s*t]\n output %x as "y"'
    with pytest.raises(ShapeError, match="size 's' is determined by no input of 'g'"):
        emit(parse(text))


def test_ops_without_instruction():
    with pytest.raises(
        UnsupportedOp, match=r"neg: no instruction does this; lower the graph first \(model.py:3\)"
    ):
        emit(parse('graph "g"\n input %x: f32[2]\n %y: f32[2] = neg(%x)  # model.py:3\n output %y as "y"'))


# State ---------------------------------------------------------------------------------------------


def test_state_of_zeros_is_no_constant():
    """Caches take no room in the artifact; -0.0 is no zero."""
    graph = Graph("g", state={
        "zeros": (np.zeros((4, 3), "f"), "f32"), "none": (np.zeros((0, 2), "f"), "f32"),
        "minus": (np.full(2, -0.0, "f"), "f32"),
    })  # fmt: skip
    function = state_graph(graph)
    assert [node.op for node in function.body.nodes] == ["full", "full", "constant"]
    program = emit(function)
    assert [name for name in opcodes(program) if name != "int"] == ["alloc", "alloc", "const", "return"]
    assert sum(c.value.size for c in program.constants) == 2
