"""Kernels for ranges of sizes: the bits of the generic and exact ones, and less code where more is known."""

from dataclasses import replace

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel, kernel_text
from shapevm.jit.execute import Kernel
from shapevm.vm.objects import parse_object, serialise_object
from shapevm.vm.program import SizeRange

from .families.attention import test_attention
from .families.attention.test_attention import attention
from .families.matmul import test_matmul
from .families.matmul.test_matmul import M, dense
from .nests import bias_add, gelu, layer_norm, softmax


def nest_arrays(spec, dims):
    rng = np.random.default_rng(sum(dims))
    shapes = [[size if isinstance(size, int) else dims[size.index] for size in b.shape] for b in spec.buffers]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def matmul_arrays(spec, dims):
    return test_matmul.arrays(spec, *dims)[0]


def attention_arrays(spec, dims):
    return test_attention.arrays(dims, 64, 64, "")


R = SizeRange
CASES = [
    (bias_add(), (R(1, 40), 37), [(1, 37), (33, 37), (40, 37)], nest_arrays),
    (bias_add(), (R(0, None), R(0, None)), [(0, 5), (5, 0), (7, 130)], nest_arrays),
    (bias_add(), (R(2, None), R(16, None, 16)), [(2, 16), (3, 48), (100, 1024)], nest_arrays),
    (gelu(), (3, R(64, 4096, 64)), [(3, 64), (3, 4096)], nest_arrays),
    (layer_norm(), (R(33, 128), 0), [(33, 0), (50, 0), (128, 0)], nest_arrays),
    (softmax(), (R(8, None, 8), 3), [(8, 3), (24, 3)], nest_arrays),
    (dense(M, 71, 130), (R(1, 12),), [(1,), (7,), (12,)], matmul_arrays),
    (dense(M, 96, 130), (R(96, 512),), [(96,), (97,), (500,)], matmul_arrays),
    (dense(M, 96, 130), (R(8, None, 8),), [(8,), (96,), (360,)], matmul_arrays),
    (dense(M, 96, 130, layout="rows"), (R(90, 200),), [(90,), (96,), (200,)], matmul_arrays),
    (attention(64, 64), (1, 2, R(1, 40), R(1, 40)), [(1, 2, 1, 1), (1, 2, 33, 40)], attention_arrays),
    (attention(64, 64), (R(1, 4), 2, R(32, None, 32), R(32, None, 32)), [(2, 2, 64, 96)], attention_arrays),
]  # fmt: skip

#: Sizes that round up to one multiple: kernels with what that guarantees, by the size that is rounded.
CLASSES = [
    (layer_norm(), lambda n: (3, n), nest_arrays),
    (softmax(), lambda n: (3, n), nest_arrays),
    (softmax(), lambda n: (n, 40), nest_arrays),
    (gelu(), lambda n: (2, n), nest_arrays),
    (bias_add(), lambda n: (n, n), nest_arrays),
    (dense(M, 71, 130), lambda n: (n,), matmul_arrays),
    (dense(M, 96, 130, layout="rows"), lambda n: (n,), matmul_arrays),
    (attention(64, 64), lambda n: (1, 2, n, n), attention_arrays),
    (attention(64, 64), lambda n: (n % 3, 2, 5, n), attention_arrays),
]


@pytest.mark.parametrize("spec, dims_of, arrays", CLASSES)
@pytest.mark.parametrize("low, high", [(1, 16), (17, 32), (33, 48), (65, 96), (257, 320)])
def test_classes_give_the_same_bits_at_every_size(spec, dims_of, arrays, low, high):
    pairs = zip(dims_of(low), dims_of(high), dims_of(low + 1), strict=True)
    key = tuple(R(0, 2) if a != c and b < 3 else a if a == b else R(a, b) for a, b, c in pairs)
    generic, bucket = (Kernel(compile_kernel(spec, k)) for k in (None, key))
    for n in range(low, high + 1):
        dims, found = dims_of(n), []
        for kernel in (generic, bucket):
            buffers = arrays(spec, dims)
            kernel.run(buffers, dims)
            found.append([x.tobytes() for x, b in zip(buffers, spec.buffers, strict=True) if b.is_output])
        assert found[0] == found[1], n


@pytest.mark.parametrize("spec, key, sizes, arrays", CASES)
def test_generic_bucket_and_exact_give_the_same_bits(spec, key, sizes, arrays):
    generic, bucket = (Kernel(compile_kernel(spec, k)) for k in (None, key))
    for dims in sizes:
        found = []
        for kernel in (generic, bucket, Kernel(compile_kernel(spec, dims))):
            buffers = arrays(spec, dims)
            kernel.run(buffers, dims)
            n = kernel.n_tiles(dims)
            again = arrays(spec, dims)
            kernel.run(again, dims, [(i, i + 1) for i in reversed(range(n))])
            outputs = [x for x, b in zip(buffers, spec.buffers, strict=True) if b.is_output]
            split = [x for x, b in zip(again, spec.buffers, strict=True) if b.is_output]
            assert [x.tobytes() for x in outputs] == [x.tobytes() for x in split]
            found.append([x.tobytes() for x in outputs])
        assert found[0] == found[1] == found[2]


def n_lines(spec, key, word="", target="x86-64-v4"):
    text, _ = kernel_text(spec, key, target)
    return sum(word in line for line in text.splitlines())


def test_a_known_multiple_has_no_remainder():
    masked = [n_lines(gelu(), (3, R(64, None, step)), "masked") for step in (64, 1)]
    assert masked[0] == 0 < masked[1]


def test_a_least_size_needs_no_test_for_none():
    some, none = (n_lines(softmax(), (3, R(low, None))) for low in (64, 0))
    assert some < none


@pytest.mark.parametrize("key, has_tiles", [(R(1, 95), False), (R(96, None), True), (R(1, None), True)])
def test_a_range_decides_for_or_against_tiles(key, has_tiles):
    target = "x86-64-v4-amx"
    spec = replace(dense(M, 96, 130), bf16x6=True)
    assert (n_lines(spec, (key,), "tdpbf16ps", target) > 0) == has_tiles
    assert n_lines(spec, (key,), "", target) <= n_lines(spec, None, "", target)


def test_a_bucket_refuses_other_sizes():
    kernel = Kernel(compile_kernel(bias_add(), (R(8, 16, 8), 3)))
    for n in (7, 12, 24):
        with pytest.raises(ValueError, match=rf"sizes \({n}, 3\) given, it is for 8..16/8, 3..3"):
            kernel.run(nest_arrays(bias_add(), (n, 3)), (n, 3))


@pytest.mark.parametrize("wrong", [R(-1, 3), R(4, 3), R(0, None, 0)])
def test_ranges_that_cannot_be(wrong):
    with pytest.raises(ValueError, match="the range of n1 is"):
        compile_kernel(bias_add(), (3, wrong))


def test_keys_travel():
    made = compile_kernel(bias_add(), (R(8, None, 8), 3))
    assert made.key == (R(8, None, 8), 3) and made.exact_dims is None
    record = serialise_object(made)
    assert parse_object(record).key == made.key and serialise_object(parse_object(record)) == record
    assert compile_kernel(bias_add(), (4, 3)).ranges is None
