"""Merging loops: products have as many rows as their operands' order in memory lets them have."""

from itertools import permutations

import numpy as np
import pytest
from shapevm.compiler.ir.dims import symbol
from shapevm.compiler.ir.graph import SymbolInfo
from shapevm.compiler.lower.collapse import collapse, collapsed, exchange
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import Buffer, Index, Instr

B, L = symbol("b"), symbol("l")
K, N = 5, 7


def product_of(sizes, a_order, out_order, b_batch=(), position=None):
    """Return acc[i.., n] = A[i.., k] B[.., k, n] over row loops of `sizes`: A's and the result's axes in the
    orders given, B with the loops `b_batch`. `position`: the loop whose index is added to the result."""
    rank = len(sizes)
    n_loop, k_loop = rank, rank + 1
    a = Buffer("f32", (*(sizes[i] for i in a_order), K))
    b = Buffer("f32", (*(sizes[i] for i in b_batch), K, N))
    out = Buffer("f32", (*(sizes[i] for i in out_order), N), True)
    body = [Instr("acc", "f32")]
    if position is not None:
        body += [Instr("iota", "i64", loop=position), Instr("cast", "f32", (1,)), Instr("add", "f32", (0, 2))]
    at = tuple(Index(loop=i) for i in (*out_order, n_loop))
    body.append(Instr("store", "f32", (len(body) - 1,), buffer=2, index=at))
    a_index = tuple(Index(loop=i) for i in (*a_order, k_loop))
    b_index = tuple(Index(loop=i) for i in (*b_batch, k_loop, n_loop))
    product = MatrixProduct(sizes[:-1], sizes[-1], N, K, 0, a_index, 1, b_index, "rows", tuple(body))
    return Matmul(0, (a, b, out), product)


def evaluated(spec):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(buffer.shape).astype(np.float32) for buffer in spec.buffers]
    arrays = [array.reshape(buffer.shape) for array, buffer in zip(arrays, spec.buffers, strict=True)]
    evaluate(spec, (), arrays)
    return arrays[2].ravel()


ORDERS = [(a, out) for a in permutations(range(3)) for out in permutations(range(3))]


@pytest.mark.parametrize(("a_order", "out_order"), ORDERS)
@pytest.mark.parametrize(
    "sizes", [(3, 4, 2), (6, 1, 1), (1, 4, 1), (1, 1, 5), (1, 2, 5), (4, 3, 1), (1, 1, 1)]
)
def test_every_order_of_strides_has_the_most_rows(sizes, a_order, out_order):
    spec = product_of(sizes, a_order, out_order)
    found = collapsed(spec)
    longer = [i for i in range(3) if sizes[i] != 1]
    a_longer, out_longer = ([i for i in order if i in longer] for order in (a_order, out_order))
    if a_longer == out_longer:
        rows, batches = int(np.prod(sizes)), 0
    else:  # neighbours in both orders are one loop
        runs = merged_runs(a_longer, out_longer)
        rows = max(int(np.prod([sizes[i] for i in run])) for run in runs)
        batches = len(runs) - 1
    assert (found.product.m, len(found.product.batch)) == (rows, batches)
    np.testing.assert_array_equal(evaluated(found), evaluated(spec))


def merged_runs(a_order, out_order):
    """Return the loops in runs that are neighbours in both orders."""
    runs = [[a_order[0]]]
    for before, loop in zip(a_order, a_order[1:], strict=False):
        if out_order.index(loop) == out_order.index(before) + 1:
            runs[-1].append(loop)
        else:
            runs.append([loop])
    return runs


@pytest.mark.parametrize("order", list(permutations(range(2))))
def test_loops_that_b_has_are_no_rows(order):
    spec = product_of((4, 2), order, order, b_batch=(0,))
    found = collapsed(spec)
    assert (found.product.batch, found.product.m) == ((4,), 2)
    np.testing.assert_array_equal(evaluated(found), evaluated(spec))
    alone = collapsed(product_of((1, 2), order, order, b_batch=(0,)))
    assert (alone.product.batch, alone.product.m) == ((), 2)


def test_one_of_the_loops_is_over_images_of_b():
    spec = product_of((3, 5, 2), (1, 0, 2), (1, 0, 2), b_batch=(0,))
    found = collapsed(spec)
    assert (found.product.batch, found.product.m) == ((3, 2), 5)
    np.testing.assert_array_equal(evaluated(found), evaluated(spec))


def test_positions_of_loops_follow():
    for sizes in ((4, 3), (4, 1), (1, 3)):
        for position in (0, 1):
            spec = product_of(sizes, (1, 0), (0, 1), position=position)
            found = collapsed(spec)
            assert found.product.m == max(sizes)
            np.testing.assert_array_equal(evaluated(found), evaluated(spec))


