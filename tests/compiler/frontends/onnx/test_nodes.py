"""The cases by which ONNX defines its operators: each gives the values, dtypes and shapes that it says, but
for those that the tables of `nodes` name."""

import pytest

from tests.compiler.frontends.onnx.nodes import cases, verdict


@pytest.mark.drawn
@pytest.mark.parametrize("name", sorted(cases()))
def test_case(name: str) -> None:
    kind, reason = verdict(name)
    assert kind in ("right", "out of scope"), reason
