"""Usual products have the parts that other models' products have."""

import pytest
from shapevm.jit import compiler
from shapevm.jit.families.matmul.usual import COLUMNS, DEPTHS, usual_products
from shapevm.jit.llvm.function import Function
from shapevm.jit.llvm.target import TARGETS
from shapevm.jit.object.parts import digest
from shapevm.jit.spec import to_json
from shapevm.jit.spec_reader import from_json


def parts(f: Function) -> set[bytes]:
    return {digest(part) for part in f.parts.values()}.union(*(parts(part) for part in f.parts.values()))


@pytest.mark.parametrize("target", ["x86-64-v4-amx", "x86-64-v3", "aarch64"])
@pytest.mark.parametrize(("usual", "depth", "other"), [(0, DEPTHS[0], 768), (1, DEPTHS[1], 128)])
def test_products_of_other_widths_have_the_same_parts(
    target: str, usual: int, depth: int, other: int
) -> None:
    assert target in TARGETS
    spec = usual_products()[usual]
    assert from_json(to_json(spec)) == spec
    text = to_json(spec).replace(f"{depth}", f"{other}").replace(f"{COLUMNS}", "512").replace("[8,", "[16,")
    f, _ = compiler._generate(from_json(text), None, target, None)
    mine, _ = compiler._generate(spec, None, target, None)
    found = parts(f)
    assert len(found) > 10 and len(found & parts(mine)) >= 0.9 * len(found)
