"""Kernels of one spec that must agree: by tier, by split of the tiles, by target and schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.conv.spec import Conv
from shapevm.jit.families.matmul.layouts import pack_columns
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import Dim, KernelSpec
from shapevm.jit.tuning import schedules_of

from .operations import HOST_TARGETS

Dims = tuple[int, ...]
Arrays = Callable[[KernelSpec, Dims], list[np.ndarray]]  # made anew, equal for equal arguments


def conv_arrays(spec: Conv, dims: Dims) -> list[np.ndarray]:
    """Return random buffers of a convolution: image, weight, what is added, result (NaN so far)."""
    rng = np.random.default_rng(0)
    shapes = [[dims[x.index] if isinstance(x, Dim) else x for x in b.shape] for b in spec.buffers]
    buffers = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    if spec.product.b_layout == "panels":
        assert isinstance(spec.product.k, int) and isinstance(spec.product.n, int)
        columns = rng.standard_normal((spec.product.k, spec.product.n)).astype(np.float32)
        buffers[1] = pack_columns("panels", columns, spec.window.groups)
    buffers[3][...] = np.nan
    return buffers


def check_tiers(
    spec: KernelSpec, sizes: Iterable[Dims], arrays: Arrays, out: int, rtol: float, atol: float
) -> None:
    """Check buffer `out` at each of `sizes`: generic code near the definition, exact code and tiles done one
    by one backwards with the same bits."""
    generic = Kernel(compile_kernel(spec, None))
    for dims in sizes:
        wanted, found, exact, split = (arrays(spec, dims) for _ in range(4))
        evaluate(spec, dims, wanted)
        generic.run(found, dims)
        np.testing.assert_allclose(found[out], wanted[out], rtol=rtol, atol=atol)
        Kernel(compile_kernel(spec, dims)).run(exact, dims)
        assert np.array_equal(exact[out], found[out])
        generic.run(split, dims, [(t, t + 1) for t in range(generic.n_tiles(dims))][::-1])
        assert np.array_equal(split[out], found[out])


def by_target(spec: KernelSpec, dims: Dims, arrays: Arrays, out: int) -> list[np.ndarray]:
    """Return buffer `out` from exact code for each target and each schedule that its registers hold."""
    found = []
    for target in HOST_TARGETS:
        wished = ("6x16",) if target == HOST_TARGETS[-1] else ("14x32", "6x64", "12x16")
        for schedule in (None, *(name for name in wished if name in schedules_of(spec, dims, target))):
            buffers = arrays(spec, dims)
            Kernel(compile_kernel(spec, dims, target, schedule=schedule)).run(buffers, dims)
            found.append(buffers[out])
    return found


def check_padding(spec: KernelSpec, dims: Dims, arrays: Arrays, out: int) -> None:
    """Check that of three images a finite one between two of NaN stays finite, and those do not: what lies
    around an image is not read as its padding."""
    buffers = arrays(spec, dims)
    buffers[0][::2] = np.nan
    Kernel(compile_kernel(spec, dims)).run(buffers, dims)
    finite = np.isfinite(buffers[out]).reshape(3, -1)
    assert finite[1].all() and not finite[::2].any()


def all_equal(found: Sequence[np.ndarray]) -> bool:
    """Return True where all arrays have the bits of the first."""
    return all(np.array_equal(found[0].ravel(), other.ravel()) for other in found[1:])
