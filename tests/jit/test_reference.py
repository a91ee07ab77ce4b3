"""The numpy evaluation of specs: right against PyTorch, for all three families."""

import numpy as np
import pytest
import torch
from shapevm.jit.evaluation import REDUCTIONS, bf16_to_f32, convert, f32_to_bf16, from_memory, to_memory
from shapevm.jit.families.attention.spec import Attention, Extents, Layout, Softmax
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import Buffer, Dim, Index, Instr

from . import nests
from .nests import Body, M, N, at

TORCH = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8,
    "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip


def tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    return (
        torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        if dtype == "bf16"
        else torch.from_numpy(array)
    )


def array(t: torch.Tensor) -> np.ndarray:
    return t.view(torch.int16).numpy().view(np.uint16) if t.dtype == torch.bfloat16 else t.numpy()


def convertible(source: str, target: str) -> np.ndarray:
    """Elements of `source` that `target` can hold, in memory form."""
    rng = np.random.default_rng(0)
    if DTYPES[source].kind == "bool":
        return rng.integers(0, 2, 100).astype(bool)
    if DTYPES[source].kind != "float":
        limits = np.iinfo(DTYPES[source].numpy)
        return rng.integers(limits.min, limits.max, 1000, limits.dtype, endpoint=True)
    x = np.concatenate([rng.standard_normal(1000) * 50, [0.0, -0.0, 0.5, -0.5, 1.5, 2.5]])
    if DTYPES[target].kind in ("float", "bool"):
        x = np.concatenate(
            [x, [np.nan, np.inf, -np.inf, 1e-40, 65519.0, 65520.0, 1e6, 3.3e38, 3.4e38, 1e39, 5e-8]]
        )
    elif target == "u8":
        x = np.concatenate([abs(x), [255.9, -1.0, -255.0]])
    elif target in ("i32", "i64"):
        x = np.concatenate([x * 1e3, [2147483520.0, -2147483648.0]])
    return to_memory(x if source == "f64" else x.astype(np.float32), source)


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_casts_are_pytorchs(source, target):
    x = convertible(source, target)
    want = array(tensor(x, source).to(TORCH[target]))
    got = to_memory(convert(from_memory(x, source), source, target), target)
    same = got == want
    if DTYPES[target].kind == "float":
        same |= np.isnan(from_memory(got, target)) & np.isnan(from_memory(want, target))
    assert same.all()


def test_bf16_rounds_to_nearest_even():
    x = np.array([1.0, 1.00390625, 1.01171875, 3.4e38, np.inf, -np.inf, np.nan, -0.0, 1e-40], np.float32)
    want = torch.from_numpy(x).to(torch.bfloat16)
    assert (f32_to_bf16(x)[:6] == array(want)[:6]).all()
    np.testing.assert_array_equal(bf16_to_f32(f32_to_bf16(x)), want.float().numpy())


def test_softmax_and_layer_norm():
    x = np.random.default_rng(0).standard_normal((5, 33)).astype(np.float32)
    out = np.empty_like(x)
    evaluate(nests.softmax(), x.shape, [x, out])
    np.testing.assert_allclose(out, torch.softmax(torch.from_numpy(x), -1).numpy(), rtol=1e-6)


def test_reductions_of_an_empty_row_give_the_neutral_element():
    b = Body()
    x = b.load("f32", (N, M), at(0, 1))
    for op in ("sum", "prod", "max", "min"):
        b.store(b.op(f"reduce.{op}", x), (N,), at(0))
    outs = [np.empty(3, np.float32) for _ in range(4)]
    evaluate(b.nest(N, M), (3, 0), [np.empty((3, 0), np.float32), *outs])
    assert [list(o) for o in outs] == [[0] * 3, [1] * 3, [-np.inf] * 3, [np.inf] * 3]


def test_sums_of_integers_wrap_and_those_of_floats_are_rounded_once():
    whole = np.array([[2**62, 1, 2**62, 2**62 + 5]])
    assert REDUCTIONS["reduce.sum"](whole, "i64").item() == 3 * 2**62 + 6 - 2**64
    assert REDUCTIONS["reduce.prod"](np.array([[2**31 + 1, 3]]), "i64").item() == 3 * 2**31 + 3
    parts = np.array([[1e8, 1.0, 1.0, 1.0, 1.0, -1e8]], np.float32)
    assert REDUCTIONS["reduce.sum"](parts, "f32").item() == 4


