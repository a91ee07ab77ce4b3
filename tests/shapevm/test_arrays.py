"""Arrays in and out through the public interface: dtypes, layouts, sizes, no copies, nothing shared."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.export import Dim

import shapevm

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTS = ("int64", "int32", "int16", "int8", "uint8")
N = Dim("n", min=0)
SIZES = (0, 1, 2, 3, 16, 17, 31, 257)


def values(dtype: str, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    if dtype in FLOATS:
        return torch.randn(*shape, generator=generator).to(getattr(torch, dtype))
    return torch.randint(0, 2 if dtype == "bool" else 100, shape, generator=generator).to(
        getattr(torch, dtype)
    )


def arithmetic(self, x):
    return x * 2 + x, (x.to(torch.float32) + 0.5).to(x.dtype), x.sum(-1), x.amax(-1), x > 1, x.transpose(0, 1)


@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_every_dtype_is_exactly_eagers(build, dtype):
    exe = build(arithmetic, values(dtype, 3, 5), dynamic_shapes={"x": {0: N}})
    for n in SIZES:
        x = values(dtype, n, 5)
        for _ in range(2):
            for ours, theirs in zip(exe(x), arithmetic(None, x), strict=True):
                assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
                torch.testing.assert_close(ours, theirs)


def test_bool(build):
    def logic(self, x, y):
        return x & y, x | ~y, x ^ y, x.any(), x.all(-1), x.to(torch.int32) + 1

    exe = build(logic, values("bool", 3, 4), values("bool", 4), dynamic_shapes={"x": {0: N}, "y": None})
    for n in SIZES:
        x, y = values("bool", n, 4), values("bool", 4)
        for ours, theirs in zip(exe(x, y), logic(None, x, y), strict=True):
            assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", FLOATS + INTS + ("bool",))
def test_numpy_callers_get_the_same_bits(build, dtype):
    exe = build(lambda self, x: (x, x.to(torch.float32) * 2), values(dtype, 3), dynamic_shapes={"x": {0: N}})
    x = values(dtype, 19)
    array = x.view(torch.uint16).numpy() if dtype == "bfloat16" else x.numpy()  # numpy has no bf16
    for _ in range(3):
        same, double = exe(array)
        assert isinstance(same, np.ndarray) and same.dtype == array.dtype and double.dtype == np.float32
        np.testing.assert_array_equal(same, array)
        np.testing.assert_array_equal(double, exe(x)[1].numpy())


@pytest.fixture(scope="module")
def affine(module):
    model = module(lambda self, x: x * 2 + 1)
    rows, columns = Dim("rows", min=0), Dim("columns", min=0)
    with shapevm.compile(
        model, (values("float32", 3, 4),), dynamic_shapes={"x": {0: rows, 1: columns}}
    ) as exe:
        yield exe


LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
    "every second row": lambda x: torch.stack([x, x * 0], 1).reshape(-1, x.shape[1])[::2],
    "every second column": lambda x: torch.stack([x, x * 0], 2).reshape(x.shape[0], -1)[:, ::2],
    "inside of a larger one": lambda x: torch.nn.functional.pad(x, (2, 3, 1, 1))[1:-1, 2:-3],
    "expanded row": lambda x: x[:1].expand_as(x),
    "expanded column": lambda x: x[:, :1].expand_as(x),
    "expanded element": lambda x: x[:1, :1].expand_as(x),
    "offset by an element": lambda x: torch.cat([torch.zeros(1), x.reshape(-1)])[1:].view_as(x),
    "requires grad": lambda x: x.clone().requires_grad_(),
    "parameter": torch.nn.Parameter,
    "lazily negated and contiguous": lambda x: torch._neg_view(-x),
    "lazily negated": lambda x: torch.view_as_complex(torch.stack([x, x], -1)).conj().imag,
    "inference tensor": lambda x: torch.inference_mode()(x.clone)(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_torch_layouts(affine, layout):
    for shape in ((3, 4), (1, 1), (1, 7), (7, 1), (16, 16), (13, 17)):
        x = LAYOUTS[layout](values("float32", *shape))
        before = x.detach().clone()
        for _ in range(3):
            result = affine(x)
            assert result.is_contiguous() and not result.requires_grad and type(result) is torch.Tensor
            torch.testing.assert_close(result, before * 2 + 1)
            torch.testing.assert_close(affine(before), before * 2 + 1)  # the same key, another layout
        assert torch.equal(x.detach(), before)


NUMPY_LAYOUTS = {
    "contiguous": lambda x: x,
    "Fortran": np.asfortranarray,
    "reversed rows": lambda x: x[::-1].copy()[::-1],
    "reversed columns": lambda x: x[:, ::-1].copy()[:, ::-1],
    "strided": lambda x: np.repeat(x, 3, 1)[:, ::3],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "read only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "misaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    "big-endian": lambda x: x.astype(">f4"),
    "in a file": None,
}


@pytest.mark.parametrize("layout", NUMPY_LAYOUTS)
def test_numpy_layouts(affine, layout, tmp_path):
    for shape in ((3, 4), (1, 1), (1, 7), (7, 1), (13, 17)):
        plain = values("float32", *shape).numpy()
        if layout == "in a file":
            np.save(tmp_path / "x.npy", plain)
            x = np.load(tmp_path / "x.npy", mmap_mode="r")
        else:
            x = NUMPY_LAYOUTS[layout](plain)
        for _ in range(3):
            np.testing.assert_array_equal(affine(x), np.asarray(x, "<f4") * 2 + 1)
            np.testing.assert_array_equal(affine(plain), plain * 2 + 1)


@pytest.mark.parametrize(
    "shape", [(0, 4), (4, 0), (0, 0), (1, 1), (1, 4), (101, 1), (1, 1_048_583), (1021, 1031)]
)
def test_sizes(affine, shape):
    x = values("float32", *shape)
    for _ in range(2):
        torch.testing.assert_close(affine(x), x * 2 + 1)
        np.testing.assert_array_equal(affine(x.numpy()), (x * 2 + 1).numpy())


def test_no_dimensions(build):
    exe = build(lambda self, x, y: (x + 1, x.sum(), x.reshape(1), x * y), torch.tensor(3.0), torch.randn(2))
    for value in (3.0, -1.5):
        x, y = torch.tensor(value), values("float32", 2)
        for _ in range(3):
            for ours, theirs in zip(exe(x, y), (x + 1, x, x.reshape(1), x * y), strict=True):
                assert ours.shape == theirs.shape and torch.equal(ours, theirs)
        assert exe(np.float32(value), y.numpy())[0] == value + 1  # numpy's scalars are arrays


def test_buffers_that_are_lazily_negated(build, module):
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        model, x = module(lambda self, x: x + self.negated), torch.arange(3).to(dtype)
        model.register_buffer("negated", torch._neg_view(torch.arange(3).to(dtype)))
        assert torch.equal(build(model, x)(x), model(x))


def nothing(self):
    whole = torch.arange(3)
    return whole, whole.to(torch.bfloat16) / 3, {"rows": whole.shape[0]}


def test_without_arguments_results_are_torchs(build, tmp_path):
    exe = build(nothing)
    exe.save(tmp_path / "nothing.svm")
    with shapevm.load(tmp_path / "nothing.svm") as loaded:
        for program in (exe, loaded, exe.using("generic")):
            for _ in range(3):  # warm calls too
                torch.testing.assert_close(program(), nothing(None))
        assert all(isinstance(value, torch.Tensor) for value in list(loaded.run({}).values())[:2])


def test_state_alone_is_no_array_of_the_callers(build, module):
    def count(self):
        self.calls += 1
        return self.calls * 2

    model = module(count)
    model.register_buffer("calls", torch.zeros(2, dtype=torch.bfloat16))
    exe = build(model)
    for i in range(1, 5):
        assert torch.equal(exe(), torch.full((2,), 2 * i, dtype=torch.bfloat16))
    assert exe.state()["calls"].dtype == np.uint16
    exe.reset_state()
    assert exe()[0] == 2


def test_without_arguments_and_torch_results_are_numpys(build, tmp_path):
    build(lambda self: torch.arange(3) * 2).save(tmp_path / "nothing.svm")
    script = """
