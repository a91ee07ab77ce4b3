"""Artifacts that are kept: one of this format is run, others are refused with one sentence."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapevm.vm.isa import isa_hash
from shapevm.vm.layout import BY_NAME, FORMAT_VERSIONS

import shapevm

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.svm"))
HEADER = BY_NAME["header"]


def of_this_version(content: bytes) -> bool:
    header = HEADER.unpack(content, 0)
    return header["format_version"] in FORMAT_VERSIONS and header["isa_hash"] == isa_hash()


def test_the_formats_have_files() -> None:
    """Where this fails, tests/packaging/make_golden.py writes them."""
    assert {f"format-{version}" for version in FORMAT_VERSIONS} <= {path.stem for path in GOLDEN}


def check_rows(exe: shapevm.Executable, arrays: Any) -> None:
    assert [str(row) for row in exe.inputs] == ["x: f32[rows, 4]"]
    for n in (1, 2, 5):
        y, best = exe(arrays[f"x{n}"])
        assert y.tobytes() == arrays[f"y{n}"].tobytes() and best.tobytes() == arrays[f"best{n}"].tobytes()


def check_functions(exe: shapevm.Executable, arrays: Any) -> None:
    assert exe.functions == ("main", "scaled")
    assert exe(arrays["x"], np.array([2, 0])).tobytes() == arrays["y"].tobytes()
    assert exe.call("scaled", arrays["scale"]).tobytes() == arrays["scaled"].tobytes()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the files have code for x86-64")
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_files(path: Path) -> None:
    """Until a release has them, instructions may change: the file is then refused like old formats."""
    if not of_this_version(path.read_bytes()):
        with pytest.raises(shapevm.ArtifactError, match="format version|instruction set"):
            shapevm.load(path)
        return
    checks = {"format-4": check_rows, "format-5": check_functions}
    with shapevm.load(path, strategy="bucket") as exe:
        checks[path.stem](exe, np.load(path.with_suffix(".npz")))


@pytest.mark.parametrize(
    "change",
    [
        {"format_version": FORMAT_VERSIONS[0] - 1},
        {"format_version": FORMAT_VERSIONS[-1] + 1},
        {"isa_hash": isa_hash() ^ 1},
    ],
)
def test_other_versions_are_refused_with_what_to_do(change: dict[str, int], tmp_path: Path) -> None:
    content = (Path(__file__).parent / "golden" / f"format-{FORMAT_VERSIONS[-1]}.svm").read_bytes()
    header = HEADER.unpack(content, 0) | {"isa_hash": isa_hash()} | change
    (tmp_path / "old.svm").write_bytes(HEADER.pack(**header) + content[HEADER.size :])
    with pytest.raises(shapevm.ArtifactError, match="export it again|export it with the same version"):
        shapevm.load(tmp_path / "old.svm")