def test_gather_names_the_index_and_the_size():
    b = Body()
    i = b.load("i64", (N,), at(0))
    b.store(b.load("f32", (M,), (Index(value=i),)), (N,), at(0))
    buffers = [np.array([0, 4]), np.arange(4, dtype=np.float32), np.empty(2, np.float32)]
    # the builder appends buffers in the order of the calls
    with pytest.raises(IndexError, match="index 4 is out of range for a dimension of size 4"):
        evaluate(b.nest(N), (2, 4), buffers)
    b = Body()
    i = b.load("i32", (N,), at(0))
    b.store(b.op("checked", i, i, dtype="i64", size=M), (N,), at(0))
    with pytest.raises(IndexError, match="index -1 is out of range for a dimension of size 4"):
        evaluate(b.nest(N), (2, 4), [np.array([3, -1], np.int32), np.empty(2, np.int64)])


@pytest.mark.parametrize("layout", ["rows", "panels"])
def test_matmul_with_an_epilogue(layout):
    rng = np.random.default_rng(1)
    n, k, panel = 21, 7, 16
    a, b, bias = (rng.standard_normal(s).astype(np.float32) for s in ((2, 5, k), (k, n), (n,)))
    packed = np.zeros((-(-n // panel) * panel, k), np.float32)
    packed[:n] = b.T
    panels = np.ascontiguousarray(packed.reshape(-1, panel, k).transpose(0, 2, 1))
    epilogue = (
        Instr("acc", "f32"),
        Instr("load", "f32", buffer=2, index=(Index(loop=2),)),
        Instr("add", "f32", (0, 1)),
        Instr("store", "f32", (2,), buffer=3, index=at(0, 1, 2)),
    )
    buffers = (
        Buffer("f32", (Dim(0), Dim(1), k)),
        Buffer("f32", (k, n) if layout == "rows" else panels.shape),
        Buffer("f32", (n,)),
        Buffer("f32", (Dim(0), Dim(1), n), True),
    )
    b_index = at(3, 2) if layout == "rows" else ()
    product = MatrixProduct((Dim(0),), Dim(1), n, k, 0, at(0, 1, 3), 1, b_index, layout, epilogue)
    spec = Matmul(2, buffers, product)
    out = np.empty((2, 5, n), np.float32)
    evaluate(spec, (2, 5), [a, b if layout == "rows" else panels, bias, out])
    np.testing.assert_allclose(out, a @ b + bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("safe", [False, True])
def test_attention_with_a_mask(safe):
    rng = np.random.default_rng(2)
    batch, heads, length, keys, d, v_dim = 2, 3, 5, 6, 4, 3
    q = rng.standard_normal((batch, length, heads, d)).astype(np.float32)
    k = rng.standard_normal((batch, keys, heads, d)).astype(np.float32)
    v = rng.standard_normal((batch, keys, heads, v_dim)).astype(np.float32)
    keep = rng.integers(0, 2, (batch, keys)).astype(bool)
    keep[0] = False
    body = (
        Instr("acc", "f32"),
        Instr("load", "bool", buffer=4, index=at(0, 3)),
        Instr("const", "f32", value="-inf"),
        Instr("select", "f32", (1, 0, 2)),
    )
    shapes = ((batch, length, heads, d), (batch, keys, heads, d), (batch, keys, heads, v_dim))
    buffers = (*(Buffer("f32", s) for s in shapes), Buffer("f32", (batch, length, heads, v_dim), True))
    place = at(0, 2, 1, 4)
    other = at(0, 3, 1, 4)
    extents = Extents((batch, heads), length, keys, d, v_dim)
    layout = Layout(0, 1, 2, 3, place, other, other, place)
    mask = Buffer("bool", (batch, keys))
    spec = Attention(0, (*buffers, mask), extents, layout, Softmax(0.5, safe, body))
    out = np.empty((batch, length, heads, v_dim), np.float32)
    evaluate(spec, (), [q, k, v, out, keep])
    tq, tk, tv = (torch.from_numpy(x).transpose(1, 2) for x in (q, k, v))
    score = (tq @ tk.transpose(-1, -2) * 0.5).masked_fill(
        ~torch.from_numpy(keep)[:, None, None, :], -torch.inf
    )
    want = (torch.softmax(score, -1) @ tv).transpose(1, 2).numpy()
    want = np.nan_to_num(want) if safe else want
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-6)
    assert np.isnan(out[0]).all() != safe
