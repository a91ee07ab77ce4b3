import numpy as np
from shapevm.compiler.ir.graph import Builder, Graph
from shapevm.compiler.passes.cse import cse

HEAD = 'graph "g"\n symbol s min=0 multiple_of=1\n input %x: f32[s]\n input %c: bool\n'


def test_the_first_of_equal_nodes_stays(rewrite):
    before = """
      %a: f32[s] = neg(%x)  # first.py:1
      %b: f32[s] = neg(%x)  # second.py:2
      %d: f32[s] = add(%a, %b)
      %e: f32[s] = add(%b, %a)
      %f: f32[s] = sub(%d, %e)
      output %f as "y"
      output %b as "z"
    """
    after = """
      %a: f32[s] = neg(%x)  # first.py:1
      %d: f32[s] = add(%a, %a)
      %f: f32[s] = sub(%d, %d)
      output %f as "y"
      output %a as "z"
    """
    rewrite(cse, HEAD + before, after)


def test_attributes_that_only_look_alike_differ(rewrite):
    text = """
      %a: f32[] = full() {value=0.0, dtype="f32", shape=[]}
      %b: f32[] = full() {value=-0.0, dtype="f32", shape=[]}
      %d: f32[] = full() {value=0, dtype="f32", shape=[]}
      %e: f32[] = full() {value=false, dtype="f32", shape=[]}
      %f: f32[1] = full() {value=0.0, dtype="f32", shape=[1]}
      output %a as "a"
    """
    rewrite(cse, HEAD + text, text)


def test_regions_use_what_is_outside_but_not_each_other(rewrite):
    before = """
      %a: f32[s] = neg(%x)
      %r: f32[s] = if(%c)
        then:
          %b: f32[s] = neg(%x)
          %d: f32[s] = exp(%b)
          yield %d
        else:
          %e: f32[s] = exp(%a)
          yield %e
      %f: f32[s] = exp(%a)
      output %r as "y"
      output %f as "z"
    """
    after = """
      %a: f32[s] = neg(%x)
      %r: f32[s] = if(%c)
        then:
          %d: f32[s] = exp(%a)
          yield %d
        else:
          %e: f32[s] = exp(%a)
          yield %e
      %f: f32[s] = exp(%a)
      output %r as "y"
      output %f as "z"
    """
    rewrite(cse, HEAD + before, after)


def test_constants_are_shared_by_memory_or_bits():
    large, small = np.zeros((64, 64), "float32"), np.ones(3, "float32")
    arrays = [large, large.copy(), large[:], small, small.copy(), small.astype("float64")]
    graph = Graph("g")
    builder = Builder(graph)
    dtypes = {"float32": "f32", "float64": "f64"}
    for i, array in enumerate(arrays):
        graph.body.results.append(builder.constant(array, dtypes[str(array.dtype)], f"c{i}"))
        graph.outputs.append(f"c{i}")
    cse(graph)
    assert [result.node.attrs["name"] for result in graph.body.results] == [
        "c0",
        "c1",
        "c0",
        "c3",
        "c3",
        "c5",
    ]
