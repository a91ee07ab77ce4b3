"""The examples on the pages about text forms are what they say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from shapevm.compiler.ir.text import format_graph, parse
from shapevm.vm.assembler import AssemblyError, assemble
from shapevm.vm.isa import DTYPES
from shapevm.vm.writer import write

import shapevm

from .pages import ROOT


def blocks(page: str) -> list[str]:
    """Return the blocks of text on a page."""
    return re.findall(r"^```text\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.M | re.S)


def test_the_graph(tmp_path: Path) -> None:
    text, grammar, *_ = blocks("graph-text.md")
    assert format_graph(parse(text)) == text
    (tmp_path / "graph.svmir").write_text(text)
    with shapevm.compile(tmp_path / "graph.svmir", strategy="generic") as exe:
        (y,) = exe(np.ones((3, 4), "f"))
        assert y.tolist() == [[1.0, -2.0, 0.5, 3.0]] * 3
    assert all(f'"{dtype}"' in grammar for dtype in DTYPES)


def test_the_program(tmp_path: Path) -> None:
    text, message, _ = blocks("assembly.md")
    write(assemble(text), tmp_path / "model.svm")
    with shapevm.load(tmp_path / "model.svm") as exe:
        assert exe(np.ones((5, 4), "f"), 4) == ([0, 5, 10, 15],)
    with pytest.raises(AssemblyError, match=f"^{re.escape(message.strip())}$"):
        assemble(text.replace("lt r5", "lte r5"))


def test_the_grammar_names_all_declarations() -> None:
    """Those of the assembler, and no other."""
    source = (ROOT / "vm" / "assembler.py").read_text()
    table = source[source.index("self.declarations") : source.index("}  # fmt")]
    declared = set(re.findall(r'"(\w+)": self', table))
    grammar = blocks("assembly.md")[2]
    said = set(re.findall(r'(?:\||=) "(\w+)" (?:STRING|JSON|CONSTANT|KERNEL)', grammar))
    assert declared == said - {"line", "str", "base64", "of"} and len(declared) == 9
