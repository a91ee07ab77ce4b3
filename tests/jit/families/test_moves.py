"""Specs of the families that move elements are data: their texts say all of them."""

import pytest
from shapevm.jit.spec import KernelSpec, spec_hash, to_json
from shapevm.jit.spec_reader import from_json
from shapevm.jit.text import format_spec, parse_spec

from .nonzero.test_nonzero import Buffer, Nonzero, search
from .scatter.test_scatter import SHAPES, scatter
from .sort.test_sort import M, N, sort

PLACES = Nonzero(2, (Buffer("bool", (N,)), Buffer("i64", (M,), True)), N, M)
SPECS = [
    scatter(SHAPES["middle"]),
    scatter(SHAPES["rows"], "any", "bool"),
    sort(),
    sort("i8", True, 3, 70),
    PLACES,
]


@pytest.mark.parametrize("spec", [*SPECS, search(), search("f64", True, True)])
def test_round_trips(spec: KernelSpec) -> None:
    again = from_json(to_json(spec))
    assert again == spec and spec_hash(again) == spec_hash(spec)
    assert parse_spec(format_spec(spec)) == spec
