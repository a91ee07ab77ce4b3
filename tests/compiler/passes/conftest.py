"""What tests of passes share: text in, pass, text out."""

from collections.abc import Callable

import pytest
from shapevm.compiler.ir.graph import Graph
from shapevm.compiler.ir.text import format_graph, parse
from shapevm.compiler.verify import verify


def body(text: str) -> list[str]:
    """Return the lines of a graph's nodes and outputs, unindented."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(("graph", "symbol", "input"))]


@pytest.fixture
def rewrite() -> Callable[..., None]:
    """Return check(step, before, after, stage): `step` makes `before` the graph `after`, well-formed."""

    def check(step: Callable[[Graph], None], before: str, after: str, stage: str = "core") -> None:
        graph = parse(before)
        verify(graph, "imported")
        step(graph)
        verify(graph, stage, step.__name__)
        assert body(format_graph(graph)) == body(after)

    return check
