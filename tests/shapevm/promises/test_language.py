"""`shapevm prove` of language models, sound ones and one that depends on its company."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shapevm.__main__ import main
from shapevm.llm import from_pretrained
from shapevm.promises.language import N_NEW, prove_language

from ..llm.folders import write_model

RELATIONS = {
    "among 8 requests", "in parts", "from shared pages", "threads", "exact tier", "bucket tier",
    "saved and loaded", "runner",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    write_model(made, "llama")
    return made


@pytest.mark.parametrize("cache", ["f32", "bf16", "int8"])
def test_a_folder_and_its_file_are_proved(folder: Path, tmp_path: Path, cache: str) -> None:
    saved = tmp_path / "model.svm"
    with from_pretrained(folder, cache_tokens=100, cache=cache) as model:
        model.save(saved)  # 8 requests do not fit in its cache: some are interrupted
    for path in (folder, saved) if cache == "f32" else (saved,):
        report = prove_language(path)
        assert report.is_proved and not report.notes, report.text()
        assert set(report.relations) == RELATIONS
        assert report.relations["in parts"].compared == 48 * N_NEW


def test_the_command(folder: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["prove", str(folder), "--seconds", "0"])
    assert done.exit_code == 0 and "runner: 4 results, equal bits" in done.stdout, done.output
    assert done.stdout.splitlines()[-1] == "proved"
    done = CliRunner().invoke(main, ["prove", str(folder), "--sizes", "tokens=2"])
    assert done.exit_code == 2 and "ARTIFACT is a language model: give only --seconds" in done.stderr


def test_a_difference_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shapevm.promises import language

    real = language.inputs_of

    def wrong(plan: Any) -> Any:
        """Give the sequences of calls with several a position too many."""
        found = real(plan)
        return found if len(plan) == 1 else {**found, "positions": found["positions"] + 1}

    monkeypatch.setattr(language, "inputs_of", wrong)
    report = prove_language(folder)
    assert not report.is_proved
    assert (
        report.relations["among 8 requests"].differences[0].startswith("request 0, 256 tokens a call, result")
    )
    assert not report.relations["in parts"].differences
