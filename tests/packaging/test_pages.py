"""What the pages for contributors show is in the files that they name."""

from __future__ import annotations

import re

import pytest

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
