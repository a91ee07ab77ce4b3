"""Winograd's layouts of the Conv family: equal bits from every tier and target, close to the definition."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import NOTHING_PREPARED, Kernel
from shapevm.jit.families.conv.spec import Conv, Window
from shapevm.jit.families.conv.winograd import is_small
from shapevm.jit.families.conv.winograd_points import TAPS, TILE, transforms
from shapevm.jit.families.matmul.layouts import LAYOUTS, WINOGRAD
from shapevm.jit.families.matmul.spec import MatrixProduct
from shapevm.jit.llvm.function import Function
from shapevm.jit.reference import evaluate

from ...tiers import all_equal, by_target, check_tiers

N, H, W, OUT_H, OUT_W, ROWS = (s.Dim(i) for i in range(6))
#: (images, height, width, padding): sides 1 to prime, no images, many tiles, more padding than image
SIZES = (
    (2, 5, 7, 1), (1, 1, 1, 1), (0, 4, 4, 1), (3, 17, 4, 1), (1, 29, 31, 1), (2, 6, 5, 0), (1, 2, 3, 2),
    (1, 8, 8, 1), (60, 3, 5, 1), (7, 13, 2, 1), (2, 16, 12, 0),
)  # fmt: skip


def conv(c: int, f: int, low: int = 1, joined: bool = True) -> Conv:
    """relu(conv(x) + bias) of images [N, H, W, C]; `joined`: rows are one loop, not three."""
    rows: tuple[s.Size, ...] = (ROWS,) if joined else (N, OUT_H, OUT_W)
    loops = tuple(s.Index(loop=i) for i in range(len(rows) + 1))
    buffers = (
        s.Buffer("f32", (N, H, W, c)),
        s.Buffer("f32", (-(-f // 32), 9 * c, 32)),
        s.Buffer("f32", (f,)),
        s.Buffer("f32", (*rows, f), is_output=True),
    )
    epilogue = (
        s.Instr("acc", "f32"),
        s.Instr("load", "f32", buffer=2, index=loops[-1:]),
        s.Instr("add", "f32", (0, 1)),
        s.Instr("const", "f32", value=0.0),
        s.Instr("maximum", "f32", (2, 3)),
        s.Instr("store", "f32", (4,), buffer=3, index=loops),
    )
    ones = (1, 1)
    window = Window((OUT_H, OUT_W), (3, 3), ones, ones, ones, (low, low))
    batch, m = rows[:-1], rows[-1]
    return Conv(
        6, buffers, MatrixProduct(batch, m, f, 9 * c, 0, (), 1, (), WINOGRAD, epilogue), window=window
    )


def dims_of(n: int, h: int, w: int, low: int) -> tuple[int, ...]:
    down, along = h + 2 * low - 2, w + 2 * low - 2
    return (n, h, w, down, along, n * down * along)


def arrays(spec: Conv, dims: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [[dims[x.index] if isinstance(x, s.Dim) else x for x in b.shape] for b in spec.buffers]
    buffers = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    weight = rng.standard_normal((spec.product.k, spec.product.n)).astype(np.float32)  # type: ignore[call-overload]
    buffers[1] = LAYOUTS[WINOGRAD].pack(weight)
    buffers[3][...] = np.nan
    return buffers


def test_transforms_give_the_convolution() -> None:
    t, rng = transforms(), np.random.default_rng(0)
    x, w = rng.standard_normal(TILE + 2), rng.standard_normal(TAPS)
    np.testing.assert_allclose(t.outputs @ ((t.pixels @ x) * (t.taps @ w)), np.correlate(x, w), rtol=1e-12)
    assert np.array_equal(t.pixels, t.pixels.astype(np.float32))  # exact in f32
    assert np.array_equal(t.outputs, t.outputs.astype(np.float32))


@pytest.mark.parametrize(("channels", "columns"), [(32, 37), (96, 70)])
def test_generic_and_exact_agree_with_the_definition_and_each_other(channels: int, columns: int) -> None:
    for low in (0, 1, 2):
        spec = conv(channels, columns, low)
        sizes = [dims_of(*size) for size in SIZES if size[3] == low]
        check_tiers(spec, sizes, arrays, 3, rtol=5e-5, atol=4e-4)


@pytest.mark.parametrize("channels", [64, 128])
def test_the_error_is_three_times_that_of_a_convolution_by_taps(channels: int) -> None:
    spec, dims = conv(channels, 32), dims_of(1, 28, 28, 1)
    buffers = arrays(spec, dims)
    Kernel(compile_kernel(spec, None)).run(buffers, dims)
    image, panels, bias = (x.astype(np.float64) for x in buffers[:3])
    taps = panels.reshape(channels, TAPS, TAPS, 32)
    framed = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = sum(framed[0, i : i + 28, j : j + 28] @ taps[:, i, j] for i in range(TAPS) for j in range(TAPS))
    wanted = np.maximum(wanted + bias, 0).reshape(-1, 32)
    error = np.sqrt(((buffers[3].reshape(-1, 32) - wanted) ** 2).mean() / (wanted**2).mean())
    assert error < 3 * 2.3e-7  # by taps, PyTorch's: 2.3e-7


@pytest.mark.parametrize("sides", [(9, 6), (12, 12)])
def test_loops_that_are_not_joined_give_the_same_bits(sides: tuple[int, int]) -> None:
    dims = dims_of(2, *sides, 1)
    results = []
    for joined in (True, False):
        spec = conv(16, 40, joined=joined)
        for key in (None, dims):
            buffers = arrays(spec, dims)
            Kernel(compile_kernel(spec, key)).run(buffers, dims)
            results.append(buffers[3])
    assert all_equal(results)


@pytest.mark.parametrize("side", [5, 12])
def test_targets_and_schedules_agree(side: int) -> None:
    assert all_equal(by_target(conv(16, 70), dims_of(2, side, side, 1), arrays, 3))


@pytest.mark.parametrize(("side", "counts"), [(5, (0, 1, 30)), (6, (1, 3, 20)), (10, (1, 2, 7))])
def test_any_number_of_images_of_known_size(side: int, counts: tuple[int, ...]) -> None:
    """Code of any size has both ways and shares out the rows of small images."""
    spec = conv(64, 36, joined=False)
    area = side * side
    buffers = (
        s.Buffer("f32", (N, side, side, 64)),
        *spec.buffers[1:3],
        s.Buffer("f32", (N, area, 36), is_output=True),
    )
    store = dataclasses.replace(spec.product.epilogue[-1], index=tuple(s.Index(loop=i) for i in range(3)))
    load = dataclasses.replace(spec.product.epilogue[1], index=(s.Index(loop=2),))
    epilogue = (spec.product.epilogue[0], load, *spec.product.epilogue[2:-1], store)
    window = dataclasses.replace(spec.window, out=(side, side))
    spec = dataclasses.replace(spec, n_dims=1, buffers=buffers, window=window).with_product(
        batch=(N,), m=area, epilogue=epilogue
    )
    check_tiers(spec, [(n,) for n in counts], arrays, 3, rtol=5e-5, atol=4e-4)


def static(n: int, side: int, c: int = 16, f: int = 32) -> Conv:
    """The convolution of `n` images of a fixed side."""
    spec, area = conv(c, f), side * side
    shapes = [(n, side, side, c), *(b.shape for b in spec.buffers[1:3]), (n * area, f)]
    buffers = [dataclasses.replace(b, shape=x) for b, x in zip(spec.buffers, shapes, strict=True)]
    window = dataclasses.replace(spec.window, out=(side, side))
    return dataclasses.replace(spec, n_dims=0, buffers=tuple(buffers), window=window).with_product(m=n * area)


def test_small_images_go_by_taps() -> None:
    """Their number counts where the spec fixes it; else one image decides for all."""
    f, spec = Function("kernel", []), conv(16, 32)
    for n, side, wanted in ((1, 7, True), (1, 8, False), (1, 9, True), (1, 14, False), (4, 7, False)):
        assert is_small(f, static(n, side), ()) is wanted
    for side, wanted in ((3, True), (5, True), (6, False), (7, False), (9, False)):
        assert {is_small(f, spec, dims_of(n, side, side, 1)) for n in (1, 2, 4, 60)} == {wanted}


def test_rows_sorted_by_their_side_of_the_image_have_the_same_bits() -> None:
    """Exact code sorts the rows of small images and leaves out taps, generic code does not."""
    sizes = [
        dims_of(*size) for size in ((1, 5, 5, 1), (3, 4, 5, 1), (2, 1, 5, 1), (1, 3, 1, 2), (60, 3, 5, 1))
    ]
    for low in (1, 2):
        check_tiers(conv(64, 70, low), [dims_of(*d[:3], low) for d in sizes], arrays, 3, rtol=5e-5, atol=4e-4)
    for n in (64, 70):  # whole panels of any register tile, and a part of one
        assert all_equal(by_target(static(1, 7, 64, n), (), arrays, 3))
    spec, buffers, rows = static(1, 7, 64, 70), arrays(static(1, 7, 64, 70), ()), conv(64, 70)
    Kernel(compile_kernel(spec, ())).run(buffers, ())
    rows = dataclasses.replace(rows, buffers=(s.Buffer("f32", (1, H, W, 64)), *rows.buffers[1:]))
    others = arrays(rows, dims_of(1, 7, 7, 1))
    Kernel(compile_kernel(rows, None)).run(others, dims_of(1, 7, 7, 1))
    assert buffers[3].tobytes() == others[3].tobytes()


@pytest.mark.parametrize(("stride", "dilation"), [((2, 2), (1, 1)), ((1, 3), (2, 1)), ((1, 1), (4, 4))])
def test_other_windows_go_by_taps(stride: tuple[int, int], dilation: tuple[int, int]) -> None:
    spec, sizes = conv(64, 70), []
    window = dataclasses.replace(spec.window, stride=stride, dilation=dilation, low=(4, 3))
    spec = dataclasses.replace(spec, window=window)
    for n, h, w in ((1, 14, 14), (3, 5, 4), (1, 1, 2), (2, 20, 23)):
        axes = zip((h, w), window.low, dilation, stride, strict=True)
        down, along = ((size + 2 * low - 2 * d - 1) // step + 1 for size, low, d, step in axes)
        sizes.append((n, h, w, down, along, n * down * along))
    check_tiers(spec, [dims for dims in sizes if min(dims) > 0], arrays, 3, rtol=5e-5, atol=4e-4)
    assert all_equal(by_target(spec, sizes[0], arrays, 3))


@pytest.mark.parametrize("side", [3, 5, 6, 7, 9, 13])
def test_an_image_has_the_same_bits_in_any_batch(side: int) -> None:
    spec, dims = conv(32, 40), dims_of(7, side, side, 1)
    whole = arrays(spec, dims)
    Kernel(compile_kernel(spec, None)).run(whole, dims)
    rows = whole[3].reshape(7, -1, 40)
    for batch in ([3], [6, 0], [5, 1, 1, 4]):
        found = dims_of(len(batch), side, side, 1)
        some = [whole[0][batch], *whole[1:3], arrays(spec, found)[3]]
        Kernel(compile_kernel(spec, found)).run(some, found)
        assert some[3].reshape(len(batch), -1, 40).tobytes() == rows[batch].tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -3e38])
def test_what_is_not_finite_reaches_the_outputs_that_see_it_only(value: float) -> None:
    spec, dims = conv(16, 40), dims_of(2, 11, 9, 1)
    wanted, found = arrays(spec, dims), arrays(spec, dims)
    for buffers in (wanted, found):
        buffers[0][1, 4, 5, 3] = value
    with np.errstate(invalid="ignore", over="ignore"):
        evaluate(spec, dims, wanted)
    Kernel(compile_kernel(spec, dims)).run(found, dims)
    sees = np.zeros((2, 11, 9), bool)
    sees[1, 3:6, 4:7] = True
    apart = ~sees.ravel()
    assert np.isfinite(found[3][apart]).all()
    np.testing.assert_allclose(found[3], wanted[3], rtol=5e-5, atol=2e-4)


def test_error_is_near_that_of_the_sum() -> None:
    """Of the sum of |x w|: 3e-7 is what a chain of FMAs has over 576 products."""
    spec, dims = conv(64, 32), dims_of(1, 12, 12, 1)
    buffers, magnitude, wanted = (arrays(spec, dims) for _ in range(3))
    weight = np.random.default_rng(1).standard_normal((576, 32)).astype(np.float32)
    for x, given in ((buffers, weight), (wanted, weight), (magnitude, np.abs(weight))):
        x[1], x[2][...] = LAYOUTS[WINOGRAD].pack(given), 0
    magnitude[0][...] = np.abs(magnitude[0])
    for x in (wanted, magnitude):
        evaluate(spec, dims, x)
    Kernel(compile_kernel(spec, dims)).run(buffers, dims)
    assert (np.abs(buffers[3] - wanted[3]) / magnitude[3]).max() < 1.2e-6


def test_what_does_not_fit_is_refused() -> None:
    spec = conv(32, 32)
    expanded = dataclasses.replace(spec, window=dataclasses.replace(spec.window, expansion=(2, 1)))
    with pytest.raises(ValueError, match="winograd is for 3 x 3 taps in one group"):
        compile_kernel(expanded, None)
    with pytest.raises(ValueError, match="winograd is for channels in multiples of 16"):
        compile_kernel(conv(24, 32), None)
    with pytest.raises(ValueError, match="schedule 'wide' is unknown"):
        compile_kernel(spec, None, schedule="wide")


def test_a_thread_prepares_a_block_of_rows_once() -> None:
    """Columns of a block that come in a second run of tiles use the image as the first run has prepared it;
    in another launch, the image as it is then."""
    n = 256
    spec, dims = conv(32, n), dims_of(1, 56, 56, 1)
    kernel, buffers = Kernel(compile_kernel(spec, None)), arrays(spec, dims)
    image, out = buffers[0], buffers[3].reshape(-1, n)
    kernel.run(buffers, dims)
    wanted = out.copy()
    out[...] = np.nan
    run, rt = kernel._prepared(buffers, dims)
    run(0, 1)
    rows, columns = np.isfinite(out[:, 0]), int(np.isfinite(out[0]).sum())
    assert rows.any() and 0 < columns < n
    image[...] = 0.0
    run(1, 2)
    second = np.s_[rows, columns : 2 * columns]
    assert np.array_equal(out[second], wanted[second])
    rt.prepared = NOTHING_PREPARED
    run(1, 2)
    assert not np.array_equal(out[second], wanted[second])
