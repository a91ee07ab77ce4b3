"""Routes of texts: embeddings, rerankers, text-embeddings-inference."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import shapevm

TEXTS = ["one", "a longer text of some words", "", "naïve ünïcode ✓", "x" * 500]


@pytest.fixture
def embedder(client, service, encoder):
    return client(service(encoder, "encoder"))


@pytest.fixture
def ranker(client, service, encoder):
    return client(service(encoder, "cross-encoder"))


def post(client, path, body, status=200):
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def vectors(found):
    return [np.array(row["embedding"], np.float32).tobytes() for row in found["data"]]


def test_embeddings(embedder):
    found = post(embedder, "/v1/embeddings", {"input": TEXTS, "model": "model"})
    assert [row["index"] for row in found["data"]] == list(range(5)) and found["model"] == "model"
    n = sum(min(64, 1 + len(text.encode())) for text in TEXTS)
    assert found["usage"] == {"prompt_tokens": n, "total_tokens": n}
    alone = [post(embedder, "/v1/embeddings", {"input": text}) for text in TEXTS]
    assert vectors(found) == [vector for each in alone for vector in vectors(each)]
    binary = post(embedder, "/v1/embeddings", {"input": TEXTS, "encoding_format": "base64"})
    assert [base64.b64decode(row["embedding"]) for row in binary["data"]] == vectors(found)


def test_token_ids(embedder):
    ids = [1, *b"one"]
    one = post(embedder, "/v1/embeddings", {"input": ids})
    two = post(embedder, "/v1/embeddings", {"input": [ids, [1]]})
    text = post(embedder, "/v1/embeddings", {"input": ["one", ""]})
    assert vectors(two) == vectors(text) and vectors(one) == vectors(text)[:1]
    for wrong in ([[]], [ids, "one"], [[-1]], [[1 << 31]], [[True]], [1.5], [[1] * 65], [1, "a"]):
        message = post(embedder, "/v1/embeddings", {"input": wrong}, 400)["error"]["message"]
        assert "must be" in message, message
    assert (
        "index" in post(embedder, "/v1/embeddings", {"input": [256]}, 400)["error"]["message"]
    )  # no such row


def test_dimensions(embedder):
    whole = post(embedder, "/v1/embeddings", {"input": "one"})["data"][0]["embedding"]
    cut = post(embedder, "/v1/embeddings", {"input": "one", "dimensions": 5})["data"][0]["embedding"]
    np.testing.assert_allclose(cut, np.array(whole[:5]) / np.linalg.norm(whole[:5]), rtol=1e-6)
    for wrong in (0, -1, 25, 1.5, "5", True):
        error = post(embedder, "/v1/embeddings", {"input": "one", "dimensions": wrong}, 400)["error"]
        assert "dimensions" in error["message"] and error["type"] == "invalid_request_error"


def test_embed(embedder):
    (one,) = post(embedder, "/embed", {"inputs": "one"})
    assert abs(np.linalg.norm(one) - 1) < 1e-6
    raw = post(embedder, "/embed", {"inputs": ["one", "two"], "normalize": False})
    assert np.array(raw, "f").tobytes() == b"".join(
        vectors(post(embedder, "/v1/embeddings", {"input": ["one", "two"]}))
    )


def test_models(embedder):
    assert [row["id"] for row in embedder.get("/v1/models").json()["data"]] == ["model"]
    assert embedder.get("/v1/models/model").json()["id"] == "model"
    assert embedder.get("/v1/models/other").status_code == 404


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_rerank(ranker, path):
    documents = ["b", "aaa", {"text": "c c"}]
    found = post(ranker, path, {"query": "q", "documents": documents, "return_documents": True})
    scores = [row["relevance_score"] for row in found["results"]]
    assert scores == sorted(scores, reverse=True) and {row["index"] for row in found["results"]} == {0, 1, 2}
    texts = ["b", "aaa", "c c"]
    assert all(row["document"] == {"text": texts[row["index"]]} for row in found["results"])
    top = post(ranker, path, {"query": "q", "documents": documents, "top_n": 1})["results"]
    assert [row["index"] for row in top] == [found["results"][0]["index"]]
    tei = post(ranker, path, {"query": "q", "texts": texts, "return_text": True})
    assert [row["score"] for row in tei] == scores and tei[0]["text"] == texts[tei[0]["index"]]


def test_predict(ranker):
    one = post(ranker, "/predict", {"inputs": "text"})
    pair = post(ranker, "/predict", {"inputs": ["text", "other"]})
    assert post(ranker, "/predict", {"inputs": [["text"], ["text", "other"]]}) == [one, pair]
    assert [row["label"] for row in one] == ["LABEL_0"]


EMBEDDINGS = {
    "no input": ({}, "'input' is missing"),
    "no texts": ({"input": []}, "an empty list"),
    "a number": ({"input": 1}, "a number"),
    "a null among texts": ({"input": ["a", None]}, "element 1 is null"),
    "another model": ({"input": "a", "model": "gpt"}, "model 'gpt' is unknown"),
    "another format": ({"input": "a", "encoding_format": "hex"}, "'float' or 'base64'"),
    "a field that nobody knows": ({"input": "a", "prompt": "b"}, "'prompt' is unknown"),
    "a list": ([], "must be an object"),
}


@pytest.mark.parametrize("case", EMBEDDINGS)
def test_refused_embeddings(embedder, case):
    body, part = EMBEDDINGS[case]
    answer = embedder.post("/v1/embeddings", json=body)
    assert answer.status_code == (404 if case == "another model" else 400)
    error = answer.json()["error"]
    assert part in error["message"] and set(error) == {"message", "type", "param", "code"}


RANKINGS = {
    "no query": ({"documents": ["a"]}, "'query' is missing"),
    "no documents": ({"query": "a", "documents": []}, "no documents"),
    "a document of numbers": ({"query": "a", "documents": ["a", 1]}, "document 1 is a number"),
    "an object without text": ({"query": "a", "documents": [{"title": "b"}]}, "document 0 is an object"),
    "none at all": ({"query": "a", "documents": ["a"], "top_n": 0}, "'top_n' is 0"),
    "raw scores": ({"query": "a", "texts": ["a"], "raw_scores": True}, "raw_scores"),
    "texts of objects": ({"query": "a", "texts": [{}]}, "element 0 is an object"),
}


@pytest.mark.parametrize("case", RANKINGS)
def test_refused_rankings(ranker, case):
    body, part = RANKINGS[case]
    found = post(ranker, "/rerank", body, 422)
    assert part in found["message"] and found["message"] == found["detail"] == found["error"]


def test_models_of_another_kind(embedder, ranker, client, linear):
    assert "needs cross-encoder" in post(embedder, "/rerank", {}, 404)["message"]
    assert "needs encoder" in post(ranker, "/v1/embeddings", {}, 404)["error"]["message"]
    assert "is no model of texts" in post(client(linear), "/embed", {}, 404)["error"]


def test_limits(client, service, encoder):
    served = client(service(encoder, "encoder", max_texts=3, max_tokens=20))
    assert "4 texts; the limit is 3" in post(served, "/embed", {"inputs": ["a"] * 4}, 413)["error"]
    assert "22 tokens; the limit is 20" in post(served, "/embed", {"inputs": ["a" * 10] * 2}, 413)["error"]
    post(served, "/embed", {"inputs": ["a" * 5] * 3})


def test_a_text_fails_alone(service, encoder, listening):
    one = service(encoder, "encoder", workers=1, max_wait=20)
    with listening(one) as http, ThreadPoolExecutor(12) as clients:
        texts = ["boom" if index % 5 == 3 else f"text {index}" for index in range(40)]
        answers = list(clients.map(lambda text: http.post("/v1/embeddings", json={"input": text}), texts))
        good = [answer for answer, text in zip(answers, texts, strict=True) if text != "boom"]
        assert {answer.status_code for answer in good} == {200}
        bad = [answer for answer, text in zip(answers, texts, strict=True) if text == "boom"]
        assert {answer.status_code for answer in bad} == {500}
        assert all(answer.json()["error"]["type"] == "server_error" for answer in bad)
        assert max(map(len, one.text.batches)) > 1


def test_the_same_bits_alone_and_in_any_batch(service, encoder, listening):
    one = service(encoder, "encoder", workers=2, batch_tokens=400, max_wait=1)
    random = np.random.default_rng(0)
    texts = ["".join(map(chr, random.integers(97, 123, random.integers(0, 70)))) for _ in range(60)]
    with shapevm.load(encoder, strategy="generic") as exe:
        expected = {}
        for text, tokens in zip(texts, one.text.tokenize(texts), strict=True):
            ids = np.array([tokens], np.int64)
            expected[text] = exe(ids, np.ones_like(ids)).tobytes()
    wrong = []

    def ask(http, seed):
        chosen = np.random.default_rng(seed).choice(texts, 7).tolist()
        body = {"input": chosen, "encoding_format": "base64"}
        found = http.post("/v1/embeddings", json=body).json()["data"]
        for text, row in zip(chosen, found, strict=True):
            if base64.b64decode(row["embedding"]) != expected[text]:
                wrong.append(text)

    with listening(one) as http, ThreadPoolExecutor(8) as clients:
        list(clients.map(lambda seed: ask(http, seed), range(60)))
    assert not wrong and max(map(len, one.text.batches)) > 7
    assert all(sum(len(text) + 1 for text in batch) <= 400 for batch in one.text.batches)


def test_a_client_that_leaves_is_not_run(service, encoder, listening):
    one = service(encoder, "encoder", workers=1)
    with listening(one) as http:
        held = threading.Thread(target=lambda: http.post("/embed", json={"inputs": "hold"}))
        held.start()
        while not one.text.batches:
            pass
        with pytest.raises(Exception, match="timed out"):
            http.post("/embed", json={"inputs": "left"}, timeout=0.2)
        while one.admission.running > 1:
            pass
        one.text.released.set()
        held.join(60)
        http.post("/embed", json={"inputs": "last"})
    assert one.text.batches == [["hold"], ["last"]]
