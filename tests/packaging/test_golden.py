"""Artifacts that are kept: one of this format is run, others are refused with one sentence."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest
from shapevm.vm.isa import isa_hash
from shapevm.vm.layout import BY_NAME, FORMAT_VERSION

import shapevm

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.svm"))
HEADER = BY_NAME["header"]


def of_this_version(content: bytes) -> bool:
    header = HEADER.unpack(content, 0)
    return (header["format_version"], header["isa_hash"]) == (FORMAT_VERSION, isa_hash())


def test_this_format_has_a_file() -> None:
    """Where this fails, tests/packaging/make_golden.py writes it."""
    assert f"format-{FORMAT_VERSION}" in [path.stem for path in GOLDEN]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the files have code for x86-64")
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_files(path: Path) -> None:
    """Until a release has them, instructions may change: the file is then refused like old formats."""
    if not of_this_version(path.read_bytes()):
        with pytest.raises(shapevm.ArtifactError, match="format version|instruction set"):
            shapevm.load(path)
        return
    arrays = np.load(path.with_suffix(".npz"))
    with shapevm.load(path, strategy="bucket") as exe:
        assert [str(row) for row in exe.inputs] == ["x: f32[rows, 4]"]
        for n in (1, 2, 5):
            y, best = exe(arrays[f"x{n}"])
            assert y.tobytes() == arrays[f"y{n}"].tobytes() and best.tobytes() == arrays[f"best{n}"].tobytes()


@pytest.mark.parametrize("change", [{"format_version": FORMAT_VERSION - 1}, {"isa_hash": isa_hash() ^ 1}])
def test_other_versions_are_refused_with_what_to_do(change: dict[str, int], tmp_path: Path) -> None:
    content = (Path(__file__).parent / "golden" / f"format-{FORMAT_VERSION}.svm").read_bytes()
    header = HEADER.unpack(content, 0) | {"isa_hash": isa_hash()} | change
    (tmp_path / "old.svm").write_bytes(HEADER.pack(**header) + content[HEADER.size :])
    with pytest.raises(shapevm.ArtifactError, match="export it again|export it with the same version"):
        shapevm.load(tmp_path / "old.svm")
