"""Fusion, text in and text out: which nodes one kernel computes."""

import numpy as np
import pytest
from shapevm.compiler.ir.text import format_graph, parse
from shapevm.compiler.lower.fuse import fuse
from shapevm.compiler.reference import run

HEAD = 'graph "g"\n symbol s min=0 multiple_of=1\n input %x: f32[s, 4]\n input %y: f32[s, 4]\n'

CHAIN = """
  %v1: f32[s, 4] = neg(%x)  # model.py:3
  %v2: f32[s, 4] = mul(%v1, %y)  # model.py:4
  output %v2 as "z"
"""


def test_a_chain_is_one_region(turns):
    after = """
      %k3: f32[s, 4] = fused()  # model.py:4
        body:
          %v1: f32[s, 4] = neg(%x)  # model.py:3
          %v2: f32[s, 4] = mul(%v1, %y)  # model.py:4
          yield %v2
      output %k3 as "z"
    """
    turns(fuse, HEAD + CHAIN, after)


def test_what_is_used_twice_is_in_memory(turns):
    before = """
      %v1: f32[s, 4] = exp(%x)
      %v2: f32[4, s] = permute(%v1) {axes=[1, 0]}
      output %v1 as "a"
      output %v2 as "b"
    """
    after = """
      %k3: f32[s, 4] = fused()
        body:
          %v1: f32[s, 4] = exp(%x)
          yield %v1
      %k4: f32[4, s] = fused()
        body:
          %v2: f32[4, s] = permute(%k3) {axes=[1, 0]}
          yield %v2
      output %k3 as "a"
      output %k4 as "b"
    """
    turns(fuse, HEAD + before, after)


def test_a_view_is_in_every_region_that_reads_through_it(turns):
    """Each has a copy but for the last."""
    before = """
      %v1: f32[4, s] = permute(%x) {axes=[1, 0]}  # model.py:1
      %v2: f32[4, s] = exp(%v1)
      %v3: f32[4, s] = neg(%v1)
      output %v2 as "a"
      output %v3 as "b"
    """
    after = """
      %k4: f32[4, s] = fused()
        body:
          %v6: f32[4, s] = permute(%x) {axes=[1, 0]}  # model.py:1
          %v2: f32[4, s] = exp(%v6)
          yield %v2
      %k5: f32[4, s] = fused()
        body:
          %v7: f32[4, s] = permute(%x) {axes=[1, 0]}  # model.py:1
          %v3: f32[4, s] = neg(%v7)
          yield %v3
      output %k4 as "a"
      output %k5 as "b"
    """
    turns(fuse, HEAD + before, after)


def test_reductions_share_a_row(turns):
    """A softmax: the maximum and the sum run over the same row."""
    before = """
      %v1: f32[s, 1] = reduce_max(%x)
      %v2: f32[s, 4] = expand(%v1) {shape=[s, 4]}
      %v3: f32[s, 4] = sub(%x, %v2)
      %v4: f32[s, 4] = exp(%v3)
      %v5: f32[s, 1] = reduce_sum(%v4)
      %v6: f32[s, 4] = expand(%v5) {shape=[s, 4]}
      %v7: f32[s, 4] = div(%v4, %v6)
      output %v7 as "z"
    """
    nodes = before[: before.index("output")].strip()
    turns(fuse, HEAD + before, f'%k8: f32[s, 4] = fused()\n body:\n {nodes}\n yield %v7\n output %k8 as "z"')


def test_reductions_over_other_axes_do_not(turns):
    before = """
      %v1: f32[s, 1] = reduce_sum(%x)
      %v2: f32[1, s] = permute(%v1) {axes=[1, 0]}
      %v3: f32[1, 1] = reduce_max(%v2)
      output %v3 as "z"
    """
    after = """
      %k4: f32[s, 1] = fused()
        body:
          %v1: f32[s, 1] = reduce_sum(%x)
          yield %v1
      %k5: f32[1, 1] = fused()
        body:
          %v2: f32[1, s] = permute(%k4) {axes=[1, 0]}
          %v3: f32[1, 1] = reduce_max(%v2)
          yield %v3
      output %k5 as "z"
    """
    turns(fuse, HEAD + before, after)


def test_a_matmul_takes_its_epilogue_and_standalone_operators_stay(turns):
    before = """
      %w: f32[4, 2] = constant() {array=float32[4, 2](1, 2, 3, 4, 5, 6, 7, 8), dtype="f32", name="w"}
      %v1: f32[s, 2] = matmul(%x, %w)
      %v2: f32[s, 2] = tanh(%v1)
      %v3: f32[s, 2], %v4: i64[s, 2] = sort(%v2) {keep=2, descending=false}
      output %v3 as "a"
    """
    after = """
      %w: f32[4, 2] = constant() {array=float32[4, 2](1, 2, 3, 4, 5, 6, 7, 8), dtype="f32", name="w"}
      %k5: f32[s, 2] = fused()
        body:
          %v1: f32[s, 2] = matmul(%x, %w)
          %v2: f32[s, 2] = tanh(%v1)
          yield %v2
      %v3: f32[s, 2], %v4: i64[s, 2] = sort(%k5) {keep=2, descending=false}
      output %v3 as "a"
    """
    turns(fuse, HEAD + before, after)


def test_a_reshape_of_memory_stays_outside(turns):
    before = """
      %v1: f32[s, 4] = neg(%x)
      %v2: f32[4*s] = reshape(%v1) {shape=[4*s]}
      %v3: f32[4*s] = exp(%v2)
      output %v3 as "z"
    """
    after = """
      %k4: f32[s, 4] = fused()
        body:
          %v1: f32[s, 4] = neg(%x)
          yield %v1
      %v2: f32[4*s] = reshape(%k4) {shape=[4*s]}
      %k5: f32[4*s] = fused()
        body:
          %v3: f32[4*s] = exp(%v2)
          yield %v3
      output %k5 as "z"
    """
    turns(fuse, HEAD + before, after)


def test_every_block_is_fused_by_itself(turns):
    before = """
      %v1: f32[s, 4] = neg(%x)
      %v2: f32[s, 4] = if(%c)
        then:
          %v3: f32[s, 4] = exp(%v1)
          yield %v3
        else:
          yield %v1
      output %v2 as "z"
    """
    after = """
      %k4: f32[s, 4] = fused()
        body:
          %v1: f32[s, 4] = neg(%x)
          yield %v1
      %v2: f32[s, 4] = if(%c)
        then:
          %k5: f32[s, 4] = fused()
            body:
              %v3: f32[s, 4] = exp(%k4)
              yield %v3
          yield %k5
        else:
          yield %k4
      output %v2 as "z"
    """
    turns(fuse, HEAD + " input %c: bool\n" + before, after)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_the_values_are_the_same(rows):
    before, after = parse(HEAD + CHAIN), parse(HEAD + CHAIN)
    fuse(after)
    assert "fused()" in format_graph(after)
    inputs = [np.random.default_rng(i).standard_normal((rows, 4)).astype(np.float32) for i in range(2)]
    for one, other in zip(run(before, inputs), run(after, inputs), strict=True):
        np.testing.assert_array_equal(one, other)
