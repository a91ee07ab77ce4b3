"""The Python blocks of docs/seeing.md run, in order, in one program."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import shapevm

PAGE = Path(__file__).parents[2] / "docs" / "seeing.md"


def test_the_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    monkeypatch.chdir(tmp_path)
    batch = torch.export.Dim("batch", min=1)
    model = torch.nn.Linear(64, 8).eval()
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    with shapevm.compile(model, (torch.ones(2, 64),), dynamic_shapes=({0: batch},)) as exe:
        names = {"exe": exe, "torch": torch, "shapevm": shapevm}
        for block in blocks:
            exec(block, names)
        assert len(blocks) == 3 and "20 calls of" in capsys.readouterr().out
        assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        assert names["REGISTRY"].get_sample_value("shapevm_calls_total", {"model": "compiled"}) >= 23
