"""Nests that read along the last loop and across it: blocks transposed in registers, edges one by one."""

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.concat.spec import Concat, Piece
from shapevm.jit.families.nest.asking import WITHOUT_ASKING
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.spec import Index, Nest

from ... import nests
from ...nests import Body, K, M, N, at
from .test_nest import HOST_TARGETS, random, run


def permuted(dtype: str = "f32") -> Nest:
    """[K, N, M] -> [K, M, N], as NCHW -> NHWC."""
    b = Body()
    b.store(b.load(dtype, (K, N, M), at(0, 2, 1)), (K, M, N), at(0, 1, 2))
    return b.nest(K, M, N, n_dims=3)


def added(dtype: str, n: int | object = N, m: int | object = M) -> Nest:
    """Twice x.t() + y, and a bias along the last loop."""
    b = Body()
    x, y = b.load(dtype, (m, n), at(1, 0)), b.load(dtype, (n, m), at(0, 1))
    z = b.load(dtype, (m, n), at(1, 0))
    bias = b.load(dtype, (m,), at(1))
    b.store(b.op("add", b.op("add", b.op("add", x, z), y), bias), (n, m), at(0, 1))
    return b.nest(n, m)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dims", [(16, 16), (64, 128), (1, 1), (0, 7), (17, 3), (47, 65), (131, 257)])
def test_transposed_copies_of_every_dtype(dims, dtype):
    x = random(dims[::-1], dtype, "x")
    np.testing.assert_array_equal(run(nests.transpose(dtype=dtype), dims, [x])[0], x.T)


#: (n, m) of a result: rows written are short, of no whole lines, fall on few sets; rows read fall on few sets
@pytest.mark.parametrize("dims", [(300, 96), (96, 50), (70, 256), (512, 196), (512, 784), (40, 400)])
@pytest.mark.parametrize("dtype", ["f32", "u8"])
def test_copies_that_ask_for_nothing(dims: tuple[int, int], dtype: str) -> None:
    """In another order of blocks, to which code of known sizes changes where rows lie as they should."""
    x = random(dims[::-1], dtype, "x")
    for exact in (dims, None):
        kernel = Kernel(compile_kernel(nests.transpose(dtype=dtype), exact, schedule=WITHOUT_ASKING))
        y = np.zeros(dims, x.dtype)
        kernel.run([x, y], dims)
        np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize(("k", "n", "m"), [(2, 64, 49), (3, 3, 100), (2, 100, 3), (1, 16, 200), (0, 16, 16)])
def test_channels_last_and_back(k, n, m):
    x = random((k, n, m), "f32", "x")
    np.testing.assert_array_equal(run(permuted(), (n, m, k), [x])[0], x.transpose(0, 2, 1))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i16", "u8"])
@pytest.mark.parametrize("dims", [(33, 40), (16, 64), (5, 70)])
def test_several_operands(dims, dtype):
    x, z = random(dims[::-1], dtype, "x"), random(dims[::-1], dtype, "z")
    y, bias = random(dims, dtype, "y"), random(dims[1:], dtype, "b")
    expected = x.T + z.T + y + bias
    np.testing.assert_allclose(run(added(dtype), dims, [x, y, z, bias])[0], expected, rtol=1e-5, atol=1e-5)


def test_strided_and_reversed_rows():
    b = Body()
    x = b.load("f32", (M, 3, N), at(Index(loop=1, scale=-1, offset=K), 2, Index(loop=0, offset=0)))
    y = b.load("f32", (100, N), at(Index(loop=1, scale=2, offset=1), 0))
    b.store(b.op("sub", x, y), (N, M, 3), at(0, 1, 2))
    x, y = random((37, 3, 33), "f32", "x"), random((100, 33), "f32", "y")
    found = run(b.nest(N, M, 3, n_dims=3), (33, 37, 36), [x, y])[0]
    np.testing.assert_array_equal(found, (x[::-1] - y[1:75:2, None]).transpose(2, 0, 1))


def test_a_piece_of_a_concatenation_is_transposed():
    b = Body()
    x = b.load("f32", (M, N), at(1, 0))
    b.store(x, (N, K), at(0, 1))
    spec = b.nest(N, M, n_dims=3)
    second = Body()
    second.buffers = [*b.buffers]
    y = second.load("f32", (N, M), at(0, 1))
    second.op("store", y, buffer=1, index=at(0, Index(loop=1, offset=M)))
    buffers = tuple(second.buffers)
    pieces = Piece(spec.domain, spec.body), Piece((N, M), tuple(second.instrs))
    x, y = random((40, 35), "f32", "x"), random((35, 40), "f32", "y")
    found = run(Concat(3, buffers, pieces), (35, 40, 80), [x, y])[0]
    np.testing.assert_array_equal(found, np.concatenate([x.T, y], 1))


def test_pieces_of_both_kinds_are_transposed():
    plain, halved = Body(), Body()
    plain.store(plain.load("f32", (33, 40), at(1, 0)), (40, 82), at(0, 1))
    halved.buffers = [*plain.buffers]
    x = halved.load("f32", (49, 40), at(1, 0))
    halved.op("store", halved.op("add", x, x), buffer=1, index=at(0, Index(loop=1, offset=33)))
    buffers = tuple(halved.buffers)
    pieces = Piece((40, 33), tuple(plain.instrs)), Piece((40, 49), tuple(halved.instrs))
    x, y = random((33, 40), "f32", "x"), random((49, 40), "f32", "y")
    for order in (pieces, pieces[::-1]):
        found = run(Concat(0, buffers, order), (), [x, y])[0]
        np.testing.assert_array_equal(found, np.concatenate([x.T, y.T + y.T], 1))


