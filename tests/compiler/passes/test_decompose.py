import pytest
from shapevm.compiler.ir.errors import VerifyError
from shapevm.compiler.ir.text import format_graph, parse
from shapevm.compiler.ops import OPS
from shapevm.compiler.passes.decompose import decompose
from shapevm.compiler.verify import verify

HEAD = 'graph "g"\n symbol s min=0 multiple_of=1\n input %x: f32[s, 4]\n input %c: bool\n'


def test_composites_in_composites_and_regions():
    text = """
      %r: f32[s, 4] = if(%c)
        then:
          %a: f32[s, 4] = softmax(%x) {axis=1}  # model.py:3
          yield %a
        else:
          %b: f32[s, 4] = log_softmax(%x) {axis=0}
          yield %b
      output %r as "y"
    """
    graph = parse(HEAD + text)
    decompose(graph)
    verify(graph, "core")
    then, other = next(node for node in graph.nodes() if node.op == "if").regions
    assert {"exp_nonpositive", "reduce_max", "reduce_sum"} <= {node.op for node in then.nodes}
    assert {node.source for node in then.nodes} == {"model.py:3"}
    assert "log" in {node.op for node in other.nodes}


def test_canonical_graphs_stay(rewrite):
    text = '%a: f32[s, 4] = exp(%x)\n output %a as "y"'
    rewrite(decompose, HEAD + text, text)


def test_a_wrong_decomposition_is_refused(monkeypatch):
    import dataclasses

    wrong = dataclasses.replace(
        OPS["relu"], decompose=lambda b, node: [b.one("reshape", node.args[0], shape=(4 * parse_s(),))]
    )
    monkeypatch.setitem(OPS, "relu", wrong)
    graph = parse(HEAD + '%a: f32[s, 4] = relu(%x)  # model.py:4\n output %a as "y"')
    with pytest.raises(
        VerifyError, match=r"relu: its decomposition gives f32\[4\*s\], not f32\[s, 4\] \(model.py:4\)"
    ):
        decompose(graph)


def parse_s():
    from shapevm.compiler.ir.dims import symbol

    return symbol("s")


def test_text_of_the_result_is_whole():
    graph = parse(HEAD + '%a: f32[s, 4] = softmax(%x) {axis=1}\n output %a as "y"')
    decompose(graph)
    text = format_graph(graph)
    assert "softmax" not in text and format_graph(parse(text)) == text
