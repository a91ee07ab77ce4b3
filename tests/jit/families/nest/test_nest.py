"""Nests: right against numpy; exact, generic and any sharing of the tiles give the same bits."""

import zlib
from unittest import mock

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.llvm.target import TARGETS, find_target, host_target
from shapevm.jit.loops import nontemporal
from shapevm.jit.math.table import BY_TARGET
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import Index, Nest

from ... import nests
from ...nests import Body, M, N, at

HOST_TARGETS = [t for t in TARGETS if find_target(t).triple == find_target(host_target()).triple]
HOST_TARGETS = HOST_TARGETS[HOST_TARGETS.index(host_target()) :]  # the host's best and those below it
SIZES = [
    (0, 5),
    (5, 0),
    (1, 1),
    (3, 16),
    (7, 17),
    (13, 63),
    (4, 64),
    (5, 131),
    (31, 257),
    (2, 5003),
    (6000, 1),
]


def random(shape: tuple[int, ...], dtype: str, seed: str) -> np.ndarray:
    """Values spread around 0 (bf16: bits of such), the same for the same seed."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    kind = DTYPES[dtype].kind
    if dtype == "bf16":
        return (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if kind == "float":
        return rng.standard_normal(shape).astype(dtype.replace("f", "float"))
    return rng.integers(0 if kind != "int" else -50, 2 if kind == "bool" else 50, shape).astype(
        DTYPES[dtype].numpy
    )


def resolved(shape, dims):
    return tuple(dims[s.index] if isinstance(s, type(N)) else s for s in shape)


def partitions(n_tiles: int, seed: int):
    """All tiles at once, and in random parts, the last first."""
    cuts = sorted({0, n_tiles, *np.random.default_rng(seed).integers(0, n_tiles + 1, 4).tolist()})
    return [None, list(zip(cuts, cuts[1:], strict=False))[::-1]]


def run(spec: Nest, dims: tuple[int, ...], inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Run on every target the host has, exact and generic, tiles whole and shared out, and exact as outputs
    larger than the caches are written; return the outputs.

    All runs on one target must give the same bits, those on others too but for operations `BY_TARGET`, and
    nothing outside the outputs may be written.
    """
    results = []
    for target in HOST_TARGETS:
        bits = set()
        variants = [(dims, nontemporal.LEAST_BYTES), (None, nontemporal.LEAST_BYTES)]
        for exact, n_least in [*variants, (dims, 0)] if target == HOST_TARGETS[-1] else variants:
            with mock.patch.object(nontemporal, "LEAST_BYTES", n_least):
                kernel = Kernel(compile_kernel(spec, exact, target))
            for parts in partitions(kernel.n_tiles(dims), len(bits)):
                arrays, outputs, guards = [], [], []
                given = iter(inputs)
                for buffer in spec.buffers:
                    if not buffer.is_output:
                        arrays.append(np.ascontiguousarray(next(given)))
                        continue
                    shape = resolved(buffer.shape, dims)
                    guarded = np.full(int(np.prod(shape)) + 32, 7, DTYPES[buffer.dtype].numpy)
                    arrays.append(guarded[16:-16].reshape(shape))
                    outputs.append(arrays[-1])
                    guards += [guarded[:16], guarded[-16:]]
                kernel.run(arrays, dims, parts)
                assert all((g == g.dtype.type(7)).all() for g in guards)
                bits.add(b"".join(o.tobytes() for o in outputs))
        assert len(bits) == 1
        results.append(outputs)
    is_by_target = any(instr.op in BY_TARGET for instr in getattr(spec, "body", ()))  # some have none
    for outputs in results[1:]:
        for a, b in zip(outputs, results[0], strict=True):
            if is_by_target:
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
            else:
                np.testing.assert_array_equal(a, b)
    return results[0]


@pytest.mark.parametrize("dims", SIZES)
def test_bias_add(dims):
    x, bias = random(dims, "f32", "x"), random(dims[1:], "f32", "b")
    np.testing.assert_array_equal(run(nests.bias_add(), dims, [x, bias])[0], x + bias)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dims", [(3, 17), (40, 131)])