@pytest.mark.parametrize("shift", [0, 4])
@pytest.mark.parametrize(
    ("dtype", "dims"), [("f32", (1040, 1024)), ("f64", (520, 1032)), ("i32", (1056, 1001))]
)
def test_large_outputs_go_past_the_caches_where_lines_are_whole(dtype, dims, shift):
    x = random(dims[::-1], dtype, "x")
    for target, exact in [(t, e) for t in HOST_TARGETS for e in (dims, None)]:
        memory = np.zeros(x.nbytes + 128, np.uint8)
        start = -memory.ctypes.data % 64 + shift * DTYPES[dtype].bytes
        out = memory[start : start + x.nbytes].view(x.dtype).reshape(dims)
        kernel = Kernel(compile_kernel(nests.transpose(dtype=dtype), exact, target))
        kernel.run([x, out], dims, [(2, kernel.n_tiles(dims)), (0, 2)])
        np.testing.assert_array_equal(out, x.T)
        assert not memory[:start].any() and not memory[start + x.nbytes :].any()


def test_only_large_outputs_of_whole_lines_are_streamed():
    def is_streamed(dtype: str, dims: tuple[int, int] | None) -> bool:
        return "nontemporal" in compile_kernel(nests.transpose(dtype=dtype), dims, keep_ir=True).llvm_ir

    assert is_streamed("f32", (2048, 2048)) and is_streamed("f32", None)
    assert not is_streamed("f32", (64, 64)) and not is_streamed("u8", (4096, 4096))


@pytest.mark.parametrize("sizes", [(16, 16), (17, 31), (196, 65), (64, 49), (129, 200)])
def test_blocks_of_copies_overlap_at_the_edges(sizes):
    n, m = sizes
    x = random((m, n), "f32", "x")
    out = np.full((n * m + 64,), 7, np.float32)
    kernel = Kernel(compile_kernel(nests.transpose(), sizes))
    assert {"tiled-transpose", "overlapping"} <= set(kernel.code.variants) and kernel.code.work.scratch == ()
    for tile in reversed(range(kernel.n_tiles(sizes))):
        kernel.run([x, out[32:-32].reshape(n, m)], sizes, [(tile, tile + 1)])
    np.testing.assert_array_equal(out[32:-32].reshape(n, m), x.T)
    assert (out[:32] == 7).all() and (out[-32:] == 7).all()


def quantised(n: int, m: int, is_in_place: bool = False) -> Nest:
    """x.t() * factor in bytes; `is_in_place`: plus what an array of the result's shape holds."""
    b = Body()
    x, factor = b.load("f32", (m, n), at(1, 0)), b.load("f32", (m,), at(1))
    result = b.op("mul", x, factor)
    if is_in_place:
        result = b.op("add", result, b.load("f32", (n, m), at(0, 1)))
    b.store(b.op("cast", result, dtype="i32"), (n, m), at(0, 1))
    return b.nest(n, m, n_dims=0)


#: (n, m) and whether blocks overlap: so few rows or columns are left that they are done by themselves
@pytest.mark.parametrize(
    ("sizes", "overlaps"),
    [((56, 96), True), ((20, 31), True), ((17, 96), False), ((64, 50), False), ((14, 96), False)],
)
def test_blocks_with_a_body_overlap_at_the_edges(sizes: tuple[int, int], overlaps: bool) -> None:
    n, m = sizes
    x, factor = random((m, n), "f32", "x"), random((m,), "f32", "factor")
    out = np.full((n * m + 64,), 7, np.int32)
    kernel = Kernel(compile_kernel(quantised(n, m), ()))
    assert ("overlapping" in kernel.code.variants) == overlaps
    for tile in reversed(range(kernel.n_tiles(()))):
        kernel.run([x, factor, out[32:-32].reshape(n, m)], (), [(tile, tile + 1)])
    np.testing.assert_array_equal(out[32:-32].reshape(n, m), (x.T * factor).astype(np.int32))
    assert (out[:32] == 7).all() and (out[-32:] == 7).all()


def test_what_may_change_in_place_is_done_once() -> None:
    kernel = Kernel(compile_kernel(quantised(56, 96, is_in_place=True), ()))
    assert "overlapping" not in kernel.code.variants


@pytest.mark.parametrize(
    "place", [Index(loop=1, scale=2), Index(loop=1, scale=-1, offset=39), Index(loop=1, offset=3)]
)
def test_copies_into_strided_places(place):
    b = Body()
    x = b.load("f32", (40, 33), at(1, 0))
    b.store(x, (33, 79), at(0, place))
    x, out = random((40, 33), "f32", "x"), np.zeros((33, 79), np.float32)
    kernel = Kernel(compile_kernel(b.nest(33, 40, n_dims=0), ()))
    kernel.run([x, out], (), [(0, kernel.n_tiles(()))])
    expected = np.zeros_like(out)
    expected[:, [place.scale * i + place.offset for i in range(40)]] = x.T
    np.testing.assert_array_equal(out, expected)


def test_only_copies_of_sizes_known_to_be_large_overlap():
    plain = [(nests.transpose(), None), (nests.transpose(), (15, 64)), (nests.transpose(), (64, 15))]
    for spec, dims in [*plain, (added("f32"), (64, 64))]:
        assert "overlapping" not in compile_kernel(spec, dims).variants


def test_blocks_are_in_scratch_and_short_columns_need_none():
    assert compile_kernel(added("f32"), (64, 64)).work.scratch == ((2 * 256 * 4, ()),)
    assert compile_kernel(added("f32", n=3), (0, 64)).work.scratch == ()
