"""What tests of the passes on kernels share: text in, pass, text out; the text reads back."""

import re
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from shapevm.compiler.ir.graph import Graph
from shapevm.compiler.ir.text import constants, format_graph, parse
from shapevm.compiler.verify import verify


def head_of(text: str) -> str:
    """Return the lines of a graph before its nodes."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if line.strip().startswith(("graph", "symbol", "input")))


@pytest.fixture
def turns() -> Callable[..., None]:
    """Return check(step, before, after, arrays): `step` makes `before`, a whole graph, one with the nodes,
    outputs and specs of `after`. Names of specs are free, as are indentation and blank lines."""

    def check(
        step: Callable[[Graph], None], before: str, after: str, arrays: Mapping[str, np.ndarray] | None = None
    ) -> None:
        before, after = (re.sub("^ +(?=spec @)", "", text, flags=re.MULTILINE) for text in (before, after))
        graph = parse(before, arrays)
        verify(graph, "core")
        step(graph)
        verify(graph, "core", step.__name__)
        found, known = format_graph(graph), {**(arrays or {}), **constants(graph)}
        assert found == format_graph(parse(f"{head_of(before)}\n{after}", known))
        assert format_graph(parse(found, known)) == found

    return check
