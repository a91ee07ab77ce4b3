"""Tables that are read out of a product's panels: text in and text out, and a language model in small."""

import subprocess

import numpy as np
import pytest
import torch
from shapevm.compiler.ir.text import constants, parse
from shapevm.compiler.lower.tying import tie
from shapevm.compiler.passes import pipeline
from shapevm.jit.evaluation import f32_to_bf16
from shapevm.jit.families.matmul.layouts import pack_panels
from shapevm.vm.errors import IndexOutOfRange
from shapevm.vm.reader import read

import shapevm

ROWS, WIDTH = 37, 3
TABLE = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH) / 7
HALF = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH) / 2
HEAD = 'graph "g"\n symbol s min=1 multiple_of=1\n input %x: i64[s]\n input %y: f32[s, 3]\n'
PRODUCT = """
spec @product symbolic
  matmul n_dims=0 batch=[] m=s n=37 k=3 a=0 a_index=[i0,i2] b=1 b_index=[] b_layout="panels" chain=32
  b0 f32[s,3]
  b1 f32[2,3,32]
  b2 f32[s,37] output
  v0 = acc f32
  v1 = store f32 v0 b2[i0,i1]
"""
GATHER = """
spec @gather symbolic
  nest n_dims=0 domain=[s,3]
  b0 i64[s]
  b1 f32[37,3]
  b2 f32[s,3] output
  v0 = load i64 b0[i0]
  v1 = load f32 b1[v0,i1]
  v2 = store f32 v1 b2[i0,i1]
"""
TIED = """
spec @gather symbolic
  nest n_dims=0 domain=[s,3]
  b0 i64[s]
  b1 f32[2,3,32]
  b2 f32[s,3] output
  v0 = load i64 b0[i0]
  v1 = checked i64 v0 v0 size=37
  v2 = const i64 value=5
  v3 = const i64 value=31
  v4 = shr i64 v1 v2
  v5 = and i64 v1 v3
  v6 = load f32 b1[v4,i1,v5]
  v7 = store f32 v6 b2[i0,i1]
"""
NODES = """
  %k1: f32[s, 3] = kernel(%x, %table) {spec=@gather, label="gather"}
  %k2: f32[s, 37] = kernel(%y, %panels) {spec=@product, label="matmul"}
  output %k1 as "rows"
  output %k2 as "logits"
"""


def hash_of(array):
    """Return the hash that stands for an array in text."""
    graph = parse('graph "g"\n %c: f32[1] = constant() {array=float32[1](0)}')
    graph.body.nodes[0].attrs["array"] = array
    return next(iter(constants(graph)))


def lines_of(table, panels, dtype="f32"):
    """Return the lines of the two constants and their arrays."""
    arrays = {hash_of(array): array for array in (table, panels)}
    t, p = arrays
    kind = {"f32": "float32", "bf16": "uint16"}[dtype]
    shape = f"{dtype}[{', '.join(map(str, panels.shape))}]"
    first = f'%table: f32[37, 3] = constant() {{array=float32[37, 3]@{t}, dtype="f32", name="w"}}\n'
    second = (
        f"%panels: {shape} = constant() "
        f'{{array={kind}{list(panels.shape)}@{p}, dtype="{dtype}", name="w.panels"}}\n'
    )
    return first, second, arrays


def test_rows_are_read_out_of_panels(turns):
    table, panels, arrays = lines_of(TABLE, pack_panels(TABLE.T))
    after = panels + table + NODES.replace("%table)", "%panels)")
    turns(tie, HEAD + table + panels + NODES + GATHER + PRODUCT, after + TIED + PRODUCT, arrays)


def test_narrow_panels_are_widened(turns):
    table, panels, arrays = lines_of(HALF, f32_to_bf16(pack_panels(HALF.T)), "bf16")
    after = panels + table + NODES.replace("%table)", "%panels)")
    product, wide = PRODUCT.replace("b1 f32", "b1 bf16"), TIED.replace("b1 f32", "b1 bf16")
    wide = wide.replace("v6 = load f32", "v6 = load bf16").replace("v7 = store f32 v6", "v8 = store f32 v7")
    wide = wide.replace("  v8 =", "  v7 = cast f32 v6\n  v8 =")
    turns(tie, HEAD + table + panels + NODES + GATHER + product, after + wide + product, arrays)


def test_rounded_panels_are_no_table(turns):
    table, panels, arrays = lines_of(TABLE, f32_to_bf16(pack_panels(TABLE.T)), "bf16")
    product = PRODUCT.replace("b1 f32", "b1 bf16")
    text = table + panels + NODES + GATHER + product
    turns(tie, HEAD + text, text, arrays)


