"""Concat kernels: right against numpy; exact, generic and any sharing of the tiles give the same bits."""

import dataclasses

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.families.concat.spec import Concat, Piece
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import Buffer, Dim, Index, Size, to_json
from shapevm.jit.spec_reader import from_json
from shapevm.jit.text import format_spec, parse_spec

from ...nests import Body, at
from ..nest.test_nest import random, run

N, M, K = Dim(0), Dim(1), Dim(2)
TOTAL = Dim(3)
SIZES = [
    (0, 5, 3),
    (5, 0, 3),
    (5, 3, 0),
    (1, 1, 1),
    (7, 17, 31),
    (2, 5003, 64),
    (300, 63, 1),
    (3001, 1, 2),
    (41, 640, 129),
]


def columns(n: Size = N, m: Size = M, k: Size = K, dtype: str = "f32") -> Concat:
    """[x, -y] beside each other."""
    first, second = Body(), Body()
    first.store(first.load(dtype, (n, m), at(0, 1)), (n, TOTAL), at(0, 1))
    second.store(
        second.op("neg", second.load(dtype, (n, k), at(0, 1))), (n, TOTAL), at(0, Index(loop=1, offset=m))
    )
    return joined(first, second, ((n, m), (n, k)))


def rows(n: Size = N, m: Size = M, k: Size = K) -> Concat:
    """[x, transposed y] one below the other."""
    first, second = Body(), Body()
    first.store(first.load("f32", (n, m), at(0, 1)), (TOTAL, m), at(0, 1))
    second.store(second.load("f32", (m, k), at(1, 0)), (TOTAL, m), at(Index(loop=0, offset=n), 1))
    return joined(first, second, ((n, m), (k, m)))


def joined(first: Body, second: Body, domains: tuple[tuple[Size, ...], ...]) -> Concat:
    """Both store last, to the same output."""
    buffers = (first.buffers[0], second.buffers[0], first.buffers[-1])
    bodies = [
        tuple(
            instr
            if instr.buffer is None
            else dataclasses.replace(instr, buffer=2 if instr.op == "store" else i)
            for instr in body.instrs
        )
        for i, body in enumerate((first, second))
    ]
    return Concat(4, buffers, tuple(Piece(d, b) for d, b in zip(domains, bodies, strict=True)))


@pytest.mark.parametrize("dims", SIZES)
def test_columns(dims):
    n, m, k = dims
    x, y = random((n, m), "f32", "x"), random((n, k), "f32", "y")
    np.testing.assert_array_equal(run(columns(), (*dims, m + k), [x, y])[0], np.concatenate([x, -y], 1))


@pytest.mark.parametrize("dims", SIZES)
def test_rows(dims):
    n, m, k = dims
    x, y = random((n, m), "f32", "x"), random((m, k), "f32", "y")
    np.testing.assert_array_equal(run(rows(), (*dims, n + k), [x, y])[0], np.concatenate([x, y.T]))


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16", "i64", "i8"])
def test_dtypes(dtype):
    dims = (5, 19, 3, 22)
    spec, x, y = columns(dtype=dtype), random((5, 19), dtype, "x"), random((5, 3), dtype, "y")
    expected = np.empty((5, 22), x.dtype)
    evaluate(spec, dims, [x, y, expected])
    np.testing.assert_array_equal(run(spec, dims, [x, y])[0], expected)


def test_a_row_beside_its_softmax():
    first, second = Body(), Body()
    x = first.load("f32", (N, M), at(0, 1))
    e = first.op("exp", first.op("sub", x, first.op("reduce.max", x)))
    first.store(first.op("div", e, first.op("reduce.sum", e)), (N, TOTAL), at(0, 1))
    second.store(second.load("f32", (N, M), at(0, 1)), (N, TOTAL), at(0, Index(loop=1, offset=M)))
    spec = joined(first, second, ((N, M), (N, M)))
    for n, m in ((3, 17), (40, 131), (0, 4)):
        x = random((n, m), "f32", "x")
        expected = np.empty((n, 2 * m), np.float32)
        evaluate(spec, (n, m, 0, 2 * m), [x, x, expected])
        np.testing.assert_allclose(run(spec, (n, m, 0, 2 * m), [x, x])[0], expected, rtol=4e-6)


def test_round_trips():
    for spec in (columns(), rows()):
        assert parse_spec(format_spec(spec)) == spec
        assert from_json(to_json(spec)) == spec


def test_a_piece_outside_of_the_output_is_refused():
    with pytest.raises(ValueError, match="buffer 2 is read or written at 6 along axis 1 of size 5"):
        compile_kernel(columns(), (2, 3, 4, 5))


def test_unknown_schedules_are_refused():
    with pytest.raises(ValueError, match="schedule 'x' is unknown; known is pieces"):
        compile_kernel(columns(), None, schedule="x")


def test_every_buffer_is_named_in_the_text():
    assert "  piece [n0,n2]\n  v0 = load f32 b1[i0,i1]" in format_spec(columns())
    assert columns().buffers[2] == Buffer("f32", (N, TOTAL), True)
