"""Folders that are incomplete or hold unknown parts get one sentence; so do damaged tokenizers and files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shapevm.vm.artifact import read, write

from shapevm import SentenceEncoder
from shapevm.errors import ArgumentError, ArtifactError, Error, FileError

from . import folders


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    SentenceEncoder(folders.write_encoder(folder / "bert")).save(folder / "model.svm")
    return folder / "model.svm"


def _changed(folder: Path, name: str, data: Any) -> Path:
    folders.write_json(folder / name, data)
    return folder


CHANGES = [
    ("modules.json", [{"type": "a.Pooling"}], "its first module is a Pooling; it must be a Transformer"),
    ("modules.json", [{"type": "a.Transformer"}, {"type": "b.CNN"}], "has a module 'CNN'; known are"),
    ("1_Pooling/config.json", {"pooling_mode": "sum"}, "the pooling mode 'sum' is unknown; known are"),
    ("1_Pooling/config.json", {"include_prompt": False}, "include_prompt is false"),
]  # fmt: skip


def test_unknown_parts(tmp_path: Path) -> None:
    for number, (name, data, message) in enumerate(CHANGES):
        folder = _changed(folders.write_encoder(tmp_path / str(number)), name, data)
        with pytest.raises(ArgumentError, match=message):
            SentenceEncoder(folder)


def test_missing_files(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(Error, match="cannot be read by transformers"):
        SentenceEncoder(tmp_path / "empty")
    with pytest.raises(FileError, match=r"none does not exist|none cannot be opened"):
        SentenceEncoder(tmp_path / "none")
    folder = folders.write_encoder(tmp_path / "model")
    (folder / "modules.json").write_text("[")
    with pytest.raises(FileError, match="modules.json cannot be read as JSON"):
        SentenceEncoder(folder)


def _with(saved: Path, path: Path, tokenizer: bytes | None = None, **said: Any) -> Path:
    """Write a copy of a text model with another tokenizer or settings."""
    import numpy as np
    from shapevm.vm.program import Constant

    from shapevm.text.artifact import TOKENIZER

    program = read(saved)
    constants = program.constants
    if tokenizer is not None:
        array = np.frombuffer(tokenizer, np.uint8)
        constants = tuple(
            Constant.tensor(array, "u8", c.name) if c.name == TOKENIZER else c for c in constants
        )
    meta = {**program.meta, "text": {**program.meta["text"], **said}}
    write(replace(program, constants=constants, meta=meta), path)
    return path


@pytest.mark.parametrize("tokenizer", [b"", b"{", b"\xff", b"{}", b'{"version": "1.0"}', b"[" * 100000])
def test_damaged_tokenizers(saved: Path, tmp_path: Path, tokenizer: bytes) -> None:
    with pytest.raises(ArtifactError, match="tokenizer"):
        SentenceEncoder(_with(saved, tmp_path / "model.svm", tokenizer))


@pytest.mark.parametrize(
    "said",
    [
        {"max_length": 0}, {"max_length": "7"}, {"kind": "decoder"}, {"more": 1}, {"prompts": {"a": 1}},
        {"similarity": "__import__"}, {"vocabulary": -1}, {"name": "a\nb"},
    ],
)  # fmt: skip
def test_wrong_settings(saved: Path, tmp_path: Path, said: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError, match="section META: text"):
        SentenceEncoder(_with(saved, tmp_path / "model.svm", **said))


def test_settings_that_lie(saved: Path, tmp_path: Path) -> None:
    encoder = SentenceEncoder(_with(saved, tmp_path / "model.svm", max_length=1 << 20, vocabulary=1 << 30))
    with pytest.raises(Error, match="so length is 25; it must be at most 24"):
        encoder.run([[1] * 25])
    with pytest.raises(Error, match="index"):
        encoder.run([[1 << 20]])
    with pytest.raises(Error, match="item 0: .* so length is .*; it must be at most 24"):
        encoder.encode(["cat " * 99])
