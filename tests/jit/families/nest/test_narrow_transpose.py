"""Nests that cross a loop of few iterations: vectors of pixels exchanged for vectors of channels."""

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.spec import Index, Nest

from ...nests import Body, at
from .test_nest import HOST_TARGETS, random, run

NARROW = "narrow-transpose"


def copied(images: int, channels: int, pixels: int, is_last: bool, dtype: str = "f32") -> Nest:
    """[N, C, P] -> [N, P, C] where the channels become the last axis, or back."""
    b = Body()
    sizes = (pixels, channels) if is_last else (channels, pixels)
    x = b.load(dtype, (images, *sizes[::-1]), at(0, 2, 1))
    b.store(x, (images, *sizes), at(0, 1, 2))
    return b.nest(images, *sizes, n_dims=0)


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("channels", range(2, 9))
@pytest.mark.parametrize("pixels", [16, 50, 3, 224 * 16])
def test_copies_that_bring_few_channels_last_and_back(channels, pixels, is_last):
    spec = copied(2, channels, pixels, is_last)
    x = random([int(size) for size in spec.buffers[0].shape], "f32", "x")
    np.testing.assert_array_equal(run(spec, (), [x])[0], x.transpose(0, 2, 1))
    for target in HOST_TARGETS:
        assert NARROW in compile_kernel(spec, (), target).variants


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_of_every_dtype(dtype, is_last):
    spec = copied(1, 3, 100, is_last, dtype)
    x = random([int(size) for size in spec.buffers[0].shape], dtype, "x")
    np.testing.assert_array_equal(run(spec, (), [x])[0], x.transpose(0, 2, 1))


@pytest.mark.parametrize("is_last", [True, False])
def test_nothing_is_written_around_the_result_whatever_the_order_of_tiles(is_last):
    spec = copied(1, 3, 4099, is_last)
    x = random([int(size) for size in spec.buffers[0].shape], "f32", "x")
    out = np.full(x.size + 64, 7, np.float32)
    kernel = Kernel(compile_kernel(spec, ()))
    assert kernel.n_tiles(()) > 1
    for tile in reversed(range(kernel.n_tiles(()))):
        kernel.run([x, out[32:-32].reshape(x.transpose(0, 2, 1).shape)], (), [(tile, tile + 1)])
    np.testing.assert_array_equal(out[32:-32].reshape(1, *x.shape[:0:-1]), x.transpose(0, 2, 1))
    assert (out[:32] == 7).all() and (out[-32:] == 7).all()


def test_bytes_become_scaled_floats_of_each_channel():
    """As an image [H, W, 3] of a file on its way into a network."""
    b = Body()
    x = b.op("cast", b.load("u8", (101, 3), at(1, 0)), dtype="f32")
    mean = b.load("f32", (3,), at(0))
    b.store(b.op("sub", x, mean), (3, 101), at(0, 1))
    spec = b.nest(3, 101, n_dims=0)
    assert NARROW in compile_kernel(spec, ()).variants
    x, mean = random((101, 3), "u8", "x"), random((3,), "f32", "m")
    np.testing.assert_array_equal(run(spec, (), [x, mean])[0], x.T.astype(np.float32) - mean[:, None])


@pytest.mark.parametrize("place", [Index(loop=1, scale=2), Index(loop=1, offset=1)])
def test_pixels_that_do_not_lie_side_by_side_are_not_exchanged(place):
    b = Body()
    x = b.load("f32", (100, 3), at(place, 0))
    b.store(x, (3, 49), at(0, 1))
    spec = b.nest(3, 49, n_dims=0)
    assert NARROW not in compile_kernel(spec, ()).variants
    x = random((100, 3), "f32", "x")
    rows = x[::2][:49] if place.scale == 2 else x[1:50]
    np.testing.assert_array_equal(run(spec, (), [x])[0], rows.T)
