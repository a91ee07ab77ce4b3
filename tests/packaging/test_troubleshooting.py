"""The page on errors names all of them, and what it shows is what comes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import shapevm
from shapevm import errors

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", PAGE, re.MULTILINE | re.DOTALL)


def test_what_it_shows_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    for number, (text, shown) in enumerate(BLOCKS):
        path = tmp_path / f"block{number}.py"  # TorchScript reads the source
        path.write_text(text)
        code = compile(text, str(path), "exec")
        if not shown:
            exec(code, space)
            continue
        with pytest.raises(shapevm.Error) as caught:
            exec(code, space)
        assert f"{type(caught.value).__name__}: {caught.value.args[0]}" == " ".join(shown.split())


def test_it_names_all_errors() -> None:
    headings = " ".join(re.findall(r"^### (.*)$", PAGE, re.MULTILINE))
    missing = [name for name in errors.__all__ if not re.search(rf"\b{name}\b", headings) and name != "Error"]
    assert not missing
