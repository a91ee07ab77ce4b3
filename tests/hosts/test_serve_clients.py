"""Clients of other people against `shapevm serve`'s application, and dropped clients of a real server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shapevm
from shapevm.llm import Ending, Sampling, from_pretrained

from ..shapevm.llm.folders import write_model
from ..shapevm.serve.conftest import Lines, compiled_encoder, listening
from .test_servers import PYTHON

PROGRAM = Path(__file__).with_name("serve_clients.py")
pytestmark = pytest.mark.skipif(not PYTHON, reason="needs clients: make hosts")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_encoder(tmp_path_factory.mktemp("encoder") / "encoder.svm")


@pytest.fixture
def served(encoder: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """A server's model and a client of it."""
    from shapevm.serve.limits import Limits
    from shapevm.serve.models import Service

    kind, name = request.param
    text = Lines(shapevm.load(encoder), kind)
    service = Service(shapevm.load(encoder), name, Limits(workers=2), text)
    with listening(service) as http:
        yield service, http
    service.close()


def ask(name: str, http: Any) -> Any:
    command = [PYTHON, str(PROGRAM), name, str(http.base_url).rstrip("/")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("served", [("encoder", "encoder")], indirect=True)
def test_openai(served: Any) -> None:
    service, http = served
    (plain, floats, tokens), n_short, n_tokens, message = ask("openai", http)
    texts = ["one", "another text"]
    rows = service.text.run(service.text.tokenize(texts))
    for found in (plain, floats, tokens):
        assert np.array(found, np.float32).tobytes() == rows.tobytes()
    assert n_short == 3 and n_tokens == 4 + 13
    assert "empty list" in message and "model 'other' is unknown" in message


@pytest.fixture
def talking(tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """A language model and a client of its server."""
    from shapevm.llm import load
    from shapevm.serve.limits import Limits
    from shapevm.serve.models import Service

    write_model(tmp_path / "little", "llama", vocab_size=98)
    with from_pretrained(tmp_path / "little", cache_tokens=512) as model:
        model.save(tmp_path / "little.svm")
        served = load(tmp_path / "little.svm")
        service = Service(served.exe, served.name, Limits(), language=served)
        with listening(service) as http:
            yield model, http
        service.close()


def test_openai_texts(talking: Any) -> None:
    model, http = talking
    found = ask("openai_texts", http)
    said = [{"role": "user", "content": "hello"}]
    how = {"max_new_tokens": 9, "temperature": 1.5}
    texts = ["".join(model.chat(said, **how, seed=seed)) for seed in (5, 6)]
    assert found["many"] == texts and found["text"] == found["streamed"] == texts[0]
    assert found["reason"] == "length"
    made = model.submit(model.encode_chat(said), Sampling(**how, seed=5), Ending(n_logprobs=2))
    tokens = [piece.token for piece in made if piece.token is not None]
    assert found["logprobs"] == [[each.token, pytest.approx(each.logprob), 2] for each in tokens]
    counts = {"prompt_tokens": len(model.encode_chat(said)), "completion_tokens": 9}
    counts["total_tokens"] = sum(counts.values())
    assert found["usage"] == [counts, counts]
    stop, stopped, reason = found["stop"]
    assert stopped == texts[0][: texts[0].index(stop)] and reason == "stop"
    plain = model.generate("hello", max_new_tokens=9)
    whole, streamed, names, logprobs = found["completion"]
    assert whole == streamed == plain == "".join(names).replace("<s>", "") and len(logprobs) == 9
    assert "does not support tools" in found["message"]
    pet, streamed, begun, reason, refused = found["pets"]
    assert pet == streamed and reason == "stop" and set(json.loads(pet)) == {"name", "legs"}
    assert begun.startswith("{") and "the JSON schema is refused: Invalid type: strange" in refused


@pytest.mark.parametrize("served", [("cross-encoder", "ranker")], indirect=True)
def test_cohere(served: Any) -> None:
    service, http = served
    (old, new), message = ask("cohere", http)
    scores = service.text.run(service.text.tokenize([("q", text) for text in ("b", "aaa", "c c")]))[:, 0]
    best = sorted(range(3), key=lambda index: -scores[index])[:2]
    assert old == new and [index for index, _ in old] == best
    assert np.array([score for _, score in old], np.float32).tobytes() == scores[best].tobytes()
    assert "no documents" in message


@pytest.mark.parametrize("served", [("encoder", "encoder")], indirect=True)
def test_tritonclient(served: Any) -> None:
    service, http = served
    found, message = ask("tritonclient", http)
    expected = service.text.run([[1, *b"one"]])
    assert len(found) == 4
    for each in found:
        assert np.array(each, np.float32).tobytes() == expected.tobytes()
    assert "rank" in message or "axes" in message or "axis" in message


@pytest.mark.parametrize("served", [("encoder", "encoder")], indirect=True)
def test_a_hundred_dropped_clients(served: Any) -> None:
    """Other clients' answers are right meanwhile, and nothing of the dropped ones is left."""
    service, http = served
    body = json.dumps({"inputs": [f"text {index}" for index in range(50)]}).encode()
    given = b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    expected = http.post("/embed", json={"inputs": "kept"}).json()
    for trial in range(100):
        with socket.create_connection(("127.0.0.1", http.base_url.port)) as link:
            link.sendall(given[: len(given) * (trial + 1) // 100])
            time.sleep(trial % 7 / 1000)
        assert http.post("/embed", json={"inputs": "kept"}).json() == expected
    limit = time.monotonic() + 60
    while service.admission.running:
        assert time.monotonic() < limit
        time.sleep(0.01)
    assert service.admission._held == 0 and not service.text_batcher._waiting
    assert service.text_batcher._tokens == 0
