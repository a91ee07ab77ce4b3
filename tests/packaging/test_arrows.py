"""Imports between rooms run one way, and there are few: `arrows.py` prints them."""

from __future__ import annotations

import tomllib
from graphlib import CycleError
from pathlib import Path

import pytest

from .arrows import MAX_ARROWS, ROOT, arrows_of, check_one_way, python_arrows


@pytest.mark.parametrize("folder", MAX_ARROWS)
def test_rooms_have_few_arrows(folder: str) -> None:
    arrows = sorted(arrows_of(folder))
    assert 0 < len(arrows) <= MAX_ARROWS[folder], arrows


@pytest.mark.parametrize("folder", [*MAX_ARROWS, "jit/families"])
def test_arrows_run_one_way(folder: str) -> None:
    check_one_way(arrows_of(folder))


def test_a_family_that_imports_another_is_listed() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [c["layers"] for c in contracts if c.get("containers") == ["shapevm.jit.families"]]
    listed = {name for layer in layers for name in layer.split(" | ")}
    arrows = [(a, b) for a, b in arrows_of("jit/families") if a != "table" and b != "family"]
    assert arrows and not [arrow for arrow in arrows if not listed.issuperset(arrow)]


def test_what_an_arrow_is_in_c() -> None:
    arrows = arrows_of("runtime_c/run")
    assert {("plan", "entry"), ("install", "plan")} <= arrows  # an include, a call
    assert ("plan", "install") not in arrows


def test_what_an_arrow_is(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    for name, text in {
        "package/__init__.py": "from .a import x\n",
        "package/a/x.py": "from ..b.y import f\nfrom . import z\nimport b",
        "package/a/z.py": "from .. import c\ndef f():\n    from ..d import g\n",
        "package/b/y.py": "from ...outside import h\nfrom ..beside import i\n",
        "package/c.py": "from . import public_name\n",
        "package/d.py": "",
        "beside/i.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert python_arrows(folder) == {("a", "b"), ("a", "c"), ("a", "d"), ("c", "__init__")}
    (folder / "b" / "w.py").write_text("from ..a.x import f\n")
    with pytest.raises(CycleError, match="cycle"):
        check_one_way(python_arrows(folder))
