"""Loops of a nest are dropped and merged as far as its buffers allow."""

from __future__ import annotations

import pytest
from shapevm.jit.llvm.function import Function
from shapevm.jit.loops.loops import simplify
from shapevm.jit.loops.tiling import transposed_loop
from shapevm.jit.spec import Dim, Nest, Size

from ..nests import Body, at

N, M, K = (Dim(i) for i in range(3))


def doubled(*shape: Size) -> Nest:
    """x * 2 over all of a tensor."""
    b = Body()
    x = b.load("f32", shape, at(*range(len(shape))))
    b.store(b.op("mul", x, b.const(2.0)), shape, at(*range(len(shape))))
    return b.nest(*shape, n_dims=3)


def with_bias(*shape: Size) -> Nest:
    """x plus a vector along the last axis."""
    b = Body()
    x = b.load("f32", shape, at(*range(len(shape))))
    bias = b.load("f32", shape[-1:], at(len(shape) - 1))
    b.store(b.op("add", x, bias), shape, at(*range(len(shape))))
    return b.nest(*shape, n_dims=3)


def row_sums(*shape: Size) -> Nest:
    """The sums along the last axis."""
    b = Body()
    x = b.load("f32", shape, at(*range(len(shape))))
    b.store(b.op("reduce.sum", x), (*shape[:-1], 1), (*at(*range(len(shape) - 1)), *at(None)))
    return b.nest(*shape, n_dims=3)


@pytest.mark.parametrize(
    ("nest", "row", "factors"),
    [
        (doubled(5, 7), False, ((35,),)),
        (doubled(N, M, K), False, ((N, M, K),)),
        (doubled(1, N, 1, M), False, ((N, M),)),
        (doubled(1, 1), False, ((1,),)),
        (with_bias(N, M), False, ((N,), (M,))),
        (with_bias(N, M, K), False, ((N, M), (K,))),
        (with_bias(1, M), False, ((M,),)),
        (row_sums(N, M, K), True, ((N, M), (K,))),
        (row_sums(N, 1, K), True, ((N,), (K,))),
        (row_sums(N, M, 1), True, ((N, M), (1,))),
    ],
)
def test_simplify(nest: Nest, row: bool, factors: tuple[tuple[Size, ...], ...]) -> None:
    f = Function("kernel", [("i64", "n"), ("i64", "m"), ("i64", "k")])
    assert simplify(f, nest, list(f.params), row).factors == factors


def test_the_loop_along_which_a_buffer_lies_that_the_last_loop_strides_through() -> None:
    f = Function("kernel", [("i64", "n"), ("i64", "m")])

    def found(*loads: tuple[int | None, int | None]) -> int | None:
        b = Body()
        for place in loads:
            b.load("f32", (64, 64), at(*place))
        return transposed_loop(simplify(f, b.nest(64, 64), [], False))

    assert found((0, 1)) is None
    assert found((1, 0)) == 0
    assert found((1, 1)) is None
    assert found((0, 0)) is None
    assert found((1, None)) is None
    assert found((1, None), (1, 0)) == 0
    assert found((0, 1), (1, 1), (1, 0)) == 0
