"""`CrossEncoder` against sentence-transformers' own class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shapevm import CrossEncoder, SentenceEncoder
from shapevm.errors import ArgumentError
from shapevm.text import open_text_model

from . import folders

sentence_transformers = pytest.importorskip("sentence_transformers")
HEAD = "AutoModelForSequenceClassification"


def _pairs(count: int = 12) -> list[tuple[str, str]]:
    texts = folders.texts(2 * count)
    return list(zip(texts[::2], texts[1::2], strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.write_model(tmp_path_factory.mktemp("cross") / "bert", "bert", HEAD, num_labels=1)


@pytest.fixture(scope="module")
def encoder(folder: Path) -> CrossEncoder:
    return CrossEncoder(folder)


@pytest.fixture(scope="module")
def known(folder: Path) -> Any:
    return sentence_transformers.CrossEncoder(str(folder), device="cpu")


def test_scores(encoder: CrossEncoder, known: Any) -> None:
    pairs = _pairs()
    found = encoder.predict(pairs)
    assert found.shape == (12,)
    assert np.allclose(found, known.predict(pairs), rtol=0, atol=1e-5)
    assert np.array_equal(found, [encoder.predict(pair) for pair in pairs])
    assert np.array_equal(found, encoder.run(encoder.tokenize(pairs))[:, 0])
    tensor = encoder.predict([list(pair) for pair in pairs], convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor) and np.array_equal(tensor, found)
    for function in (torch.nn.Identity(), lambda x: x):
        logits = encoder.predict(pairs, activation_fn=function)
        expected = known.predict(pairs, activation_fn=torch.nn.Identity())
        assert np.allclose(logits, expected, rtol=0, atol=1e-5)
    assert encoder.predict([]).shape == (0,)


def test_rank(encoder: CrossEncoder, known: Any) -> None:
    documents = folders.texts(8)
    found = encoder.rank("red cat", documents, return_documents=True, top_k=5)
    expected = known.rank("red cat", documents, return_documents=True, top_k=5)
    assert [row["corpus_id"] for row in found] == [row["corpus_id"] for row in expected]
    assert [row["text"] for row in found] == [row["text"] for row in expected]
    assert np.allclose([row["score"] for row in found], [row["score"] for row in expected], atol=1e-5)


def test_the_second_text_has_other_types(encoder: CrossEncoder) -> None:
    (tokens,) = encoder.tokenize([("cat", "dog")])
    assert tokens.types == [0, 0, 0, 1, 1] and len(tokens) == 5
    assert not np.array_equal(encoder.run([tokens]), encoder.run([list(tokens)]))


def test_several_labels_and_another_activation(tmp_path: Path) -> None:
    more = {"num_labels": 3, "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}
    folder = folders.write_model(tmp_path / "distilbert", "distilbert", HEAD, **more)
    known = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    encoder, pairs = CrossEncoder(folder), _pairs()
    assert encoder.num_labels == 3
    for how in ({}, {"apply_softmax": True}):
        assert np.allclose(encoder.predict(pairs, **how), known.predict(pairs, **how), rtol=0, atol=1e-5)
    with pytest.raises(ArgumentError, match="the model has 3 labels, so it does not rank; use predict"):
        encoder.rank("cat", ["dog"])


def test_one_file(encoder: CrossEncoder, tmp_path: Path) -> None:
    encoder.save(tmp_path / "model.svm")
    again = open_text_model(tmp_path / "model.svm")
    assert isinstance(again, CrossEncoder) and again.kind == "cross-encoder"
    assert np.array_equal(again.predict(_pairs()), encoder.predict(_pairs()))
    with pytest.raises(ArgumentError, match="open it with CrossEncoder"):
        SentenceEncoder(tmp_path / "model.svm")


def test_wrong_pairs(encoder: CrossEncoder) -> None:
    for wrong in ("ab", ("a",), ("a", 2), None):
        with pytest.raises(ArgumentError, match="pair 1 is .*; a cross-encoder takes pairs of texts"):
            encoder.predict([("a", "b"), wrong])  # type: ignore[list-item]
