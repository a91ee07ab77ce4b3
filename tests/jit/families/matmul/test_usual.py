"""Usual products have the parts that other models' products have."""

import pytest
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
