"""Usual products have the parts that other models' products have."""

from dataclasses import replace
from pathlib import Path

import pytest
from shapevm.jit import compiler
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.families.matmul.schedules import PANEL
from shapevm.jit.families.matmul.spec import Matmul
from shapevm.jit.families.matmul.usual import COLUMNS, DEPTHS, usual_products
from shapevm.jit.llvm.target import TARGETS
from shapevm.jit.spec import to_json
from shapevm.jit.spec_reader import from_json

from ..shared_parts import parts_of


@pytest.mark.parametrize("target", ["x86-64-v4-amx", "x86-64-v3", "aarch64"])
@pytest.mark.parametrize(("usual", "depth", "other"), [(0, DEPTHS[0], 768), (1, DEPTHS[1], 128)])
def test_products_of_other_widths_have_the_same_parts(
    target: str, usual: int, depth: int, other: int
) -> None:
    assert target in TARGETS
    spec = usual_products()[usual]
    assert from_json(to_json(spec)) == spec
    text = to_json(spec).replace(f"{depth}", f"{other}").replace(f"{COLUMNS}", "512").replace("[8,", "[16,")
    found = parts_of(from_json(text), target)
    assert len(found) > 10 and len(found & parts_of(spec, target)) >= 0.9 * len(found)


def _of_sizes(spec: Matmul, depth: int, columns: int) -> Matmul:
    """Return a usual product with other numbers."""
    a, b, out = spec.buffers
    shapes = ((a.shape[0], depth), (columns // PANEL, depth, PANEL), (out.shape[0], columns))
    buffers = tuple(replace(buffer, shape=shape) for buffer, shape in zip((a, b, out), shapes, strict=True))
    return replace(spec, buffers=buffers).with_product(n=columns, k=depth)


@pytest.mark.parametrize("target", ["x86-64-v4", "x86-64-v3", "aarch64"])
@pytest.mark.parametrize(("usual", "depths"), [(0, (768, 2048)), (1, (128, 64))])
def test_products_that_differ_in_numbers_are_compiled_once(
    target: str, usual: int, depths: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where another process has compiled the first one."""
    spec = usual_products()[usual]
    first, second = _of_sizes(spec, depths[0], 512), _of_sizes(spec, depths[1], 384)
    monkeypatch.setattr(compiler, "_PARTS", compiler.Parts())
    assert compile_kernel(first, None, target, cache=tmp_path).timings.emit > 0
    monkeypatch.setattr(compiler, "_PARTS", compiler.Parts())
    made = compile_kernel(second, None, target, cache=tmp_path)
    assert made.timings.emit == 0
    monkeypatch.setattr(compiler, "_PARTS", compiler.Parts())
    assert compile_kernel(second, None, target).code == made.code
    assert made.code != compile_kernel(first, None, target).code
