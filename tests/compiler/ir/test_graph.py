"""Graphs are changed in place, and `users` stays right."""

import numpy as np
import pytest
from shapevm.compiler.ir.errors import ShapeError
from shapevm.compiler.ir.graph import Builder, Graph, Node, erase
from shapevm.compiler.ir.text import parse
from shapevm.compiler.ir.types import TensorType
from shapevm.compiler.verify import verify

TEXT = """graph "g"
  symbol s min=0 multiple_of=1
  input %x: f32[s]
  input %c: bool
  %a: f32[s] = neg(%x)
  %b: f32[s] = add(%a, %a)
  %r: f32[s] = if(%c)
    then:
      %d: f32[s] = exp(%a)
      yield %d
    else:
      yield %a
  output %r as "y"
  output %a as "a"
"""


def node(graph: Graph, op: str) -> Node:
    return next(node for node in graph.nodes() if node.op == op)


def test_replace_reaches_regions_and_results():
    graph = parse(TEXT)
    old, (x, _) = node(graph, "neg").result, graph.body.params
    graph.replace(old, x)
    assert not old.users and node(graph, "add").args == [x, x] and node(graph, "exp").args == [x]
    assert graph.body.results[1] is x and node(graph, "if").regions[1].results == [x]
    verify(graph, "core")


def test_erase_forgets_what_regions_used():
    graph = parse(TEXT)
    a, branch = node(graph, "neg").result, node(graph, "if")
    graph.body.results = [a, a]
    assert [user.op for user in a.users] == ["add", "add", "exp"]
    erase(graph.body, branch)
    assert [user.op for user in a.users] == ["add", "add"]
    verify(graph, "core")


def test_nodes_come_inner_first():
    assert [n.op for n in parse(TEXT).nodes()] == ["neg", "add", "exp", "if"]


def test_builder_inserts_in_order_with_the_source():
    graph = parse(TEXT)
    builder = Builder(graph, position=1)
    builder.source = "model.py:5"
    y = builder.one("exp", graph.body.nodes[0].result)
    z = builder.one("neg", y)
    assert [n.op for n in graph.body.nodes] == ["neg", "exp", "neg", "add", "if"]
    assert z.type == TensorType("f32", graph.body.params[0].type.shape) and z.node.source == "model.py:5"


def test_names_are_fresh():
    graph = Graph("g")
    graph.input("v1", TensorType("f32", ()))
    assert [graph.new_name() for _ in range(2)] == ["v2", "v3"] and graph.new_name("k") == "k4"


def test_builder_raises_what_the_rule_raises():
    graph = Graph("g")
    builder = Builder(graph)
    x = builder.constant(np.zeros((2, 3), "float32"), "f32")
    with pytest.raises(ShapeError, match="reshape"):
        builder.one("reshape", x, shape=(7,))
