"""Every rule refuses what breaks it, naming the node, its types and the model's line."""

import pytest
from shapevm.compiler.ir.errors import VerifyError
from shapevm.compiler.ir.graph import Graph, Node, Value
from shapevm.compiler.ir.text import parse
from shapevm.compiler.ir.types import TensorType
from shapevm.compiler.verify import RULES, verify

HEAD = 'graph "g"\n symbol s min=0 multiple_of=1\n input %x: f32[s, 4]\n input %c: bool\n input %n: int\n'
SPEC = """
spec @neg
  nest n_dims=1 domain=[n0]
  b0 f32[n0]
  b1 f32[n0] output
  v0 = load f32 b0[i0]
  v1 = store f32 v0 b1[i0]
"""
GOOD = """
  %a: f32[s, 4] = neg(%x)  # model.py:3
  %v: f32[4*s] = reshape(%a) {shape=[4*s]}
  %r: f32[4*s] = if(%c)
    then:
      %b: f32[4*s] = exp(%v)
      yield %b
    else:
      yield %v
  output %r as "y"
"""


def test_good_graphs_pass():
    verify(parse(HEAD + GOOD), "core")
    lowered = """
      %k: f32[s, 4] = kernel(%x) {spec=@neg, dims=[4*s], label="copy"}
      %v: f32[4*s] = reshape(%k) {shape=[4*s]}
      = free(%k)
      output %v as "y"
    """
    verify(parse(HEAD + lowered + SPEC), "lowered")


@pytest.mark.parametrize(
    ("text", "stage", "message"),
    [
        (
            "%a: f32[s, 4] = what(%x)",
            "core",
            "declared: operator 'what' is not declared, in %a: f32.s, 4. = what",
        ),
        (
            "%a: f32[4, s] = neg(%x)  # model.py:3",
            "core",
            r"types: value 0 has type f32\[4, s\]; .* f32\[s, 4\].*model.py:3",
        ),
        ("%a: f16[s, 4] = neg(%x)", "core", "value 0 has type f16"),
        ("%a: f32[s, 4], %b: f32[s, 4] = neg(%x)", "core", "types: 2 values where its operator gives 1"),
        ("%a: f32[s, 4] = add(%x)", "core", "types: add: 1 arguments"),
        (
            '%a: f32[t] = full() {value=0.0, dtype="f32", shape=[t]}',
            "core",
            "symbols: an attribute has the size 't'",
        ),
        ("%a: f32[s, 4] = relu(%x)", "core", "core: relu must be decomposed"),
        ("%a: f32[s, 4] = neg(%x)", "lowered", "lowered: neg must be lowered to a kernel"),
        (
            '%a: f32[s, 4] = kernel(%x) {spec=@neg, dims=[], label=""}',
            "lowered",
            "kernels: 0 dims are given; the spec has 1",
        ),
        (
            '%a: f32[s, 4] = kernel() {spec=@neg, dims=[s], label=""}',
            "lowered",
            "kernels: 0 values for 1 input buffers",
        ),
        (
            '%a: f32[s, 4] = kernel(%x) {spec=@neg, dims=[s], label=""}',
            "lowered",
            r"%x has 4\*s elements; its buffer has s",
        ),
        (
            '%a: f16[4*s] = kernel(%x) {spec=@neg, dims=[4*s], label=""}',
            "lowered",
            "f16.4.s. is given for a buffer of f32",
        ),
        (
            '%a: f32[3] = constant() {array=float32[2](1.0, 2.0), dtype="f32", name=""}',
            "core",
            "constants: the array has",
        ),
        (
            "%a: f32[s, 4] = if(%n)\n then:\n yield %x\n else:\n yield %x",
            "core",
            "control: the condition is int; it must be",
        ),
        (
            "%a: f32[s] = if(%c)\n then:\n yield %x\n else:\n yield %x",
            "core",
            r"control: .* has type f32\[s, 4\]; the result is",
        ),
        (
            "%a: int = while(%n)\n cond(%p: int):\n yield %p\n body(%q: int):\n yield %q",
            "core",
            "control: the condition is int",
        ),
        (
            "%a: int = while(%n)\n cond(%p: int):\n yield %c\n body(%q: int):\n yield %x",
            "core",
            r"\(yielded\) has type f32",
        ),
        (
            "%a: int = while(%n)\n cond(%p: int(3)):\n yield %c\n body(%q: int):\n yield %q",
            "core",
            "known ints: %p is int.3., but its value depends on which way",
        ),
        (
            "%z: int(3) = size() {dim=3}\n %a: int(3) = if(%c)\n then:\n yield %z\n else:\n yield %n",
            "core",
            "known ints: %a is int.3.",
        ),
    ],
)
def test_broken_nodes(text, stage, message):
    output = '\n output %a as "y"\n'
    with pytest.raises(VerifyError, match=message):
        verify(parse(HEAD + text + output + (SPEC if "@neg" in text else "")), stage)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("%b: f32[s, 4] = neg(%x)\n yield %x", "%x is not computed in its region"),
        ("%b: f32[s, 4] = neg(%x)\n %d: f32[s, 4] = exp(%x)\n yield %b", "nothing in the region needs %d"),
        (
            "%b: f32[s, 4], %d: i64[s, 4] = sort(%x) {keep=4, descending=true}\n yield %b",
            "sort cannot be computed",
        ),
        ("%b: f32[4*s] = reshape(%x) {shape=[4*s]}\n yield %b", "has type f32.s, 4.; its region yields"),
        (
            "%b: f32[4*s] = reshape(%x) {shape=[4*s]}\n %d: f32[4*s] = neg(%b)\n"
            "%e: f32[s, 4] = reshape(%d) {shape=[s, 4]}\n yield %e",
            "reshape cannot be computed",
        ),
        (
            "%b: f32[s, 1] = reduce_sum(%x)\n %d: f32[1, s] = permute(%b) {axes=[1, 0]}\n"
            "%e: f32[1, 1] = reduce_sum(%d)\n %f: f32[s, 4] = expand(%e) {shape=[s, 4]}\n yield %f",
            "no kernel computes reduce_sum together with what follows it",
        ),
        (
            "%b: f32[s, s] = matmul(%x, %w)\n %d: f32[s, 4] = slice(%b) {axis=1, start=0, length=4, step=1}\n"
            "yield %d",
            "no kernel computes matmul",
        ),
        ("yield %x, %x", "a fused node has no arguments and one region"),
    ],
)
def test_what_no_kernel_computes(nodes, message):
    text = f'{HEAD} input %w: f32[4, s]\n%a: f32[s, 4] = fused()\nbody:\n{nodes}\noutput %a as "y"\n'
    with pytest.raises(VerifyError, match=message):
        verify(parse(text), "core")


