"""Kernels in loops read parts of tensors where they lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from shapevm.compiler.passes.dce import dce
from shapevm.compiler.passes.read_parts import read_parts
from shapevm.vm.disassembler import disassemble

import shapevm

HEAD = 'graph "g"\n symbol s min=2 multiple_of=1\n input %x: f32[s, 4]\n input %i: i64[]\n'


def check(rewrite: Any, before: str, after: str) -> None:
    def step(graph: Any) -> None:
        read_parts(graph)
        dce(graph)

    rewrite(step, HEAD + before, after)


MOVING = """
  %u: int(u0) = item(%i) {symbol="u0"}
  %a: f32[1, 4] = slice(%x) {axis=0, start=u0, length=1, step=1}
  %b: f32[4] = reshape(%a) {shape=[4]}
  %c: f32[4] = neg(%b)
  output %c as "y"
"""


def test_a_row_whose_place_a_call_computes(rewrite: Any) -> None:
    after = """
      %u: int(u0) = item(%i) {symbol="u0"}
      %v2: f32[4] = part(%x) {begin=4*u0, shape=[4]}
      %c: f32[4] = neg(%v2)
      output %c as "y"
    """
    check(rewrite, MOVING, after)


def test_a_place_that_sizes_tell_stays(rewrite: Any) -> None:
    before = """
      %a: f32[1, 4] = slice(%x) {axis=0, start=s-1, length=1, step=1}
      %c: f32[1, 4] = neg(%a)
      output %c as "y"
    """
    check(rewrite, before, before)


def test_what_is_not_in_memory_stays(rewrite: Any) -> None:
    before = MOVING.replace("slice(%x)", "slice(%d)").replace("%a:", "%d: f32[s, 4] = neg(%x)\n  %a:")
    check(rewrite, before, before)


def test_a_result_stays(rewrite: Any) -> None:
    before = """
      %u: int(u0) = item(%i) {symbol="u0"}
      %a: f32[1, 4] = slice(%x) {axis=0, start=u0, length=1, step=1}
      output %a as "y"
    """
    check(rewrite, before, before)


def test_a_kernel_copies_a_result_of_other_axes(rewrite: Any) -> None:
    before = MOVING.replace("  %c: f32[4] = neg(%b)\n", "").replace("output %c", "output %b")
    after = """
      %u: int(u0) = item(%i) {symbol="u0"}
      %v1: f32[1, 4] = part(%x) {begin=4*u0, shape=[1, 4]}
      %b: f32[4] = reshape(%v1) {shape=[4]}
      output %b as "y"
    """
    check(rewrite, before, after)


@pytest.mark.parametrize(("axis", "step"), [(1, 1), (0, 2)])
def test_elements_apart_stay(rewrite: Any, axis: int, step: int) -> None:
    sizes = "[2, 4]" if axis == 0 else "[s, 2]"
    before = f"""
      %u: int(u0) = item(%i) {{symbol="u0"}}
      %a: f32{sizes} = slice(%x) {{axis={axis}, start=u0, length=2, step={step}}}
      %c: f32{sizes} = neg(%a)
      output %c as "y"
    """
    check(rewrite, before, before)


class Steps(torch.nn.Module):
    """Steps over rows and over pairs of them, from both ends, until a condition holds."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(5, 7)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        kept: list[torch.Tensor] = []
        for t in range(x.size(0)):
            h = self.cell(x[t], h) + x[x.size(0) - 1 - t].sum() + x[t // 2 : t // 2 + 1].mean()
            kept.append(x[t])
            if bool(h[0, 0] > 2):
                break
        return h, kept


class Planned(Steps):
    """No condition: calls have plans."""

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        y, kept = x + 1, [h]
        for t in range(x.size(0)):
            h = self.cell(x[t], h) + torch.tanh(y[t]).mean() * self.cell.weight_hh[t % 21].mean()
            kept.append(h)
        return h, kept


@pytest.mark.parametrize("kind", [Steps, Planned])
@pytest.mark.parametrize("strategy", ["generic", "jit"])
def test_values_are_eager_s(kind: type[Steps], strategy: str) -> None:
    torch.manual_seed(0)
    script = torch.jit.script(kind().eval())
    example = (torch.randn(3, 2, 5), torch.randn(2, 7))
    exe = shapevm.compile(script, args=example, strategy=strategy)
    assert "part d=" in disassemble(exe.program())
    for n in (1, 6, 6, 11, 0, 30):
        x, h = torch.randn(n, 2, 5) / 4, torch.randn(2, 7)
        whole = torch.randn(n + 1, 2, 5)[1:].copy_(x)  # begins within its storage
        for given in (x, whole, x.transpose(1, 2).contiguous().transpose(1, 2)):
            torch.testing.assert_close(exe(given, h), script(x, h))


def test_a_site_has_one_entry() -> None:
    torch.manual_seed(0)
    script = torch.jit.script(Steps().eval())
    exe = shapevm.compile(script, args=(torch.randn(3, 2, 5), torch.randn(2, 7)), strategy="generic")
    exe(torch.randn(40, 2, 5) / 9, torch.zeros(2, 7) - 9)
    assert len({kernel for kernel, _ in exe.stats().entries}) == len(exe.stats().entries) > 3
