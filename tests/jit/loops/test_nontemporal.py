"""Stores past the caches: the same bits, where they are wanted, and nothing outside the output."""

import numpy as np
import pytest
from shapevm.jit.compiler import assembly, compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.concat.spec import Concat, Piece
from shapevm.jit.loops import nontemporal
from shapevm.jit.spec import Nest

from .. import nests
from ..families.nest.test_nest import HOST_TARGETS, random, resolved
from ..nests import Body, M, N, at

STREAMED = "vmovntps"


def computed(spec: Nest, exact: tuple[int, ...] | None, dims: tuple[int, ...], inputs: list, shift: int):
    """Return the output, which starts `shift` elements behind a cache line."""
    kernel = Kernel(compile_kernel(spec, exact, HOST_TARGETS[-1]))
    shape = resolved(spec.buffers[-1].shape, dims)
    size = int(np.prod(shape))
    memory = np.full(size + 64, 7, np.float32)
    begin = -memory.ctypes.data % 64 // 4 + 16 + shift
    out = memory[begin : begin + size].reshape(shape)
    kernel.run([*inputs, out], dims)
    assert (memory[:begin] == 7).all() and (memory[begin + size :] == 7).all()
    return out


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("dims", [(1, 64), (2, 64), (3, 384), (70, 128), (5, 100), (9, 1000), (0, 16)])
def test_bits_are_those_of_other_stores(monkeypatch, dims, shift):
    monkeypatch.setattr(nontemporal, "LEAST_BYTES", 0)
    x, row = random(dims, "f32", "x"), random(dims[1:], "f32", "row")
    for spec, inputs in (
        (nests.copy(), [x]), (nests.bias_add(), [x, row]), (nests.gelu(), [x]), (nests.softmax(), [x]),
        (nests.layer_norm(m=dims[1]), [x, row, row]),
    ):  # fmt: skip
        exact, generic = (computed(spec, key, dims, inputs, shift) for key in (dims, None))
        np.testing.assert_array_equal(exact.view(np.int32), generic.view(np.int32))


def test_only_large_outputs_of_known_size_along_the_last_loop():
    def is_streamed(spec: Nest | Concat, dims: tuple[int, int] | None) -> bool:
        return STREAMED in assembly(spec, dims, HOST_TARGETS[-1])

    large, small = (4096, 1024), (4096, 1000)
    assert is_streamed(nests.copy(), large) and is_streamed(nests.softmax(), large)
    assert not is_streamed(nests.copy(), small) and not is_streamed(nests.copy(), None)
    assert not is_streamed(nests.copy(dtype="f16"), (16384, 1024))
    assert not is_streamed(nests.mean(), (1 << 23, 2))
    pieces = []
    b = Body()
    x = b.load("f32", (N, M), at(0, 1))
    b.store(x, (N, M), at(0, 1))
    pieces.append(Piece((N, M), tuple(b.instrs)))
    assert is_streamed(Concat(2, tuple(b.buffers), tuple(pieces)), large)


@pytest.mark.parametrize("shift", [0, 1])
def test_gathered_rows(monkeypatch, shift):
    """What a row index chooses is not read ahead: where the next row lies is not known yet."""
    monkeypatch.setattr(nontemporal, "LEAST_BYTES", 0)
    ids, table = np.array([3, 99, 0, 3, 50]), random((100, 384), "f32", "table")
    for rows in (nests.embedding(), nests.embedding(m=M)):
        dims = (5, 384)
        exact, generic = (computed(rows, key, dims, [ids, table], shift) for key in (dims, None))
        np.testing.assert_array_equal(exact, table[ids])
        np.testing.assert_array_equal(generic, table[ids])
    assert STREAMED in assembly(nests.embedding(), (5, 0), HOST_TARGETS[-1])