def test_sizes_are_bound_when_all_is_lowered():
    node = '%a: f32[s, 4] = kernel(%x) {spec=@neg, label="neg"}\n output %a as "y"\n'
    spec = SPEC.replace("@neg", "@neg symbolic").replace("n_dims=1", "n_dims=0").replace("n0", "4*s")
    verify(parse(HEAD + node + spec), "core")
    with pytest.raises(VerifyError, match="lowered: the sizes of its spec are not bound"):
        verify(parse(HEAD + node + spec), "lowered")
    with pytest.raises(VerifyError, match="symbols: an attribute has the size 't'"):
        verify(parse(HEAD + node + spec.replace("4*s", "4*t")), "core")


def good() -> tuple[Graph, dict[str, Node]]:
    graph = parse(HEAD + GOOD)
    return graph, {node.op: node for node in graph.nodes()}


def use_before_definition(graph: Graph, nodes: dict[str, Node]) -> None:
    graph.body.nodes.insert(0, graph.body.nodes.pop(1))


def use_outside_of_the_region(graph: Graph, nodes: dict[str, Node]) -> None:
    graph.body.results[0] = nodes["exp"].result


def second_definition(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["exp"].results = list(nodes["neg"].results)


def stale_user(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["neg"].result.users.clear()


def user_too_many(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["neg"].result.users.append(nodes["exp"])


def equal_names(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["exp"].result.name = "x"


def missing_name(graph: Graph, nodes: dict[str, Node]) -> None:
    graph.outputs.clear()


def names_twice(graph: Graph, nodes: dict[str, Node]) -> None:
    graph.inputs[1] = graph.inputs[0]


def foreign_value(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["exp"].set_args([Value("foreign", TensorType("f32", ()))])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (use_before_definition, "dominance: %a is used before its definition, or outside of its region"),
        (use_outside_of_the_region, "dominance: a block yields %b, which is not defined there"),
        (second_definition, "dominance: %a has another definition"),
        (stale_user, "users: the users of %a do not agree with the arguments of reshape"),
        (user_too_many, "users: the users of %a do not agree with the arguments of exp"),
        (equal_names, "names: %x is the name of two values"),
        (missing_name, "interface: 0 names for 1 outputs of graph 'g'"),
        (names_twice, "interface: the name 'x' is used for several inputs"),
        (foreign_value, "dominance: %foreign is used before its definition"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_broken_structure(damage, message):
    graph, nodes = good()
    damage(graph, nodes)
    with pytest.raises(VerifyError, match=message):
        verify(graph, "core")


def test_the_pass_is_named():
    with pytest.raises(VerifyError, match="^after cse, core: relu"):
        verify(parse(HEAD + '%a: f32[s, 4] = relu(%x)\n output %a as "y"'), "core", "cse")


@pytest.mark.parametrize("symbol", ["inf min=0", "s min=4 max=3"])
def test_symbols(symbol):
    with pytest.raises(VerifyError, match="symbols: "):
        verify(parse(f'graph "g"\n symbol {symbol} multiple_of=1\n'), "core")


def test_sizes_named_by_values_are_known_after_them_only():
    text = """
      %i: int(u0) = item(%t) {symbol="u0"}
      %y: f32[u0] = full() {value=0.0, dtype="f32", shape=[u0]}
      output %y as "y"
    """
    head = HEAD + " input %t: i64[]\n"
    verify(parse(head + text), "core")
    first, second, last = text.strip().splitlines()
    with pytest.raises(VerifyError, match="symbols: an attribute has the size 'u0'"):
        verify(parse("\n".join([head, second, first, last])), "core")


def test_every_rule_has_a_name_of_its_own():
    assert len({rule.name for rule in RULES}) == len(RULES)