def test_copies_of_every_dtype(dims, dtype):
    x = random(dims, dtype, "x")
    np.testing.assert_array_equal(run(nests.copy(dtype=dtype), dims, [x])[0], x)
    y = random(dims[::-1], dtype, "y")
    np.testing.assert_array_equal(run(nests.transpose(dtype=dtype), dims, [y])[0], y.T)


@pytest.mark.parametrize("dims", [*SIZES, (257, 300)])
def test_transpose(dims):
    x = random(dims[::-1], "f32", "x")
    np.testing.assert_array_equal(run(nests.transpose(), dims, [x])[0], x.T)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dims", [(3, 17), (40, 131), (2, 1), (3, 0), (2, 64)])
def test_rows_read_and_written_backwards(dims, dtype):
    x, back = random(dims, dtype, "x"), Index(loop=1, scale=-1, offset=nests.K)
    read, written = Body(), Body()
    read.store(read.load(dtype, (N, M), at(0, back)), (N, M), at(0, 1))
    written.store(written.load(dtype, (N, M), at(0, 1)), (N, M), at(0, back))
    for body in (read, written):
        found = run(body.nest(N, M, n_dims=3), (*dims, max(dims[1] - 1, 0)), [x])[0]
        np.testing.assert_array_equal(found, x[:, ::-1])


@pytest.mark.parametrize("dims", [d for d in SIZES if 0 < d[1] < 10_000])
def test_softmax(dims):
    x = random(dims, "f32", "x") * 5
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(run(nests.softmax(), dims, [x])[0], e / e.sum(1, keepdims=True), rtol=4e-6)


def test_softmax_of_a_row_without_finite_scores_is_nan():
    x = np.full((2, 37), -np.inf, np.float32)
    assert np.isnan(run(nests.softmax(), (2, 37), [x])[0]).all()


@pytest.mark.parametrize(("n", "m"), [(0, 384), (1, 384), (7, 384), (128, 384), (5, 100), (3, 1), (2, 63)])
def test_layer_norm(n, m):
    x, weight, bias = random((n, m), "f32", "x"), random((m,), "f32", "w"), random((m,), "f32", "b")
    y = x.astype(np.float64)
    centred = y - y.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(run(nests.layer_norm(m=m), (n, 0), [x, weight, bias])[0], expected, atol=2e-6)


