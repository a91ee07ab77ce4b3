"""Results never share memory with what the caller, or another result, can see."""

import numpy as np
import pytest
from shapevm.compiler.ir.text import parse
from shapevm.compiler.passes.copy_results import copy_results
from shapevm.compiler.verify import VerifyError, verify

from ..emit.test_emit import BRANCH, NEG


def n_copies(text: str) -> int:
    graph = parse(text)
    copy_results(graph)
    verify(graph, "lowered")
    return sum(node.attrs.get("label") == "copy" for node in graph.nodes())


def test_aliases_are_copied(run):
    text = """graph "g"
      symbol s min=0 multiple_of=1
      input %x: f32[s, 2]
      %w: f32[2] = constant() {array=float32[2](5.0, 6.0), dtype="f32", name="w"}
      %v: f32[2*s] = reshape(%x) {shape=[2*s]}
      %k: f32[2*s] = kernel(%v) {spec=@neg, dims=[2*s], label="neg"}
      %u: f32[s, 2] = reshape(%k) {shape=[s, 2]}
      output %x as "x"
      output %v as "v"
      output %w as "w"
      output %k as "k"
      output %u as "u"
      output %k as "k2"
    """
    assert n_copies(text + NEG) == 5
    x = np.arange(6, dtype="float32").reshape(3, 2)
    results = run(text + NEG, x)
    expected = [x, x.reshape(-1), np.float32([5, 6]), -x.reshape(-1), -x, -x.reshape(-1)]
    assert all(np.array_equal(a, b) for a, b in zip(results, expected, strict=True))
    memory = [x, *results]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(memory) for b in memory[:i])


def test_fresh_results_are_not_copied():
    text = """graph "g"
      input %x: f32[4]
      %k: f32[4] = kernel(%x) {spec=@neg, dims=[4], label="neg"}
      %v: f32[2, 2] = reshape(%k) {shape=[2, 2]}
      output %v as "y"
    """
    assert n_copies(text + NEG) == 0


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_that_may_give_the_input(run, taken):
    assert n_copies(BRANCH + NEG) == 1
    x = np.arange(3, dtype="float32")
    y, _ = run(BRANCH + NEG, x, taken, 41)
    assert np.array_equal(y, -x if taken else x) and not np.shares_memory(x, y)


def test_the_verifier_refuses_aliases():
    text = 'graph "g"\n input %x: f32[2]\n output %x as "y"'
    with pytest.raises(VerifyError, match="results: output 'y' may share memory with an input"):
        verify(parse(text), "lowered")


def test_empty_and_0d_results_are_copied(run):
    text = """graph "g"
      input %x: f32[]
      input %y: i64[0, 3]
      output %x as "x"
      output %y as "y"
    """
    x, y = run(text, np.array(3, "float32"), np.zeros((0, 3), "int64"))
    assert x.shape == () and x == 3 and y.shape == (0, 3)


def test_loop_that_swaps_tensors_gives_fresh_results(run):
    text = """graph "g"
      input %n: int
      input %x: f32[2]
      input %y: f32[2]
      %zero: int(0) = size() {dim=0}
      %i: int, %a: f32[2], %b: f32[2] = while(%zero, %x, %y)
        cond(%p1: int, %p2: f32[2], %p3: f32[2]):
          %c: bool = int_lt(%p1, %n)
          yield %c
        body(%q1: int, %q2: f32[2], %q3: f32[2]):
          %one: int(1) = size() {dim=1}
          %next: int = int_add(%q1, %one)
          yield %next, %q3, %q2
      output %a as "a"
      output %b as "b"
    """
    x, y = np.float32([1, 2]), np.float32([3, 4])
    for n in range(3):
        a, b = run(text, n, x, y)
        assert np.array_equal(a, (x, y)[n % 2]) and np.array_equal(b, (y, x)[n % 2])
        assert not any(np.shares_memory(given, result) for given in (x, y) for result in (a, b))
