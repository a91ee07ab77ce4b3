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

TEXTS = ["the cat sat on the mat", "a dog", "one two three " * 40, ""]


@pytest.fixture
def served(tmp_path):
    """Return a function that serves a model's file."""
    made = []

    def served(model):
        model.save(tmp_path / "model.svm")
        made.append(
            _service(shapevm.load(tmp_path / "model.svm", strategy="generic"), None, Limits(workers=2))
        )
        return TestClient(application(made[-1]))

    yield served
    for each in made:
        each.close()


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