import sys, shapevm
result = shapevm.load(sys.argv[1])()
assert "torch" not in sys.modules and type(result).__module__ == "numpy" and result.tolist() == [0, 2, 4]
"""
    subprocess.run([sys.executable, "-c", script, tmp_path / "nothing.svm"], check=True, timeout=60)


def test_other_libraries_come_in_through_dlpack(affine):
    class Foreign:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    x = values("float32", 3, 4)
    np.testing.assert_array_equal(affine(Foreign(x)), (x * 2 + 1).numpy())


# Memory ---------------------------------------------------------------------------------------------


def test_inputs_are_read_where_they_are(affine):
    """16 MiB go in and out without a copy: the peak grows by the result alone."""
    import tracemalloc

    x = np.ones((2048, 2048), np.float32)
    affine(x)
    tracemalloc.start()
    result = affine(x)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.nbytes <= peak < result.nbytes * 1.1


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_results_are_never_overwritten(affine, library):
    give = (lambda t: t) if library == "torch" else (lambda t: t.numpy())
    results = [affine(give(torch.full((40, 50), float(i)))) for i in range(20)]
    for i, result in enumerate(results):
        assert (result == i * 2 + 1).all()
    assert len({r.data_ptr() if library == "torch" else r.ctypes.data for r in results}) == 20


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_no_result_shares_memory(build, library):
    def forward(self, x):
        y = x + 1
        return y, y, y[:2], y.t(), x, x[1:], y.reshape(-1), self.weight, self.weight

    model = type("Model", (torch.nn.Module,), {"forward": forward})()
    model.register_buffer("weight", torch.arange(6.0))
    exe = build(model, values("float32", 3, 4))
    give = (lambda t: t.clone()) if library == "torch" else (lambda t: t.numpy().copy())
    for _ in range(3):
        x = give(values("float32", 3, 4))
        results = [x, *exe(x)]
        spans = [memoryview(np.asarray(r).reshape(-1)) for r in results]
        starts = [np.asarray(span).ctypes.data for span in spans]
        ends = [start + span.nbytes for start, span in zip(starts, spans, strict=True)]
        for i in range(len(results)):
            for j in range(i):
                assert ends[j] <= starts[i] or ends[i] <= starts[j], (i, j)
        for result in results[1:]:
            result[:] = 0
        assert (exe(give(values("float32", 3, 4)))[7] == give(torch.arange(6.0))).all()


def test_results_outlive_the_executable(module):
    exe = shapevm.compile(module(lambda self, x: (x + 1, self is not None)), (values("float32", 1000),))
    result, _ = exe(values("float32", 1000))
    exe.close()
    del exe
    assert torch.equal(result, values("float32", 1000) + 1)


# What is no array for the program -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (torch.ones(3, 4).double(), shapevm.DtypeError, 'input "x" is f64; the program takes f32'),
        (np.ones((3, 4), np.float64), shapevm.DtypeError, 'input "x" is f64; the program takes f32'),
        (torch.ones(3, 4, dtype=torch.complex64), shapevm.DtypeError, 'input "x" is torch.complex64'),
        (np.ones((3, 4), np.complex64), shapevm.DtypeError, 'input "x" is complex64'),
        (np.array([["a"]]), shapevm.DtypeError, 'input "x" is <U1'),
        (np.array([[None]]), shapevm.DtypeError, 'input "x" is object'),
        (torch.ones(3), shapevm.ShapeError, 'input "x" has rank 1, sizes [3]; the program takes rank 2'),
        (torch.ones(1, 3, 4), shapevm.ShapeError, 'input "x" has rank 3'),
        (torch.ones((1,) * 20), shapevm.Error, "rank 20"),
        (torch.ones(3, 4, device="meta"), shapevm.Error, 'input "x" is on meta; the program runs on the CPU'),
        (torch.ones(3, 4).to_sparse(), TypeError, 'input "x" has layout torch.sparse_coo; pass .to_dense()'),
        ([[1.0, "2"]], TypeError, 'input "x" is a list; the program takes a tensor'),
        (None, TypeError, 'input "x" is None; the program takes a tensor'),
    ],
)  # fmt: skip
def test_wrong_arrays(affine, x, error, words):
    for _ in range(2):
        with pytest.raises(error) as caught:
            affine(x)
        assert words in str(caught.value) and "\n" not in str(caught.value)
    torch.testing.assert_close(affine(torch.ones(3, 4)), torch.full((3, 4), 3.0))


class Encoder(torch.nn.Module):
    """Attention with a mask, and what stands beside it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x, mask):
        heads = [t.unflatten(-1, (4, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)]
        attended = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask[:, None, None])
        attended = attended.transpose(1, 2).flatten(2)
        return torch.nn.functional.gelu(self.norm(x + self.out(attended))), attended.amax(1)


