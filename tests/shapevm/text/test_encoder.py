"""`SentenceEncoder` against sentence-transformers' own class, and a text alone against any batch."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shapevm
from shapevm import SentenceEncoder
from shapevm.errors import ArgumentError, ArtifactError

from . import folders

sentence_transformers = pytest.importorskip("sentence_transformers")
PROMPTS = {"query": "query : ", "passage": "passage : "}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.write_encoder(tmp_path_factory.mktemp("encoder") / "bert", prompts=PROMPTS)


@pytest.fixture(scope="module")
def encoder(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder, token_embeddings=True)


@pytest.fixture(scope="module")
def known(folder: Path) -> Any:
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


def _close(found: Any, expected: Any) -> bool:
    return np.allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.drawn
@pytest.mark.parametrize("family", folders.FAMILIES)
def test_families(family: str, tmp_path: Path) -> None:
    folder = folders.write_encoder(tmp_path / family, family)
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    encoder, texts = SentenceEncoder(folder), folders.texts()
    assert _close(encoder.encode(texts), expected.encode(texts))
    alone = np.stack([encoder.encode(text) for text in texts])
    encoder.max_tokens, encoder.threads = 100, 2
    assert np.array_equal(encoder.encode(texts), alone)
    assert np.array_equal(encoder.encode(texts[::-1]), alone[::-1])
    assert np.array_equal(encoder.run(encoder.tokenize(texts)), alone)


MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


@pytest.mark.drawn
@pytest.mark.parametrize("mode", [*MODES, ["cls", "mean"]])
def test_pooling(mode: Any, tmp_path: Path) -> None:
    pooling = {"embedding_dimension": 32, "pooling_mode": mode}
    folder = folders.write_encoder(tmp_path / "model", pooling=pooling)
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    encoder, texts = SentenceEncoder(folder), folders.texts(12)
    found = encoder.encode(texts)
    assert _close(found, expected.encode(texts))
    assert encoder.get_sentence_embedding_dimension() == expected.get_embedding_dimension()
    assert np.array_equal(found, np.stack([encoder.encode(text) for text in texts]))


def test_modules_behind_the_pooling(tmp_path: Path) -> None:
    from sentence_transformers import models

    place = folders.write_model(tmp_path / "transformer", "bert")
    transformer = models.Transformer(str(place))
    torch.manual_seed(1)
    modules = [
        transformer, models.Pooling(32, "mean"), models.Dense(32, 12), models.Dropout(0.2),
        models.Dense(12, 12, use_residual=True, activation_function=torch.nn.GELU()),
        models.LayerNorm(12), models.Dense(12, 9, bias=False, use_residual=True), models.Normalize(),
    ]  # fmt: skip
    expected = sentence_transformers.SentenceTransformer(modules=modules, device="cpu").eval()
    expected.save(str(tmp_path / "model"))
    encoder, texts = SentenceEncoder(tmp_path / "model"), folders.texts(9)
    assert encoder.encode(texts).shape == (9, 9)
    assert _close(encoder.encode(texts), expected.encode(texts))


def test_a_folder_without_modules_has_their_mean(tmp_path: Path) -> None:
    folder = folders.write_model(tmp_path / "model", "bert")
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    encoder, texts = SentenceEncoder(folder), folders.texts(9)
    assert _close(encoder.encode(texts), expected.encode(texts))
    assert encoder.max_seq_length == expected.max_seq_length == 70


@pytest.mark.parametrize("form", ["numpy", "tensor", "tensors"])
@pytest.mark.parametrize("many", [True, False])
def test_forms_of_results(encoder: SentenceEncoder, known: Any, form: str, many: bool) -> None:
    given = folders.texts(5) if many else folders.texts(5)[1]
    how = {"convert_to_tensor": form == "tensor", "convert_to_numpy": form == "numpy"}
    found, expected = encoder.encode(given, **how), known.encode(given, **how)
    assert type(found) is type(expected)
    assert np.shape(found) == np.shape(expected) if form != "tensors" else len(found) == len(expected)
    pairs = zip(found, expected, strict=True) if many else [(found, expected)]
    assert all(type(a) is type(b) and _close(a, b) for a, b in pairs)


def test_prompts_and_dimensions(encoder: SentenceEncoder, known: Any) -> None:
    texts = folders.texts(5)
    assert encoder.prompts == known.prompts == {"document": "", **PROMPTS}
    assert _close(encoder.encode_query(texts), known.encode_query(texts))
    assert _close(encoder.encode_document(texts), known.encode_document(texts))
    assert _close(encoder.encode(texts, prompt="red "), known.encode(texts, prompt="red "))
    assert _close(encoder.encode(texts, prompt_name="query"), known.encode(texts, prompt_name="query"))
    assert not _close(encoder.encode_query(texts), encoder.encode(texts))
    for how in ({"truncate_dim": 7}, {"truncate_dim": 7, "normalize_embeddings": True}):
        assert _close(encoder.encode(texts, **how), known.encode(texts, **how))
    with pytest.raises(ArgumentError, match="prompt_name 'q' is unknown; known are query, document, passage"):
        encoder.encode(texts, prompt_name="q")


def test_a_default_prompt(tmp_path: Path) -> None:
    said = {"prompts": PROMPTS, "default_prompt_name": "query", "similarity_fn_name": "dot"}
    folder = folders.write_encoder(tmp_path / "model", **said)
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    encoder = SentenceEncoder(folder)
    assert _close(encoder.encode(["red cat"]), expected.encode(["red cat"]))
    assert encoder.similarity_fn_name == "dot"
    encoder.save(tmp_path / "model.svm")
    again = SentenceEncoder(tmp_path / "model.svm")
    assert np.array_equal(again.encode(["red cat"]), encoder.encode_query(["red cat"]))


@pytest.mark.parametrize("precision", ["float32", "int8", "uint8", "binary", "ubinary"])
def test_precision(precision: Any) -> None:
    from sentence_transformers.util.quantization import quantize_embeddings

    from shapevm.text.similarity import quantised

    embeddings = np.random.default_rng(0).standard_normal((120, 20)).astype(np.float32)
    embeddings[:, 3] = 2
    found, expected = quantised(embeddings, precision), quantize_embeddings(embeddings, precision)
    assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_precision_of_few_texts(encoder: SentenceEncoder, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "shapevm"):
        assert encoder.encode(folders.texts(5), precision="int8").dtype == np.int8
    assert "the ranges of int8 are those of only 5 embeddings" in caplog.text
    assert encoder.encode("cat", precision="ubinary").shape == (4,)
    with pytest.raises(ArgumentError, match="precision 'uint8': one embedding has no range"):
        encoder.encode("cat", precision="uint8")
    with pytest.raises(ArgumentError, match="precision 'f16' is unknown; known are float32, int8"):
        encoder.encode("cat", precision="f16")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarity(known: Any, name: str) -> None:
    from shapevm.text import similarity

    random = np.random.default_rng(0)
    a, b = (random.standard_normal((n, 6)).astype(np.float32) for n in (4, 5))
    other = copy.copy(known)
    other.similarity_fn_name = name
    assert np.allclose(similarity.similarity(name, a, b), other.similarity(a, b), atol=1e-5)
    pairwise = similarity.similarity_pairwise(name, a, b[:4])
    assert np.allclose(pairwise, other.similarity_pairwise(a, b[:4]), atol=1e-5)
    assert similarity.similarity(name, a[:0], b).shape == (0, 5)


def test_token_embeddings(encoder: SentenceEncoder, known: Any, folder: Path) -> None:
    texts = folders.texts(6)
    found = encoder.encode(texts, output_value="token_embeddings")
    expected = known.encode(texts, output_value="token_embeddings")
    assert all(a.shape == b.shape and _close(a, b) for a, b in zip(found, expected, strict=True))
    assert encoder.encode("cat", output_value="token_embeddings").shape == (3, 32)
    with pytest.raises(ArgumentError, match="output_value is 'x'; it must be 'sentence_embedding' or"):
        encoder.encode("cat", output_value="x")  # type: ignore[arg-type]
    plain = SentenceEncoder(folder)
    with pytest.raises(ArgumentError, match="the program returns no token embeddings: compile it with"):
        plain.encode("cat", output_value="token_embeddings")


def test_tokens(encoder: SentenceEncoder, known: Any) -> None:
    texts = folders.texts(6)
    features = known.preprocess(texts)
    for tokens, ids, mask in zip(
        encoder.tokenize(texts), features["input_ids"], features["attention_mask"], strict=True
    ):
        assert list(tokens) == ids[mask == 1].tolist()
    assert encoder.max_length == encoder.max_seq_length == 24
    assert max(map(len, encoder.tokenize(["cat " * 99]))) == 24
    shorter = copy.copy(encoder)
    shorter.max_seq_length = 5
    assert len(shorter.tokenize(["cat " * 99])[0]) == 5
    for wrong in (0, 25, True, 2.0):
        with pytest.raises(ArgumentError, match="it must be a whole number from 1 to 24"):
            shorter.max_seq_length = wrong  # type: ignore[assignment]


def test_ids_instead_of_texts(encoder: SentenceEncoder) -> None:
    tokens = encoder.tokenize(["red cat", "dog"])
    expected = encoder.encode(["red cat", "dog"])
    assert np.array_equal(encoder.run([list(each) for each in tokens]), expected)
    assert encoder.run([]).shape == (0, 32) and encoder.encode([]).shape == (0, 32)
    assert np.isfinite(encoder.run([[], [5]])).all()
    with pytest.raises(ArgumentError, match="text 1 has 25 tokens; it may have at most 24"):
        encoder.run([[1], [1] * 25])
    for wrong in (-1, 48, 1.0, True, "a", 1 << 70):
        with pytest.raises(ArgumentError, match="text 1 has the token .*; token ids are 0 to 47"):
            encoder.run([[1], [2, wrong]])  # type: ignore[list-item]


def test_wrong_arguments(encoder: SentenceEncoder) -> None:
    with pytest.raises(ArgumentError, match="text 1 is 3; an encoder takes texts"):
        encoder.encode(["cat", 3])  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match="device is 'cuda'; programs run on the CPU"):
        encoder.encode("cat", device="cuda")
    with pytest.raises(ArgumentError, match="max_rows is 0; it must be a whole number"):
        encoder.encode("cat", batch_size=0)
    assert encoder.encode("cat", device=torch.device("cpu"), show_progress_bar=True).shape == (32,)


def test_one_file(encoder: SentenceEncoder, tmp_path: Path) -> None:
    from shapevm.text import open_text_model

    encoder.save(tmp_path / "model.svm")
    texts = folders.texts(7)
    for again in (
        SentenceEncoder(tmp_path / "model.svm"),
        SentenceEncoder(shapevm.load(tmp_path / "model.svm", native_code=False)),
        open_text_model(tmp_path / "model.svm"),
    ):
        assert isinstance(again, SentenceEncoder)
        assert np.array_equal(again.encode_query(texts), encoder.encode_query(texts))
        assert (again.name, again.kind, again.max_length) == ("bert", "encoder", 24)
    with pytest.raises(ArgumentError, match="model is a model of another kind; open it with SentenceEncoder"):
        shapevm.CrossEncoder(tmp_path / "model.svm")
    with pytest.raises(ArgumentError, match="options are those of a compilation"):
        SentenceEncoder(tmp_path / "model.svm", options=shapevm.Options())
    encoder.executable.save(tmp_path / "program.svm")
    with pytest.raises(ArtifactError, match="program holds no text model: save one with SentenceEncoder"):
        SentenceEncoder(tmp_path / "program.svm")
    with pytest.raises(shapevm.errors.FileError, match="cannot be written"):
        encoder.save(tmp_path / "missing" / "model.svm")
