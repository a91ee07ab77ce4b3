"""What pages show is in the files that they name, and the reference has every public name."""

from __future__ import annotations

import re

import pytest

import shapevm

from .pages import ROOT, blocks


@pytest.mark.parametrize(("path", "text"), blocks("add-an-operator.md"))
def test_quoted_code_is_in_its_file(path: str, text: str) -> None:
    assert text in (ROOT / path).read_text()


@pytest.mark.parametrize("page", ["add-an-opcode.md", "add-an-operator.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    named = set(re.findall(r"`((?:vm|jit|compiler|shapevm|tests|runtime_c|docs)/[\w/.-]+)`", text))
    assert named and not [name for name in named if not (ROOT / name).exists()]
    targets = set(re.findall(r"`?make (\w+)", text))
    rules = (ROOT / "Makefile").read_text()
    assert targets and not [name for name in targets if not re.search(rf"^{name}:", rules, re.M)]


def test_the_reference_has_every_public_name() -> None:
    """Those of shapevm.errors are all on it: the module is a line of its own."""
    page = (ROOT / "docs" / "reference.md").read_text()
    described = set(re.findall(r"^::: shapevm\.(?:\w+\.)*(\w+)$", page, re.M))
    own = {name for name in shapevm.__all__ if not hasattr(shapevm.errors, name)}
    assert "errors" in described and own - {"settings"} <= described and "Settings" in described
