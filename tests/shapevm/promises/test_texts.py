"""`shapevm prove` of programs whose tokens are packed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from shapevm.vm.artifact import read, write

import shapevm
from shapevm.build.options import Options
from shapevm.promises.prove import prove
from shapevm.promises.report import Report


class Texts(torch.nn.Module):
    """One layer of attention over embedded tokens, and their mean."""

    def __init__(self, is_masked: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.inner = torch.nn.Embedding(100, 8), torch.nn.Linear(8, 8)
        self.is_masked = is_masked

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x, seen = self.table(ids), mask.bool()[:, None, :].expand(-1, mask.shape[1], -1)
        x = torch.nn.functional.scaled_dot_product_attention(self.inner(x), x, x, seen)
        scale = mask.unsqueeze(-1).float() if self.is_masked else torch.ones(*mask.shape, 1)
        return (x * scale).sum(1) / scale.sum(1)


def proved(path: Path, is_masked: bool, pack: str) -> Report:
    """Return the report on a program that says that its tokens are packed."""
    ids = torch.randint(0, 100, (3, 5))
    batch, length = torch.export.Dim("batch", max=50), torch.export.Dim("length", max=50)
    shapes = {name: {0: batch, 1: length} for name in ("ids", "mask")}
    given = {"ids": ids, "mask": torch.ones_like(ids)}
    exe = shapevm.compile(
        Texts(is_masked).eval(), kwargs=given, dynamic_shapes=shapes, options=Options(pack=pack)
    )
    exe.save(path)
    program = read(path)
    write(replace(program, meta={**program.meta, "packed": "mask"}), path)
    return prove(path)


def test_texts_alone_and_in_another_order(tmp_path: Path) -> None:
    report = proved(tmp_path / "texts.svm", True, "mask")
    assert report.is_proved and report.relations["a text alone"].compared > 1
    assert report.relations["texts in another order"].compared
    assert "along batch tokens are packed by mask; `shapevm prove` compares texts alone" in report.text()


def test_a_program_whose_texts_depend_on_others_is_found(tmp_path: Path) -> None:
    report = proved(tmp_path / "texts.svm", False, "")
    assert report.relations["a text alone"].differences and not report.is_proved
