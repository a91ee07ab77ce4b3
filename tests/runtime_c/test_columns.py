"""Lists and dicts of any structure through the public header: a C host gives and gets their columns."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import torch

import shapevm


def totals(
    rows: list[dict[str, float]], table: dict[str, torch.Tensor], steps: list[int]
) -> tuple[torch.Tensor, dict[str, int]]:
    total = torch.zeros(1)
    counts: dict[str, int] = {}
    for row in rows:
        for key, weight in row.items():
            total = total + table[key].sum() * weight
            counts[key] = counts.get(key, 0) + 1
    for step in steps:
        total = total + step
    return total, counts


def test_columns_from_c(build: Callable[[str, str], Path], tmp_path: Path) -> None:
    example = ([{"k": 1.0}], {"k": torch.ones(2)}, [1])
    with shapevm.compile(torch.jit.script(totals), example, strategy="generic") as exe:
        exe.save(tmp_path / "columns.svm")
    command = [str(build("test_columns", "address")), str(tmp_path / "columns.svm")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
