"""A share of the programs of those packages that are installed; all of them by `python -m
tests.packages.coverage`."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ..freed import verdicts
from ..opinfo.cases import Cell
from . import coverage

SHARE = 2  # programs of a package by a door
INSTALLED = [name for name in coverage.packages() if coverage.is_installed(name)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    n_threads = torch.get_num_threads()
    monkeypatch.setattr(torch.fx.config, "do_not_emit_stack_traces", False)
    pytest.importorskip("expecttest")
    verdicts.prepare()
    yield
    torch.set_num_threads(n_threads)
    logging.disable(logging.NOTSET)


@pytest.mark.drawn
@pytest.mark.parametrize("package", INSTALLED)
def test_exported_programs_are_right(package: str, pytestconfig: pytest.Config) -> None:
    """Traces are left to `coverage`: what TorchScript refuses is no failure of a test."""
    drawn = random.Random(f"{pytestconfig.getoption('seed')} {package}")
    names = drawn.sample(sorted(coverage.programs(package)), SHARE)
    found = {name: coverage.judge(name, coverage.call_of(Cell(name, package)), "export") for name in names}
    assert not {name: verdict for name, verdict in found.items() if verdict.verdict in verdicts.BAD}


def test_packages_that_are_not_installed_are_left_out() -> None:
    assert not coverage.is_installed("a_package_that_nobody_has")
    assert "sentence_transformers" in coverage.packages()


def test_the_table_counts_what_torch_takes() -> None:
    kinds = ("native", "fallback", "refused", "skipped")
    found = {(kind, "sentence_transformers", "export"): [(kind, "")] for kind in kinds}
    (row,) = coverage.table(found, ["sentence_transformers", "julius"])[2:]
    assert row.removesuffix(" |").split(" | ")[2:] == ["4", "3", "2", "1", "", "", ""]


def test_a_page_keeps_the_rows_of_packages_that_were_not_judged(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n{coverage.START}\n{coverage.END}\nbelow\n")
    coverage._write(page, ["| e3nn | 1 |", "| julius | 1 |"])
    coverage._write(page, ["| asteroid | 2 |", "| julius | 2 |"])
    rows = ["| asteroid | 2 |", "| e3nn | 1 |", "| julius | 2 |"]
    lines = ["above", coverage.START, *coverage.HEAD, *rows, coverage.END, "below"]
    assert page.read_text().splitlines() == lines


def test_a_page_keeps_the_cells_of_doors_that_were_not_judged(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{coverage.START}\n{coverage.END}\n")
    cells = ([9, 8, 8, 7, "", "", ""], ["", "", "", "", 6, 5, 5], [2, 1, 1, 1, "", "", ""])
    for some in cells:
        coverage._write(page, [f"| julius | 1 | {' | '.join(map(str, some))} |"])
    assert "| julius | 1 | 2 | 1 | 1 | 1 | 6 | 5 | 5 |" in page.read_text()
    coverage._write(page, ["| julius | 2 | 3 | 1 | 1 | 1 |  |  |  |"])
    assert "| julius | 2 | 3 | 1 | 1 | 1 |  |  |  |" in page.read_text()