TOLERANCES = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 6e-2}


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_an_encoder_layer_in_every_float(build, dtype):
    def inputs(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        mask = torch.ones(batch, length, dtype=torch.bool)
        mask[:, (length + 1) // 2 :] = False
        return values(dtype, batch, length, 16), mask

    model = Encoder().to(getattr(torch, dtype)).eval()
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=1, max=512)
    exe = build(model, *inputs(3, 7), dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length}))
    for shape in ((3, 7), (1, 1), (1, 16), (2, 33), (5, 64), (64, 2)):
        with torch.no_grad():
            expected = model(*inputs(*shape))
        for _ in range(2):
            for ours, theirs in zip(exe(*inputs(*shape)), expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", ["float64", *INTS])
def test_products_in_other_dtypes(build, dtype):
    def forward(self, x, y):
        return x @ y, x.transpose(0, 1) @ x, x @ y[:, 0]

    exe = build(forward, values(dtype, 3, 5), values(dtype, 5, 4), dynamic_shapes=({0: N}, None))
    for n in (0, 1, 3, 17, 64):
        x, y = values(dtype, n, 5), values(dtype, 5, 4)
        for ours, theirs in zip(exe(x, y), forward(None, x, y), strict=True):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            torch.testing.assert_close(ours, theirs)


# Numbers and objects that become arrays -------------------------------------------------------------


class Wrapped:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_lists_and_objects_with_an_array(build):
    exe = build(lambda self, x, i: (x * 2, i + 1), torch.ones(2, 3), torch.ones(2, dtype=torch.int32),
                dynamic_shapes=({0: N}, None))  # fmt: skip
    i = np.array([3, 4], np.int32)
    wrapped = Wrapped(np.array([[1, 2, 3]], np.float32))
    for x in ([[1, 2, 3]], [[True, 2, 3.0]], ((1.0, 2.0, 3.0),), wrapped):
        double, more = exe(x, i)
        assert double.dtype == np.float32 and double.tolist() == [[2, 4, 6]] and more.tolist() == [4, 5]
    double, more = exe(np.zeros((0, 3), np.float32), [5, -7])
    assert double.shape == (0, 3) and more.dtype == np.int32 and more.tolist() == [6, -6]
    for bad in ([1.5, 2.0], [1, 2**31], [1, 2**70]):
        with pytest.raises(TypeError, match='input "i" is a list of .* that i32 cannot hold'):
            exe(np.zeros((1, 3), np.float32), bad)
    with pytest.raises(shapevm.DtypeError, match='input "x" is f64; the program takes f32'):
        exe(Wrapped(np.ones((1, 3))), i)


def test_artifacts_are_loaded_from_bytes(build, tmp_path):
    exe = build(lambda self, x: x * 2, torch.ones(3), dynamic_shapes=({0: N},))
    exe.save(tmp_path / "model.svm")
    content = (tmp_path / "model.svm").read_bytes()
    for given in (content, bytearray(content), memoryview(content)):
        with shapevm.load(given) as loaded:
            assert loaded(np.ones(5, np.float32)).tolist() == [2] * 5
    with shapevm.load(content, digest=shapevm.program.trust.digest(tmp_path / "model.svm")) as loaded:
        loaded.save(tmp_path / "again.svm")
    assert (tmp_path / "again.svm").read_bytes() == content
    with pytest.raises(shapevm.ArtifactError, match="it has .* bytes"):
        shapevm.load(content[:-1])
    with pytest.raises(shapevm.ArgumentError, match="bytes have no signature"):
        shapevm.load(content, trust=b"key")
