"""Elements of tensors in memory are read where they lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from shapevm.compiler.passes.dce import dce
from shapevm.compiler.passes.read_elements import read_elements

import shapevm

HEAD = 'graph "g"\n symbol s min=2 multiple_of=1\n input %x: i64[s, 4]\n'


def check(rewrite: Any, before: str, after: str) -> None:
    def step(graph: Any) -> None:
        read_elements(graph)
        dce(graph)

    rewrite(step, HEAD + before, after)


def test_views_become_indices(rewrite: Any) -> None:
    before = """
      %a: i64[4, s] = permute(%x) {axes=[1, 0]}
      %b: i64[1, s] = slice(%a) {axis=0, start=3, length=1, step=1}
      %c: i64[s] = reshape(%b) {shape=[s]}
      %d: i64[1] = slice(%c) {axis=0, start=s - 1, length=1, step=1}
      %e: i64[] = reshape(%d) {shape=[]}
      %f: int(u0) = item(%e) {symbol="u0"}
      output %f as "y"
    """
    after = '%v1: int(u0) = item(%x) {symbol="u0", at=[s-1, 3]}\n output %v1 as "y"'
    check(rewrite, before, after)


def test_steps_multiply(rewrite: Any) -> None:
    before = """
      %a: i64[s, 2] = slice(%x) {axis=1, start=3, length=2, step=-2}
      %b: i64[s, 1] = slice(%a) {axis=1, start=1, length=1, step=1}
      %c: i64[1, 1] = slice(%b) {axis=0, start=1, length=1, step=1}
      %d: int = item(%c)
      output %d as "y"
    """
    check(rewrite, before, '%v1: int = item(%x) {at=[1, 1]}\n output %v1 as "y"')


@pytest.mark.parametrize("op", ["neg", "abs"])
def test_what_is_computed_for_the_element_alone_stays(rewrite: Any, op: str) -> None:
    before = """
      %a: i64[s, 4] = OP(%x)
      %b: i64[1, 4] = slice(%a) {axis=0, start=1, length=1, step=1}
      %c: i64[1, 1] = slice(%b) {axis=1, start=0, length=1, step=1}
      %d: int = item(%c)
      output %d as "y"
    """.replace("OP", op)
    check(rewrite, before, before)


def test_axes_that_are_merged_stay(rewrite: Any) -> None:
    before = """
      %a: i64[4*s] = reshape(%x) {shape=[4*s]}
      %b: i64[1] = slice(%a) {axis=0, start=5, length=1, step=1}
      %c: int = item(%b)
      output %c as "y"
    """
    check(rewrite, before, before)


class Table(torch.nn.Module):
    """Reads a table's elements in loops, in several ways, and a list's."""

    def forward(self, table: torch.Tensor) -> tuple[float, torch.Tensor]:
        total, rows = 0.0, [table, table + table]
        doubled = table + table
        for i in range(table.size(0)):
            for j in range(table.size(1)):
                total += float(table[i, j]) * (i + 1) + float(table[-1, j]) + float(table[i][-1])
                total += float(doubled.t()[j, i]) + float((doubled + 1)[i, j]) + float(rows[i % 2][i, j])
                if table[i, j] > 1:
                    total += float(table[i::2][0, j])
        return total, torch.zeros(1) + total


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("size", [(3, 5), (1, 1), (0, 4), (7, 2)])
def test_values_are_eager_s(dtype: str, size: tuple[int, int]) -> None:
    kind = getattr(torch, dtype)
    script = torch.jit.script(Table())
    exe = shapevm.compile(script, args=(torch.ones(2, 3, dtype=kind),), strategy="generic")
    table = torch.arange(size[0] * size[1]).reshape(size).to(kind)
    expected, found = script(table), exe(table)
    assert found[0] == expected[0] and torch.equal(found[1], expected[1])


class At(torch.nn.Module):
    def forward(self, table: torch.Tensor, i: int, n: int) -> int:
        total = 0
        for _ in range(n):
            total += int(table[i, 0])
        return total


def test_no_kernel_reads_them() -> None:
    exe = shapevm.compile(torch.jit.script(At()), args=(torch.ones(2, 3, dtype=torch.int64), 1, 2))
    table = torch.arange(6).reshape(3, 2)
    with exe.profile() as found:
        assert (exe(table, 2, 3), exe(table, -3, 3)) == (12, 0)
    assert not found.kernels
    for i in (3, -4):
        with pytest.raises(shapevm.errors.Error, match="index"):
            exe(table, i, 1)
