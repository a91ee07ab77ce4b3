"""Copies of known sizes that change an image's layout: blocks, quarters of blocks, and runs."""

from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.nest import layout_change
from shapevm.jit.families.nest.asking import VECTORS, WITHOUT_ASKING
from shapevm.jit.families.nest.tiled_transpose import scatters_writes
from shapevm.jit.llvm.target import TARGETS
from shapevm.jit.spec import Index, Nest

from ... import nests
from ...nests import Body, at
from .test_nest import HOST_TARGETS, random

LAYOUT = "layout-change"


def images(count: int, rows: int, columns: int, dtype: str = "f32") -> Nest:
    """[count, rows, columns] -> [count, columns, rows]."""
    b = Body()
    b.store(b.load(dtype, (count, rows, columns), at(0, 2, 1)), (count, columns, rows), at(0, 1, 2))
    return b.nest(count, columns, rows, n_dims=0)


def check(spec: Nest, x: np.ndarray, expected: np.ndarray, schedule: str | None = WITHOUT_ASKING) -> None:
    """Run it, the last tile first, on all targets, its result between guards at and beside a line's begin."""
    for target in HOST_TARGETS:
        kernel = Kernel(compile_kernel(spec, (), target, schedule=schedule))
        assert LAYOUT in kernel.code.variants and kernel.code.work.scratch == ()
        for shift in (0, 3):
            memory = np.full(x.size + 96, 7, x.dtype)
            start = -memory.ctypes.data % 64 // 4 + 32 + shift
            out = memory[start : start + x.size].reshape(expected.shape)
            n_tiles = kernel.n_tiles(())
            kernel.run([x, out], (), [(tile, tile + 1) for tile in reversed(range(n_tiles))])
            np.testing.assert_array_equal(out, expected)
            assert (memory[:start] == 7).all() and (memory[start + x.size :] == 7).all()
            out[...] = 0
            kernel.run([x, out], (), [(0, n_tiles)])
            np.testing.assert_array_equal(out, expected)


#: Nothing, 1 to 8 and more are left behind whole blocks, of rows and of columns
@pytest.mark.parametrize("rows", [16, 17, 24, 25, 31, 49, 144, 196])
@pytest.mark.parametrize("columns", [16, 20, 23, 41, 64, 131])
def test_blocks_and_what_is_left_behind_them(rows: int, columns: int) -> None:
    x = random((2, rows, columns), "f32", "x")
    check(images(2, rows, columns), x, x.transpose(0, 2, 1))


@pytest.mark.parametrize("few", range(4, 16))
@pytest.mark.parametrize("many", [16, 50, 1000])
@pytest.mark.parametrize("schedule", [VECTORS, WITHOUT_ASKING])
def test_few_channels_are_done_by_quarters_under_both_schedules(few: int, many: int, schedule: str) -> None:
    x = random((2, few, many), "f32", "x")
    with mock.patch("shapevm.jit.families.nest.narrow_transpose.MAX_NARROW", 3):
        check(images(2, few, many), x, x.transpose(0, 2, 1), schedule)
        back = np.ascontiguousarray(x.transpose(0, 2, 1))
        check(images(2, many, few), back, x, schedule)


#: rows written fall on one set of the first-level cache; on few, where those read are short
@pytest.mark.parametrize("rows", [1024, 256, 768, 2048])
@pytest.mark.parametrize("columns", [49, 196, 23, 48])
def test_runs(rows: int, columns: int) -> None:
    x = random((1, rows, columns), "f32", "x")
    check(images(1, rows, columns), x, x.transpose(0, 2, 1))


#: of an image of channels x pixels to NHWC and back: whether it is written in runs, or goes along rows read
CHOICES = {
    (512, 49): ("runs", "along reads"),
    (1024, 196): ("runs", "along reads"),
    (256, 196): ("runs", "along writes"),
    (64, 4096): ("along reads", "runs"),
    (128, 4096): ("along reads", "along writes"),
    (1024, 256): ("along writes", "along reads"),
    (32, 12544): ("along reads", "along writes"),
    (96, 3136): ("along reads", "along writes"),
    (512, 784): ("along writes", "along reads"),
}


@pytest.mark.parametrize(("channels", "pixels"), CHOICES)
def test_the_order_is_that_of_the_fewest_lines_that_share_sets(channels: int, pixels: int) -> None:
    def order(read: int, written: int) -> str:
        has_runs = layout_change.LayoutChange.has_runs.fget
        assert has_runs is not None
        if has_runs(SimpleNamespace(read=read, written=written)):
            return "runs"
        return "along reads" if scatters_writes(4 * read, 4 * written) else "along writes"

    assert (order(pixels, channels), order(channels, pixels)) == CHOICES[channels, pixels]


#: rows read fall on one set
@pytest.mark.parametrize(("rows", "columns"), [(64, 1024), (256, 1024), (33, 2048)])
def test_rows_whose_lines_share_a_set(rows: int, columns: int) -> None:
    x = random((1, rows, columns), "f32", "x")
    check(images(1, rows, columns), x, x.transpose(0, 2, 1))


@pytest.mark.parametrize("run", [16, 64])
@pytest.mark.parametrize("rows", [33, 100, 250, 264])
def test_runs_end_anywhere(rows: int, run: int) -> None:
    x = random((1, rows, 37), "i32", "x")
    with (
        mock.patch.object(layout_change.LayoutChange, "has_runs", True),
        mock.patch.object(layout_change, "RUN", run),
    ):
        check(images(1, rows, 37, "i32"), x, x.transpose(0, 2, 1))


@pytest.mark.parametrize("place", [Index(loop=1, offset=3), Index(loop=1, scale=2)])
def test_rows_that_do_not_lie_side_by_side(place: Index) -> None:
    """Rows that are read begin further on, or are every second one."""
    b = Body()
    b.store(b.load("f32", (83, 50), at(place, 0)), (50, 40), at(0, 1))
    x, out = random((83, 50), "f32", "x"), np.zeros((50, 40), np.float32)
    kernel = Kernel(compile_kernel(b.nest(50, 40, n_dims=0), (), schedule=WITHOUT_ASKING))
    assert LAYOUT in kernel.code.variants
    kernel.run([x, out], ())
    np.testing.assert_array_equal(out, (x[::2][:40] if place.scale == 2 else x[3:43]).T)


def test_other_copies_are_not_done_so() -> None:
    """Of other elements, of any size, of few of both, past the caches, and those that ask for lines."""

    def takes(spec: Nest, dims: tuple[int, ...] | None, schedule: str = WITHOUT_ASKING) -> bool:
        return LAYOUT in compile_kernel(spec, dims, schedule=schedule).variants

    assert takes(nests.transpose(), (64, 64)) and not takes(nests.transpose(), (64, 64), VECTORS)
    assert not takes(nests.transpose(), None) and not takes(nests.transpose(), (12, 12))
    assert not any(takes(nests.transpose(dtype=dtype), (64, 64)) for dtype in ("f64", "u8", "bf16"))
    assert not takes(nests.transpose(), (2048, 1024)) and takes(nests.transpose(), (2050, 1023))


@pytest.mark.parametrize("schedule", [VECTORS, WITHOUT_ASKING])
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_code_of_it(target: str, schedule: str) -> None:
    for spec in (images(1, 49, 512), images(1, 12, 100), images(1, 100, 12)):
        assert compile_kernel(spec, (), target, schedule=schedule).code
