"""tests/drawing.py: shares are drawn by the seed, and `slow.txt` names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from . import drawing

ROOT = Path(__file__).parent.parent


class Item:
    def __init__(self, nodeid: str, mark: Any = None) -> None:
        self.nodeid, self.mark = nodeid, mark

    def get_closest_marker(self, name: str) -> Any:
        return self.mark


def options(**given: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"drawn": 1.0, "slow": 1.0, "sample": 1.0, "seed": 1} | given)


@pytest.fixture
def items(monkeypatch: pytest.MonkeyPatch) -> list[Item]:
    monkeypatch.setattr(drawing, "slow_tests", lambda: {f"b.py::slow_{i}": 5.0 for i in range(9)})
    row = [Item(f"a.py::row[{i}]", SimpleNamespace(kwargs={"least": 0.2})) for i in range(40)]
    return [*row, *(Item(f"b.py::slow_{i}") for i in range(9)), *(Item(f"c.py::fast_{i}") for i in range(5))]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, (40, 9, 5)),
        ({"drawn": 0.5}, (20, 9, 5)),
        ({"drawn": 0.01}, (8, 9, 5)),  # the mark's least share
        ({"slow": 1 / 3}, (40, 3, 5)),
        ({"slow": 0.01}, (40, 1, 5)),
    ],
)
def test_a_share_of_each_kind_is_left(items: list[Item], given: dict[str, float], left: tuple[int]) -> None:
    out = drawing.left_out(items, options(**given))
    kept = [item.nodeid[0] for item in items if item not in out]
    assert tuple(map(kept.count, "abc")) == left


def test_another_seed_draws_others(items: list[Item]) -> None:
    drawn = [
        [item.nodeid for item in drawing.left_out(items, options(slow=0.4, sample=0.5, seed=seed))]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_slow_tests_exist() -> None:
    names = drawing.slow_tests()
    assert names
    for name in names:
        path, function = name.split("::")
        assert re.search(rf"^def {function}\(", (ROOT / path).read_text(), re.MULTILINE), name


def test_the_table_is_written_by_reports(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    cases = [
        ("tests.x.test_a", "test_slow[1]", 3),
        ("tests.x.test_a", "test_slow[2]", 5),
        ("tests.test_b", "test_fast", 1.9),
    ]
    text = "".join(
        f'<testcase classname="{path}" name="{name}" time="{time}"/>' for path, name, time in cases
    )
    report.write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")
    assert drawing.slow_lines([report]) == ["4 tests/x/test_a.py::test_slow"]
