"""The Python blocks of the pages run, in order, in one program for each page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import shapevm

LENGTH = torch.export.Dim("length", min=1, max=64)
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Pages whose blocks other tests run.
ELSEWHERE = {
    "README": "test_readme.py", "usage": "test_readme.py", "seeing": "test_seeing.py", "tour": "test_tour.py",
    "troubleshooting": "test_troubleshooting.py", "add-a-kernel-family": "../jit/families/test_page.py",
    "nn": "../shapevm/nn/test_page.py",
}  # fmt: skip
#: Pages that show parts of files which their own tests have whole.
PARTS = {"add-an-operator", "add-an-opcode", "plug-ins"}


def blocks(page: Path) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)


def test_every_page_with_blocks_is_run() -> None:
    with_blocks = {page.stem for page in PAGES if blocks(page)}
    assert with_blocks <= {*ELSEWHERE, *PARTS, "specialisation", "migration", "fleet"}
    for name in ELSEWHERE.values():
        assert (Path(__file__).parent / name).is_file()


def test_the_page_on_fleets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks for engines, whose own tests run under `make integrations`, name what is in shapevm."""
    monkeypatch.chdir(tmp_path)

    class Bag(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return (input_ids * attention_mask).sum(-1)

    ids, axes = torch.ones(3, 5, dtype=torch.int64), {0: torch.export.Dim("b", min=1, max=32), 1: LENGTH}
    with shapevm.compile(Bag(), (ids, ids), dynamic_shapes=(axes, axes)) as exe:
        exe.save("model.svm")
    rows = {name: np.ones(n, np.int64) for name, n in (("a", 3), ("ones_a", 3), ("b", 4), ("ones_b", 4))}
    names: dict[str, object] = {"shapevm": shapevm, "ids": ids.numpy(), "mask": ids.numpy(), **rows}
    one_process, over_rows, *engines = blocks(ROOT / "docs" / "fleet.md")
    exec(one_process, names)
    exec(over_rows, names)
    assert [list(row.values()) for row in names["results"]] == [[3], [4]]  # type: ignore[attr-defined]
    for block in engines:
        ((module, imported),) = re.findall(r"from shapevm\.integrations\.(\w+) import (\w+)", block)
        source = (ROOT / "shapevm" / "integrations" / f"{module}.py").read_text()
        assert re.search(rf"^(class|def) {imported}\b", source, re.M)


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
