"""The Python blocks of the pages run, in order, in one program for each page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

import shapevm

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Pages whose blocks other tests run.
ELSEWHERE = {
    "README": "test_readme.py", "usage": "test_readme.py", "seeing": "test_seeing.py", "tour": "test_tour.py",
    "troubleshooting": "test_troubleshooting.py", "add-a-kernel-family": "../jit/families/test_page.py",
}  # fmt: skip
#: Pages that show parts of files which their own tests have whole.
PARTS = {"add-an-operator", "add-an-opcode", "plug-ins"}


def blocks(page: Path) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)


def test_every_page_with_blocks_is_run() -> None:
    with_blocks = {page.stem for page in PAGES if blocks(page)}
    assert with_blocks == {*ELSEWHERE, *PARTS, "specialisation", "migration"} & with_blocks
    for name in ELSEWHERE.values():
        assert (Path(__file__).parent / name).is_file()


def test_the_page_on_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(ROOT / "docs" / "migration.md")
    (tmp_path / "page.py").write_text("\n".join(found))  # torch.jit.script reads the source
    runpy.run_path(str(tmp_path / "page.py"))
    assert len(found) == 4


def test_the_page_on_specialisation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, x = torch.nn.Linear(64, 8).eval(), torch.ones(3, 64)
    shapes = ({0: torch.export.Dim("rows", min=1, max=64)},)
    with shapevm.compile(model, (x,), dynamic_shapes=shapes) as exe:
        exe.save("model.svm")
    names: dict[str, object] = {"shapevm": shapevm, "torch": torch, "x": x, "model": model, "shapes": shapes}
    for block in blocks(ROOT / "docs" / "specialisation.md"):
        exec(compile(block, "specialisation.md", "exec"), names)