def test_one_other_value_is_another_table(turns):
    other = TABLE.copy()
    other[36, 2] = -other[36, 2]
    table, panels, arrays = lines_of(other, pack_panels(TABLE.T))
    text = table + panels + NODES + GATHER + PRODUCT
    turns(tie, HEAD + text, text, arrays)


@pytest.mark.parametrize("other", ["v1 = load f32 b1[i0,i1]", "v1 = load f32 b1[v0+1,i1]"])
def test_what_is_read_otherwise_stays_a_table(turns, other):
    table, panels, arrays = lines_of(TABLE, pack_panels(TABLE.T))
    gather = GATHER.replace("v1 = load f32 b1[v0,i1]", other)
    text = NODES + gather + PRODUCT
    turns(tie, HEAD + table + panels + text, table + panels + text, arrays)


# A language model in small --------------------------------------------------------------------------------


class Tied(torch.nn.Module):
    """An embedding whose weight is the output layer's; `vocabulary` is no multiple of a panel's columns."""

    def __init__(self, vocabulary=1001, width=64):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width)
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.norm(self.embedding(ids)))


def compiled(model, **options):
    ids = torch.zeros(2, 5, dtype=torch.int64)
    shapes = ({0: torch.export.Dim("batch", max=8), 1: torch.export.Dim("length", max=64)},)
    return shapevm.compile(model.eval(), (ids,), dynamic_shapes=shapes, **options)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Tied()


def without_tying(monkeypatch):
    monkeypatch.setattr(pipeline, "PASSES", tuple(p for p in pipeline.PASSES if p[0] is not tie))


def stored_bytes(exe, folder):
    """Return the bytes of the tensors in an artifact."""
    exe.save(folder / "model.svm")
    constants = read(folder / "model.svm").constants
    return sum(each.value.nbytes for each in constants if isinstance(each.value, np.ndarray))


@pytest.mark.parametrize("strategy", ["generic", "jit"])
def test_a_tied_weight_is_stored_once_with_the_same_bits(model, monkeypatch, strategy, tmp_path):
    tied = compiled(model, strategy=strategy)
    without_tying(monkeypatch)
    twice = compiled(model, strategy=strategy)
    weight = model.embedding.weight
    assert weight.nbytes <= stored_bytes(tied, tmp_path) < 1.1 * weight.nbytes
    assert stored_bytes(twice, tmp_path) >= 2 * weight.nbytes
    for shape in ((1, 1), (2, 17), (3, 64)):
        ids = torch.randint(0, 1001, shape)
        ids.view(-1)[-1] = 1000
        found = tied(ids)
        assert torch.equal(found, twice(ids))
        torch.testing.assert_close(found, model(ids), rtol=1e-4, atol=1e-5)


def test_the_runner_has_the_same_bits(model, tmp_path):
    exe, ids = compiled(model, strategy="generic"), np.arange(14).reshape(2, 7) * 76
    exe.save(tmp_path / "model.svm")
    np.save(tmp_path / "ids.npy", ids)
    command = [shapevm.runner_path(), tmp_path / "model.svm", "--output", tmp_path / "out.npy"]
    subprocess.run([*command, "--input", f"ids={tmp_path / 'ids.npy'}"], check=True, capture_output=True)
    assert np.load(tmp_path / "out.npy").tobytes() == exe(ids).tobytes()


@pytest.mark.parametrize("strategy", ["generic", "jit"])
@pytest.mark.parametrize("index", [-1, 1001, 1007, 2**40])
def test_an_index_beyond_the_table_is_an_error(model, strategy, index):
    """Rows of the last panel that the table does not have are none."""
    ids = torch.zeros(2, 5, dtype=torch.int64)
    ids[1, 3] = index
    with pytest.raises(IndexOutOfRange, match=rf"index {index} is out of range for an axis of size 1001"):
        compiled(model, strategy=strategy)(ids)


def test_a_half_precision_model_is_tied(tmp_path):
    half = Tied().to(torch.bfloat16)
    exe = compiled(half, strategy="generic")
    assert stored_bytes(exe, tmp_path) < 1.1 * half.embedding.weight.nbytes
    ids = torch.randint(0, 1001, (2, 7))
    torch.testing.assert_close(exe(ids), half(ids), rtol=2e-2, atol=2e-2)


def test_weights_rounded_for_products_leave_the_embedding(model, tmp_path):
    exe = compiled(model, strategy="generic", options=shapevm.Options(weights="bf16"))
    bits = np.dtype(np.float32).itemsize * model.embedding.weight.numel()
    assert stored_bytes(exe, tmp_path) >= 1.5 * bits
