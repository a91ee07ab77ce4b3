"""docs/add-a-kernel-family.md: the family that it builds passes the tests of all families."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shapevm.jit import families
from shapevm.jit.families.family import Family
from shapevm.jit.families.table import FAMILIES

from ..operations import HOST_TARGETS
from . import test_table

PAGE = (Path(__file__).parents[3] / "docs" / "add-a-kernel-family.md").read_text()
BLOCKS = dict(re.findall(r"^```python (\S+)\n(.*?)^```$", PAGE, re.S | re.M))


@pytest.fixture
def reverse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Family]:
    """The page's family, in the table while a test runs."""
    for path, text in BLOCKS.items():
        if path.startswith("jit/families/reverse/"):
            place = tmp_path / path.removeprefix("jit/families/")
            place.parent.mkdir(exist_ok=True)
            place.write_text(text)
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    family = importlib.import_module("shapevm.jit.families.reverse.family").FAMILY
    monkeypatch.setitem(FAMILIES, "reverse", family)
    yield family
    for name in [name for name in sys.modules if name.startswith("shapevm.jit.families.reverse")]:
        del sys.modules[name]


def test_the_pages_family_passes_the_tests_of_all_families(reverse: Family) -> None:
    test_table.test_every_family_has_examples_of_its_own()
    for example in reverse.examples:
        test_table.test_text_and_json_are_exact(example)
        test_table.test_results_of_shared_inputs_are_shared(example)
        for target in HOST_TARGETS:
            test_table.test_kernels_compute_the_definition(example, target)


def test_the_line_of_the_table_is_that_of_the_others() -> None:
    (line,) = BLOCKS["jit/families/table.py"].splitlines()
    table = (Path(families.__file__).parent / "table.py").read_text()
    assert line.replace("reverse", "search").replace("REVERSE", "SEARCH") in table
