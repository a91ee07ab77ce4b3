"""The page docs/nn.md: its programs run, and print what it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shapevm import nn

PAGE = Path(__file__).parents[3] / "docs" / "nn.md"


def test_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    for language, text in blocks:
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), names)
        else:
            assert capsys.readouterr().out == text
    exe = nn.compile(names["Total"](), {"x": (2,)})
    x = np.array([1, 2], np.float32)
    assert [exe(x).tolist() for _ in range(3)] == [[1, 2], [2, 4], [3, 6]]
    exe.save("total.svm")
