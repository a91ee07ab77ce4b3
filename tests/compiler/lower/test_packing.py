"""How constant right operands lie, text in and text out."""

import numpy as np
import pytest
from shapevm.compiler.ir.text import constants, parse
from shapevm.compiler.lower.packing import pack
from shapevm.jit.families.matmul.layouts import pack_panels

HEAD = 'graph "g"\n symbol s min=1 multiple_of=1\n input %x: f32[s, 3]\n input %y: f32[3, 2]\n'
NUMBERS = "float32[3, 2](0.1, 0.2, 0.3, 0.4, 0.5, 0.6)"
WEIGHT = f'%w1: f32[3, 2] = constant() {{array={NUMBERS}, dtype="f32", name="w"}}\n'
SPEC = """
spec @a symbolic
  matmul n_dims=0 batch=[] m=s n=2 k=3 a=0 a_index=[i0,i2] b=1 b_index=[i2,i1] b_layout="rows" chain=32
  b0 f32[s,3]
  b1 f32[3,2]
  b2 f32[s,2] output
  v0 = acc f32
  v1 = store f32 v0 b2[i0,i1]
"""
PACKED = SPEC.replace("b1 f32[3,2]", "b1 f32[1,3,32]").replace("[i2,i1]", "[]").replace("rows", "panels")


def hash_of(array):
    """Return the hash that stands for an array in text."""
    graph = parse('graph "g"\n %c: f32[1] = constant() {array=float32[1](0)}')
    graph.body.nodes[0].attrs["array"] = array
    return next(iter(constants(graph)))


def test_a_constant_is_packed_once(turns):
    """Both kernels read the same panels, which stand behind the matrix."""
    panels = pack_panels(np.float32([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]))
    before = """
      %k2: f32[s, 2] = kernel(%x, %w1) {spec=@a, label="matmul"}
      %k3: f32[s, 2] = kernel(%x, %w1) {spec=@a, label="matmul"}
      output %k2 as "a"
      output %k3 as "b"
    """
    packed = f'array=float32[1, 3, 32]@{hash_of(panels)}, dtype="f32", name="w.panels"'
    after = WEIGHT + f"%v4: f32[1, 3, 32] = constant() {{{packed}}}\n" + before.replace("%w1", "%v4")
    turns(pack, HEAD + WEIGHT + before + SPEC, after + PACKED, {hash_of(panels): panels})


def test_what_a_call_gives_is_read_in_place(turns):
    text = """
      %k2: f32[s, 2] = kernel(%x, %y) {spec=@a, label="matmul"}
      output %k2 as "a"
    """
    turns(pack, HEAD + text + SPEC, text + SPEC)


@pytest.mark.parametrize(
    ("window", "largest", "wanted"),
    [
        ("[56,56];[3,3];[1,1];[1,1];[1,1];[1,1];1", 1, "winograd"),
        ("[8,8];[3,3];[2,2];[1,1];[1,1];[1,1];1", 1, "winograd"),
        ("[8,8];[3,3];[1,1];[6,6];[1,1];[6,6];1", 1, "winograd"),
        ("[8,8];[3,3];[2,2];[1,1];[1,1];[1,1];1", np.inf, "panels"),  # taps outside of the image count then
        ("[9,8];[3,3];[2,2];[1,1];[1,1];[1,1];1", 1, "panels"),
        ("[s,8];[3,3];[2,2];[1,1];[1,1];[1,1];1", 1, "panels"),
        ("[8,8];[3,3];[1,1];[1,1];[2,2];[1,1];1", 1, "panels"),
    ],
)
def test_layouts_of_convolutions(window, largest, wanted):
    head = 'graph "g"\n symbol s min=1 multiple_of=1\n input %x: f32[1, 16, 16, 16]\n'
    weight = '%w1: f32[144, 8] = constant() {array=float32[1](0), dtype="f32", name="w"}\n'
    spec = f"""
spec @a symbolic
  conv n_dims=0 batch=[] m=s n=8 k=144 a=0 a_index=[] b=1 b_index=[i2,i1] b_layout="rows" window={window}
  b0 f32[1,16,16,16]
  b1 f32[144,8]
  b2 f32[s,8] output
  v0 = acc f32
  v1 = store f32 v0 b2[i0,i1]
"""
    graph = parse(f'{head}{weight} %k2: f32[s, 8] = kernel(%x, %w1) {{spec=@a}}\n output %k2 as "a"{spec}')
    graph.body.nodes[0].attrs["array"] = np.full((144, 8), largest, np.float32)
    pack(graph)
    assert graph.body.nodes[-1].attrs["spec"].product.b_layout == wanted


@pytest.mark.parametrize(("dtype", "start", "step"), [("bf16", 0, 0.5), ("i8", 0, 1), ("f16", 1, 1 / 1024)])
def test_panels_are_of_the_narrowest_dtype(dtype, start, step):
    weight = WEIGHT.replace(NUMBERS, f"float32[3, 2]({', '.join(str(start + n * step) for n in range(6))})")
    graph = parse(f'{HEAD}{weight} %k2: f32[s, 2] = kernel(%x, %w1) {{spec=@a}}\n output %k2 as "a"{SPEC}')
    pack(graph)
    kernel = graph.body.nodes[-1]
    assert kernel.arg(1).tensor.dtype == kernel.attrs["spec"].buffers[1].dtype == dtype
