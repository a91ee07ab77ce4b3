"""Real models of texts, from files that `save` wrote, through the server: the bits of their own methods."""

import base64

import numpy as np
import pytest
from starlette.testclient import TestClient

import shapevm
from shapevm.cli.serving import _service
from shapevm.serve.app import application
from shapevm.serve.limits import Limits

from ..text import folders
from .conftest import listening

TEXTS = ["the cat sat on the mat", "a dog", "one two three " * 40, ""]


@pytest.fixture
def opened(tmp_path):
    """Return a function that makes the service of a model's file."""
    made = []

    def opened(model):
        model.save(tmp_path / "model.svm")
        made.append(
            _service(shapevm.load(tmp_path / "model.svm", strategy="generic"), None, Limits(workers=2))
        )
        return made[-1]

    yield opened
    for each in made:
        each.close()


@pytest.fixture
def served(opened):
    """Return a function that serves a model's file in this process."""
    return lambda model: TestClient(application(opened(model)))


def test_an_encoder(served, tmp_path):
    model = shapevm.SentenceEncoder(folders.write_encoder(tmp_path / "bert"))
    body = {"input": TEXTS, "encoding_format": "base64", "model": "model"}
    client = served(model)
    found = client.post("/v1/embeddings", json=body).json()["data"]
    expected = model.encode(TEXTS)
    assert [base64.b64decode(row["embedding"]) for row in found] == [row.tobytes() for row in expected]
    answer = client.post("/v1/embeddings", json={"input": [[1 << 20]]})
    assert answer.status_code == 400 and "token" in answer.json()["error"]["message"]
    assert client.get("/v2/models/model").json()["inputs"][0]["datatype"] == "INT64"
    assert client.get("/info").json()["max_input_length"] == model.max_length


def test_embed_all(opened, tmp_path):
    model = shapevm.SentenceEncoder(folders.write_encoder(tmp_path / "bert"), token_embeddings=True)
    with listening(opened(model)) as client:
        found = client.post("/embed_all", json={"inputs": TEXTS}).json()
        alone = client.post("/embed_all", json={"inputs": TEXTS[0]}).json()
        pooled = client.post("/embed", json={"inputs": TEXTS, "normalize": False}).json()
    expected = model.encode(TEXTS, output_value="token_embeddings")
    assert [np.array(row, np.float32).tobytes() for row in found] == [row.tobytes() for row in expected]
    assert alone == found[:1]
    assert np.array(pooled, np.float32).tobytes() == model.encode(TEXTS).tobytes()


def test_embed_all_of_a_program_without_tokens(served, tmp_path):
    client = served(shapevm.SentenceEncoder(folders.write_encoder(tmp_path / "bert")))
    answer = client.post("/embed_all", json={"inputs": "a"})
    assert answer.status_code == 422 and "token_embeddings=True" in answer.json()["error"]


def test_tokenize(opened, tmp_path):
    folder = folders.write_encoder(tmp_path / "bert", prompts={"query": "red "})
    model = shapevm.SentenceEncoder(folder)
    with listening(opened(model)) as client:
        (row,) = client.post("/tokenize", json={"inputs": "the cat"}).json()
        (plain,) = client.post("/tokenize", json={"inputs": ["cat"], "add_special_tokens": False}).json()
        long = client.post("/tokenize", json={"inputs": ["cat " * 99, "dog"], "prompt_name": "query"}).json()
        wrong = client.post("/tokenize", json={"inputs": "cat", "prompt_name": "other"})
    assert [token["id"] for token in row] == model.tokenize(["the cat"])[0]
    assert [token["special"] for token in row] == [True, False, False, True]
    assert row[0] == {"id": row[0]["id"], "text": "[CLS]", "special": True, "start": None, "stop": None}
    assert [(token["text"], token["start"], token["stop"]) for token in row[1:3]] == [
        ("the", 0, 3), ("cat", 4, 7),
    ]  # fmt: skip
    assert [token["text"] for token in plain] == ["cat"] and len(long[0]) == 102
    assert [token["text"] for token in long[1]] == ["[CLS]", "red", "dog", "[SEP]"]
    assert wrong.status_code == 422 and "prompt_name 'other' is unknown" in wrong.json()["error"]


def test_a_cross_encoder(served, tmp_path):
    folder = folders.write_model(
        tmp_path / "bert", "bert", "AutoModelForSequenceClassification", num_labels=1
    )
    model = shapevm.CrossEncoder(folder)
    found = served(model).post("/rerank", json={"query": "a cat", "documents": TEXTS}).json()["results"]
    scores = np.asarray(model.predict([("a cat", text) for text in TEXTS]), np.float32)
    assert [row["index"] for row in found] == np.argsort(-scores, kind="stable").tolist()
    assert (
        np.array([row["relevance_score"] for row in found], np.float32).tobytes()
        == scores[[row["index"] for row in found]].tobytes()
    )
