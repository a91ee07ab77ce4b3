import numpy as np
from shapevm.compiler.ir import Builder, Graph
from shapevm.compiler.passes.dce import dce
from shapevm.compiler.passes.merge_linears import merge_linears
from shapevm.compiler.text import format_graph, parse
from shapevm.compiler.verify import verify

WEIGHTS = {
    name: np.full((6, n), value, "float32") for name, n, value in (("q", 8, 1), ("k", 8, 2), ("v", 4, 3))
}


def projections(biased: bool, heads: tuple[tuple[int, int], ...] = ((2, 4), (2, 4), (1, 4))) -> Graph:
    """Return x @ q, x @ k, x @ v, each reshaped to [s, 3, heads, width]."""
    graph = parse('graph "g"\n symbol s min=1 multiple_of=1\n input %x: f32[s, 3, 6]\n')
    builder = Builder(graph)
    for (name, weight), split in zip(WEIGHTS.items(), heads, strict=True):
        y = builder.one("matmul", graph.body.params[0], builder.constant(weight, "f32", name))
        if biased:
            bias = builder.constant(weight[0], "f32", f"{name}.bias")
            y = builder.one("add", y, builder.one("expand", bias, shape=y.type.shape))
        graph.body.results.append(builder.one("reshape", y, shape=(*y.type.shape[:2], *split)))
        graph.outputs.append(name)
    return graph


def merged(graph: Graph) -> list[str]:
    merge_linears(graph)
    dce(graph)
    verify(graph, "core", "merge_linears")
    return [
        line.split(" = ")[1].split("  #")[0] for line in format_graph(graph).splitlines() if " = " in line
    ]


def test_three_projections_become_one():
    graph = projections(biased=True)
    lines = merged(graph)
    constants = [node.attrs["array"] for node in graph.nodes() if node.op == "constant"]
    assert np.array_equal(constants[0], np.concatenate(list(WEIGHTS.values()), axis=1))
    assert np.array_equal(constants[1], constants[0][0])
    assert [line.split("(")[0] for line in lines] == (
        ["constant", "matmul", "constant", "expand", "add", "reshape", "slice", "slice", "slice"]
    )
    slices = [node.attrs for node in graph.nodes() if node.op == "slice"]
    assert [(s["axis"], s["start"], s["length"]) for s in slices] == [(2, 0, 2), (2, 2, 2), (2, 4, 1)]


def test_without_bias():
    assert sum(line.startswith("matmul") for line in merged(projections(biased=False))) == 1


def test_heads_of_other_widths_stay_apart():
    lines = merged(projections(biased=True, heads=((2, 4), (4, 2), (2, 2))))
    assert sum(line.startswith("matmul") for line in lines) == 2


def test_a_second_user_keeps_the_product():
    graph = projections(biased=False)
    product = next(node for node in graph.nodes() if node.op == "matmul").result
    graph.body.results.append(Builder(graph).one("neg", product))
    graph.outputs.append("other")
    assert sum(line.startswith("matmul") for line in merged(graph)) == 2