def lane_order_sum(x: np.ndarray) -> np.ndarray:
    """The sum of each row in the order that the family defines (`jit.families.nest.reduce`), in f64."""
    n, m = x.shape
    padded = np.zeros((n, -(-m // 1024) * 1024), x.dtype)
    padded[:, :m] = x
    total = np.zeros((n, 16))
    for block in padded.reshape(n, padded.shape[1] // 1024, 16, 4, 16).swapaxes(0, 1):
        lanes = np.zeros((n, 4, 16), x.dtype)
        for chunk in block.swapaxes(0, 1):
            lanes = lanes + chunk
        total += (lanes[:, 0] + lanes[:, 2]) + (lanes[:, 1] + lanes[:, 3])
    for half in (8, 4, 2, 1):
        total = total[:, :half] + total[:, half : 2 * half]
    return total[:, 0]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("dims", SIZES)
def test_sum_is_in_the_defined_order(dims, dtype):
    x = random(dims, dtype, "x")
    expected = lane_order_sum(x).astype(x.dtype)
    np.testing.assert_array_equal(run(nests.reduction("reduce.sum", dtype), dims, [x])[0], expected)


NUMPY = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all}
NUMBERS = ["f64", "f32", "i64", "i32", "i16", "i8", "u8"]
REDUCED = [(name, dtype) for name in ("sum", "prod", "max", "min") for dtype in NUMBERS]
REDUCED += [(name, "bool") for name in ("max", "min", "any", "all")]


@pytest.mark.parametrize(("name", "dtype"), REDUCED)
def test_reductions_of_every_dtype(name, dtype):
    for dims in [(3, 1), (5, 131), (2, 16), (1, 1000)]:
        x = random(dims, dtype, "x" + name)
        with np.errstate(over="ignore"):
            expected = NUMPY[name](x, axis=1).astype(x.dtype)
        if name in ("sum", "prod") and DTYPES[dtype].kind != "float":
            expected = NUMPY[name](x, axis=1, dtype=x.dtype)
        found = run(nests.reduction(f"reduce.{name}", dtype), dims, [x])[0]
        np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == "f32" else 1e-11, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_sums_accumulate_in_f32_and_round_once(dtype):
    x = random((4, 300), dtype, "x")
    wide = (x.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else x.astype(np.float32)
    total = lane_order_sum(wide).astype(np.float32)
    if dtype == "bf16":
        bits = total.view(np.uint32)
        expected = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    else:
        expected = total.astype(np.float16)
    np.testing.assert_array_equal(run(nests.reduction("reduce.sum", dtype), (4, 300), [x])[0], expected)


def test_empty_rows_give_the_neutral_element():
    for name, expected in (("sum", 0), ("prod", 1)):
        empty = np.zeros((3, 0), np.float32)
        found = run(nests.reduction(f"reduce.{name}", "f32"), (3, 0), [empty])[0]
        np.testing.assert_array_equal(found, np.full(3, expected, np.float32))


@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_propagate_nan_wherever_it_is(name):
    x = random((131, 131), "f32", "x")
    np.fill_diagonal(x, np.nan)
    assert np.isnan(run(nests.reduction(f"reduce.{name}", "f32"), (131, 131), [x])[0]).all()
    infinite = np.full((1, 5), -np.inf if name == "max" else np.inf, np.float32)
    np.testing.assert_array_equal(
        run(nests.reduction(f"reduce.{name}", "f32"), (1, 5), [infinite])[0], infinite[0, :1]
    )


@pytest.mark.parametrize("dims", [(3, 7), (9, 200)])
def test_mean_divides_by_the_size(dims):
    x = random(dims, "f32", "x")
    np.testing.assert_allclose(run(nests.mean(), dims, [x])[0], x.mean(1, dtype=np.float64), atol=1e-6)


def test_embedding_and_its_errors():
    table, ids = random((100, 384), "f32", "t"), np.array([0, 99, 5, 5, 17], np.int64)
    np.testing.assert_array_equal(run(nests.embedding(), (5, 0), [ids, table])[0], table[ids])
    for bad in (100, -1, 2**62):
        ids[3] = bad
        with pytest.raises(IndexError, match=f"index {bad} is out of range for a dimension of size 100"):
            run(nests.embedding(), (5, 0), [ids, table])


def test_gather_along_the_row_and_layer_norm_of_it():
    b = Body()
    i = b.load("i64", (N,), at(0))
    x = b.load("f32", (100, 384), at(Index(value=i), 1))
    j = b.load("i64", (384,), at(1))
    y = b.load("f32", (50,), at(Index(value=j)))
    z = b.op("add", x, y)
    b.store(b.op("sub", z, b.op("reduce.max", z)), (N, 384), at(0, 1))
    table, ids = random((100, 384), "f32", "t"), np.array([3, 99, 0], np.int64)
    places, short = np.random.default_rng(0).integers(0, 50, 384), random((50,), "f32", "s")
    expected = table[ids] + short[places]
    expected -= expected.max(1, keepdims=True)
    np.testing.assert_array_equal(run(b.nest(N, 384), (3, 0), [ids, table, places, short])[0], expected)


def test_mixed_dtypes_and_several_outputs():
    b = Body()
    x = b.load("f16", (N, M), at(0, 1))
    k = b.load("i32", (M,), at(1))
    keep = b.load("bool", (N, 1), at(0, None))
    wide = b.op("mul", b.op("cast", x, dtype="f64"), b.op("cast", k, dtype="f64"))
    chosen = b.op("select", keep, wide, b.const(-1.5, "f64"), dtype="f64")
    b.store(b.op("cast", chosen, dtype="f32"), (N, M), at(0, 1))
    b.store(b.op("lt", chosen, b.const(0, "f64"), dtype="bool"), (N, M), at(0, 1))
    b.store(b.op("add", b.op("iota", dtype="i64", loop=1), b.op("cast", k, dtype="i64")), (N, M), at(0, 1))
    for dims in [(0, 3), (3, 17), (5, 200), (1, 1)]:
        x, k = random(dims, "f16", "x"), random(dims[1:], "i32", "k")
        keep = random((dims[0], 1), "bool", "k")
        wide = np.where(keep, x.astype(np.float64) * k, -1.5)
        floats, negative, sums = run(b.nest(N, M), dims, [x, k, keep])
        np.testing.assert_array_equal(floats, wide.astype(np.float32))
        np.testing.assert_array_equal(negative, wide < 0)
        np.testing.assert_array_equal(sums, np.broadcast_to(np.arange(dims[1]) + k, dims))


@pytest.mark.parametrize("dims", [(2, 5), (3, 33), (1, 1), (0, 4), (4, 130)])
def test_permuted_sliced_and_reversed_views(dims):
    n, m = dims
    b = Body()
    x = b.load(
        "f32", (M, 7, N, 8), at(1, Index(loop=2, scale=2, offset=1), 0, Index(loop=3, scale=-1, offset=7))
    )
    y = b.load("f32", (N, 8), at(0, Index(loop=3)))
    b.store(b.op("add", x, y), (N, M, 3, 8), at(0, 1, 2, 3))
    x, y = random((m, 7, n, 8), "f32", "x"), random((n, 8), "f32", "y")
    expected = x[:, 1::2, :, ::-1].transpose(2, 0, 1, 3) + y[:, None, None]
    np.testing.assert_array_equal(run(b.nest(N, M, 3, 8), dims, [x, y])[0], expected)


def test_rows_over_several_outer_loops_with_a_strided_row():
    b = Body()
    x = b.load("f32", (N, M, 12), at(0, 2, Index(loop=1, scale=2)))
    total = b.op("reduce.sum", x)
    b.store(total, (N, 6), at(0, 1))
    b.store(b.op("sub", x, total), (N, 6, M), at(0, 1, 2))
    x = random((3, 37, 12), "f32", "x")
    sums, rest = run(b.nest(N, 6, M), (3, 37), [x])
    x = x[:, :, ::2]
    expected = lane_order_sum(x.swapaxes(1, 2).reshape(18, 37)).astype(np.float32).reshape(3, 6)
    np.testing.assert_array_equal(sums, expected)
    np.testing.assert_array_equal(rest, x.swapaxes(1, 2) - expected[..., None])


def test_no_loops_at_all():
    b = Body()
    x = b.load("f32", (), ())
    b.store(b.op("add", x, b.const(2.0)), (), ())
    assert run(b.nest(), (0, 0), [np.array(1.5, np.float32)])[0] == 3.5


def test_a_row_may_be_written_over_its_input():
    for exact in ((5, 100), None):
        kernel = Kernel(compile_kernel(nests.softmax(), exact))
        x = random((5, 100), "f32", "x")
        expected = np.zeros_like(x)
        kernel.run([x, expected], (5, 100))
        kernel.run([x, x], (5, 100))
        np.testing.assert_array_equal(x, expected)


def test_tiles_share_out_long_loops():
    assert Kernel(compile_kernel(nests.copy(), (1000, 1000))).n_tiles((1000, 1000)) > 100
    assert Kernel(compile_kernel(nests.layer_norm(), None)).n_tiles((128, 0)) > 8
    assert Kernel(compile_kernel(nests.transpose(), (256, 256))).n_tiles((256, 256)) == 16


def test_dear_values_are_kept_in_scratch():
    assert compile_kernel(nests.softmax(), (3, 100)).work.scratch == ((4, (100,)), (64, ()))
    assert compile_kernel(nests.layer_norm(), (3, 0)).work.scratch == ()


@pytest.mark.parametrize("dims", [(3, 17), (40, 100), (0, 4)])
def test_gelu(dims):
    x = random(dims, "f32", "x") * 3
    expected = [x, np.zeros_like(x)]
    evaluate(nests.gelu(), dims, expected)
    np.testing.assert_allclose(run(nests.gelu(), dims, [x])[0], expected[1], rtol=1e-5, atol=1e-6)


class RandomNest:
    """A nest with random loops, views, dtypes and operations, some of them over rows."""

    UNARY = ("neg", "abs", "sigmoid", "tanh", "exp", "sqrt", "floor")
    BINARY = ("add", "sub", "mul", "maximum", "minimum")

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.dims = tuple(int(self.rng.choice([0, 1, 2, 3, 7, 16, 17, 33, 64, 67])) for _ in range(2))
        sizes = [N, M, 1, 3, 5, 16, 20]
        self.domain = tuple(sizes[self.rng.integers(len(sizes))] for _ in range(self.rng.integers(1, 5)))
        self.row = len(self.domain) - 1
        self.b = Body()
        self.values: list[int] = []

    def pick(self, options):
        return options[self.rng.integers(len(options))]

    def load(self) -> None:
        """Load over some of the loops, in some order, as f32."""
        loops = [i for i in range(len(self.domain)) if self.rng.random() < 0.8]
        if self.rng.random() < 0.3:
            self.rng.shuffle(loops)
        shape, index = [], []
        for loop in loops:
            size, offset = self.domain[loop], int(self.rng.integers(3)) if self.rng.random() < 0.2 else 0
            static = isinstance(size, int)
            shape.append(size + offset if static else size)
            index.append(Index(loop=int(loop), offset=offset if static else 0))
        if self.rng.random() < 0.2:
            place = int(self.rng.integers(len(shape) + 1))
            shape.insert(place, 1)
            index.insert(place, Index())
        dtype = self.pick(["f32", "f32", "f32", "f64", "f16", "bf16", "i32", "u8", "bool"])
        value = self.b.load(dtype, tuple(shape), tuple(index))
        self.values.append(value if dtype == "f32" else self.b.op("cast", value, dtype="f32"))

    def operate(self) -> None:
        """Combine values; exp and sqrt see bounded, non-negative arguments."""
        kind = self.rng.random()
        a = self.pick(self.values)
        if kind < 0.4:
            name = self.pick(self.UNARY)
            if name in ("exp", "sqrt"):
                a = self.b.op("sigmoid", a)
            self.values.append(self.b.op(name, a))
        elif kind < 0.8:
            self.values.append(self.b.op(self.pick(self.BINARY), a, self.pick(self.values)))
        elif kind < 0.9:
            smaller = self.b.op("lt", a, self.pick(self.values), dtype="bool")
            self.values.append(self.b.op("select", smaller, a, self.b.const(0.25), dtype="f32"))
        else:
            self.values.append(self.b.op("cast", self.b.op("iota", dtype="i64", loop=self.row), dtype="f32"))

    def reduce(self) -> None:
        """Reduce a value that is made small; from its rows go on."""
        name = self.pick(["sum", "sum", "prod", "max", "min"])
        total = self.b.op(f"reduce.{name}", self.b.op("sigmoid", self.pick(self.values)))
        self.b.store(total, self.domain[:-1], at(*range(self.row)))
        self.values.append(total)

    def build(self) -> Nest:
        n_reductions = (
            int(self.rng.integers(0, 3)) if self.domain[-1] not in (N, M) or min(self.dims) > 0 else 0
        )
        for _ in range(int(self.rng.integers(1, 4))):
            self.load()
        for step in range(int(self.rng.integers(1, 8))):
            self.operate()
            if step < n_reductions:
                self.reduce()
        shape, index = self.domain, at(*range(len(self.domain)))
        self.b.store(self.values[-1], shape, index)
        return self.b.nest(*self.domain)


@pytest.mark.parametrize("seed", range(60))
def test_random_nests_against_the_reference(seed):
    case = RandomNest(seed)
    spec = case.build()
    shapes = [resolved(b.shape, case.dims) for b in spec.buffers]
    arrays = [
        random(s, b.dtype, f"{seed} {i}") for i, (s, b) in enumerate(zip(shapes, spec.buffers, strict=True))
    ]
    found = run(spec, case.dims, [a for a, b in zip(arrays, spec.buffers, strict=True) if not b.is_output])
    evaluate(spec, case.dims, arrays)
    expected = [a for a, b in zip(arrays, spec.buffers, strict=True) if b.is_output]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)