def test_symbols_are_rows_where_the_rest_is_one_trip():
    for sizes in ((L, 1), (1, L)):
        for a_order, out_order in (((0, 1), (1, 0)), ((1, 0), (0, 1))):
            found = collapsed(product_of(sizes, a_order, out_order))
            assert (found.product.batch, found.product.m) == ((), L)
    found = collapsed(product_of((B, L), (1, 0), (1, 0)))
    assert (found.product.batch, found.product.m) == ((), B * L)
    kept = product_of((B, L), (1, 0), (0, 1))
    assert collapsed(kept) == kept


def ranged(b_max, l_min, l_max):
    return {"b": SymbolInfo("b", 1, b_max), "l": SymbolInfo("l", l_min, l_max)}


@pytest.mark.parametrize("a_order", list(permutations(range(2))))
def test_the_longer_loop_has_the_rows(a_order):
    spec = collapsed(product_of((B, L), a_order, (1 - a_order[0], 1 - a_order[1])))
    chosen, other = exchange(spec, ranged(50, 100, 500))
    assert (chosen.product.batch, chosen.product.m, other) == ((B,), L, None)
    chosen, other = exchange(spec, ranged(1, 1, 500))
    assert (chosen.product.batch, chosen.product.m, other) == ((B,), L, None)
    chosen, other = exchange(spec, ranged(50, 1, 500))
    assert {chosen.product.m, other.product.m} == {B, L}
    assert chosen.product.batch == (other.product.m,) and other.product.batch == (chosen.product.m,)
    assert exchange(other, ranged(50, 1, 500))[1] == chosen


def test_there_is_nothing_to_choose_where_b_has_the_loop():
    spec = product_of((B, L), (0, 1), (0, 1), b_batch=(0,))
    assert exchange(spec, ranged(50, 1, 500)) == (spec, None)


def test_three_loops_that_are_alike_end():
    spec = product_of((3, B, L), (2, 1, 0), (0, 1, 2))
    chosen, other = exchange(collapsed(spec), {"b": SymbolInfo("b", 2, 2), "l": SymbolInfo("l", 2, 2)})
    assert chosen.product.m == 3 and other is None


# The pass -----------------------------------------------------------------------------------------

HEAD = 'graph "g"\n symbol s min=1 multiple_of=1\n symbol t min=1 multiple_of=1\n'


def test_a_nest_has_one_loop(turns):
    before = """
      input %x: f32[s, t]
      %k1: f32[s, t] = kernel(%x) {spec=@a, label="neg"}
      output %k1 as "y"

      spec @a symbolic
        nest n_dims=0 domain=[s,t]
        b0 f32[s,t]
        b1 f32[s,t] output
        v0 = load f32 b0[i0,i1]
        v1 = neg f32 v0
        v2 = store f32 v1 b1[i0,i1]
    """
    after = """
      %k1: f32[s, t] = kernel(%x) {spec=@a, label="neg"}
      output %k1 as "y"

      spec @a symbolic
        nest n_dims=0 domain=[s*t]
        b0 f32[s*t]
        b1 f32[s*t] output
        v0 = load f32 b0[i0]
        v1 = neg f32 v0
        v2 = store f32 v1 b1[i0]
    """
    turns(collapse, HEAD + before, after)


def test_a_product_whose_rows_a_call_decides_has_two_specs(turns):
    """x[s, t, :] times w, stored as [t, s, :]: the rows are those of s or of t."""
    before = """
      input %x: f32[s, t, 5]
      input %w: f32[5, 7]
      %k1: f32[t, s, 7] = kernel(%x, %w) {spec=@a, label="matmul"}
      output %k1 as "y"

      spec @a symbolic
        matmul n_dims=0 batch=[s] m=t n=7 k=5 a=0 a_index=[i0,i1,i3] b=1 b_index=[i3,i2] b_layout="rows"
        b0 f32[s,t,5]
        b1 f32[5,7]
        b2 f32[t,s,7] output
        v0 = acc f32
        v1 = store f32 v0 b2[i1,i0,i2]
    """
    other = """
      spec @b symbolic
        matmul n_dims=0 batch=[t] m=s n=7 k=5 a=0 a_index=[i1,i0,i3] b=1 b_index=[i3,i2] b_layout="rows"
        b0 f32[s,t,5]
        b1 f32[5,7]
        b2 f32[t,s,7] output
        v0 = acc f32
        v1 = store f32 v0 b2[i0,i1,i2]
    """
    inputs = before.index("%k1")
    kernel = before[inputs:].replace('"matmul"}', '"matmul", exchanged=[@b, [], t, s]}')
    turns(collapse, HEAD + before, kernel + other)
