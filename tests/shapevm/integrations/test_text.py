"""Interfaces of other libraries over a sentence encoder; `make hosts` tests those that are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shapevm import SentenceEncoder

from ..text import folders

PROGRAM = Path(__file__).with_name("text_program.py")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("text")
    folder = folders.write_encoder(place / "bert", prompts={"query": "query : ", "document": "passage : "})
    SentenceEncoder(folder).save(place / "model.svm")
    return place / "model.svm"


def test_sentence_transformers(model: Path, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from shapevm.integrations.sentence_transformers import ShapevmModule

    theirs = sentence_transformers.SentenceTransformer(modules=[ShapevmModule(model)], device="cpu")
    encoder, texts = SentenceEncoder(model), folders.texts(9)
    assert np.array_equal(theirs.encode(texts), encoder.encode(texts))
    assert np.array_equal(theirs.encode(texts, prompt="red "), encoder.encode(texts, prompt="red "))
    assert theirs.get_embedding_dimension() == 32
    assert theirs.max_seq_length == 24
    theirs.save(str(tmp_path / "saved"))
    again = sentence_transformers.SentenceTransformer(
        str(tmp_path / "saved"), device="cpu", trust_remote_code=True
    )
    assert np.array_equal(again.encode(texts), encoder.encode(texts))


@pytest.mark.parametrize("library", ["langchain", "llama_index", "chroma"])
def test_other_libraries(model: Path, library: str) -> None:
    python = os.environ.get("HOSTS_PYTHON")
    if python is None:
        pytest.skip("`make hosts` installs the libraries")
    done = subprocess.run([python, str(PROGRAM), library, str(model)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "right"


def test_the_program_of_other_libraries_is_python() -> None:
    subprocess.run([sys.executable, "-m", "py_compile", str(PROGRAM)], check=True)
