"""Chat completions and completions, with a model that says what it is told."""

import json
import threading
import time

import httpx2
import pytest
from shapevm.vm.errors import ArgumentError

from shapevm.llm import Ending, Piece, Probability, Sampling
from shapevm.serve.models import Service

from .conftest import listening

WORDS = ["one", " two", " three", " four", " five"]


class Text:
    """A generation of `WORDS`; `gate` holds each piece back until it is set."""

    def __init__(self, model, sampling, ending, words):
        self.model, self.sampling, self.ending, self.words = model, sampling, ending, words
        self.n_tokens, self.reason, self.is_cancelled = 0, "length", False

    def __iter__(self):
        for word in self.words:
            assert self.model.gate.wait(60)
            if self.is_cancelled:
                return
            if "boom" in word:
                raise RuntimeError("a defect of the model")
            if any(stop in word for stop in self.ending.stop):
                self.reason = "stop"
                return
            self.n_tokens += 1
            token = Probability(word, -0.5) if self.ending.n_logprobs is not None else None
            yield Piece(word, token, [token] * (self.ending.n_logprobs or 0))

    def cancel(self):
        self.is_cancelled = True


class Speaker:
    """A language model for tests."""

    kind, name, max_length = "language model", "speaker", 64

    def __init__(self):
        self.gate, self.begun = threading.Event(), []
        self.gate.set()

    def close(self):
        self.gate.set()

    def encode(self, text):
        return list(text.encode())

    def encode_chat(self, messages):
        return self.encode("".join(f"<{each['role']}>{each['content']}" for each in messages))

    def submit(self, tokens, sampling, ending, grammar=None):
        if len(tokens) > self.max_length:
            raise ArgumentError(f"the prompt has {len(tokens)} tokens; the most are {self.max_length}")
        words = [" boom"] if b"boom" in bytes(tokens) else WORDS[: sampling.max_new_tokens]
        self.begun.append(Text(self, sampling, ending, words))
        self.begun[-1].grammar = grammar
        return self.begun[-1]


@pytest.fixture
def speaker(service, linear):
    """A service of a language model."""
    made = service(linear)
    made.language = Speaker()
    yield made
    made.language.gate.set()


def events(answer):
    lines = [line for line in answer.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


CHAT = {"messages": [{"role": "user", "content": "hello"}]}


def test_a_conversation(client, speaker):
    body = client(speaker).post("/v1/chat/completions", json=CHAT).json()
    assert body["object"] == "chat.completion" and body["model"] == "model"
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "".join(WORDS), "refusal": None}
    assert choice["finish_reason"] == "length" and choice["logprobs"] is None
    assert body["usage"] == {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}


def test_a_streamed_conversation(client, speaker):
    given = {**CHAT, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 2, "n": 2}
    answer = client(speaker).post("/v1/chat/completions", json=given)
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = events(answer)
    assert {part["object"] for part in parts} == {"chat.completion.chunk"}
    assert len({part["id"] for part in parts}) == 1
    for index in (0, 1):
        rows = [row for part in parts for row in part["choices"] if row["index"] == index]
        assert rows[0]["delta"] == {"role": "assistant", "content": ""}
        assert [row["delta"].get("content") for row in rows[1:]] == ["one", " two", None]
        assert [row["finish_reason"] for row in rows] == [None, None, None, "length"]
    assert parts[-1]["choices"] == [] and parts[-1]["usage"]["completion_tokens"] == 4


def test_completions_of_several_prompts(client, speaker):
    given = {"prompt": ["a", [1, 2, 3]], "max_tokens": 3, "stop": " three", "logprobs": 1, "seed": 7, "n": 2}
    body = client(speaker).post("/v1/completions", json=given).json()
    assert [row["text"] for row in body["choices"]] == ["one two"] * 4
    assert [row["finish_reason"] for row in body["choices"]] == ["stop"] * 4
    assert body["choices"][0]["logprobs"] == {
        "tokens": ["one", " two"], "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"one": -0.5}, {" two": -0.5}],
    }  # fmt: skip
    assert [each.sampling.seed for each in speaker.language.begun] == [7, 8, 7, 8]
    parts = events(client(speaker).post("/v1/completions", json={"prompt": "a", "stream": True}))
    assert "".join(row["text"] for part in parts for row in part["choices"]) == "".join(WORDS)


def test_sampling_is_what_the_request_says(client, speaker):
    chosen = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "repetition_penalty": 1.1}
    given = {
        **CHAT, **chosen, "logprobs": True, "top_logprobs": 2, "max_completion_tokens": 1, "max_tokens": 4,
        "seed": -1,
    }  # fmt: skip
    body = client(speaker).post("/v1/chat/completions", json=given).json()
    (row,) = body["choices"][0]["logprobs"]["content"]
    assert row["token"] == "one" and row["bytes"] == [111, 110, 101] and len(row["top_logprobs"]) == 2
    begun = speaker.language.begun[0]
    assert begun.sampling == Sampling(1, **chosen, seed=(1 << 63) - 1) and begun.ending == Ending((), 2)
    for _ in range(2):
        client(speaker).post("/v1/chat/completions", json={**CHAT, "temperature": None})
    first, second = (each.sampling for each in speaker.language.begun[1:])
    assert first.temperature == second.temperature == 1 and first.seed != second.seed


FORMATS = [
    (None, None),
    ({"type": "text"}, None),
    ({"type": "json_object"}, {"type": "object"}),
    ({"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1]}, "strict": True}},
     {"enum": [1]}),
    ({"type": "grammar", "grammar": 'start: "a"'}, 'start: "a"'),
]  # fmt: skip


@pytest.mark.parametrize(("form", "grammar"), FORMATS)
def test_the_format_of_a_text(client, speaker, form, grammar):
    for path, given in (("chat/completions", CHAT), ("completions", {"prompt": "a"})):
        answer = client(speaker).post(f"/v1/{path}", json={**given, "response_format": form})
        assert answer.status_code == 200, answer.text
    assert [each.grammar for each in speaker.language.begun] == [grammar, grammar]


@pytest.mark.parametrize(
    ("path", "given", "said"),
    [
        ("chat/completions", {"messages": []}, "at least one message"),
        ("chat/completions", {"messages": ["x"]}, "message 0 is a string"),
        ("chat/completions", {"messages": [{"role": "user", "content": 3}]}, "'content' is a number"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "give texts only",
        ),
        ("chat/completions", {**CHAT, "tools": [{}]}, "does not support tools"),
        ("chat/completions", {**CHAT, "presence_penalty": 1}, "use repetition_penalty"),
        ("chat/completions", {**CHAT, "stop": ["a"] * 5}, "at most 4 strings"),
        ("chat/completions", {**CHAT, "temperature": 3}, "a number from 0 to 2"),
        ("chat/completions", {**CHAT, "response_format": {}}, "field 'response_format' must have the type"),
        ("completions", {"prompt": "a", "response_format": {"type": "json_schema"}}, "that has a 'schema'"),
        ("completions", {"prompt": "a", "response_format": {"type": "xml"}}, "must have the type"),
        ("chat/completions", {**CHAT, "stream_options": {"x": 1}}, "field 'x' is unknown"),
        ("completions", {"prompt": []}, "a list of 1 to"),
        ("completions", {"prompt": [[-1]]}, "element 0 is neither"),
        ("completions", {"prompt": "a", "n": 17}, "from 1 to 16"),
        ("completions", {"prompt": "a" * 65}, "the prompt has 65 tokens"),
        ("completions", {"prompt": ["a", "a" * 65], "stream": True}, "the prompt has 65 tokens"),
    ],
)
def test_invalid_requests(client, speaker, path, given, said):
    answer = client(speaker).post(f"/v1/{path}", json=given)
    assert answer.status_code == 400 and said in answer.json()["error"]["message"], answer.text
    assert all(each.is_cancelled for each in speaker.language.begun)


def test_other_models_are_named(client, service, linear):
    answer = client(service(linear)).post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 404 and "no language model" in answer.json()["error"]["message"]


def test_an_error_in_a_stream_is_its_last_event(client, speaker):
    given = {"prompt": "boom", "stream": True}
    parts = events(client(speaker).post("/v1/completions", json=given))
    assert list(parts[-1]) == ["error"] and "the server failed" in parts[-1]["error"]["message"]
    assert client(speaker).post("/v1/completions", json={"prompt": "boom"}).status_code == 500


def test_a_stream_that_takes_too_long(client, service, linear):
    made: Service = service(linear, timeout=0.2)
    made.language = Speaker()
    made.language.gate.clear()
    parts = events(client(made).post("/v1/completions", json={"prompt": "a", "stream": True}))
    made.language.gate.set()
    assert "took longer than 0.2 s" in parts[-1]["error"]["message"]
    assert made.language.begun[0].is_cancelled


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_text(speaker, stream):
    speaker.language.gate.clear()
    given = {"prompt": "a", "stream": stream}
    with listening(speaker) as client:
        with (
            pytest.raises(httpx2.TimeoutException),
            client.stream("POST", "/v1/completions", json=given, timeout=0.5) as answer,
        ):
            list(answer.iter_bytes())
        limit = time.monotonic() + 30
        while not speaker.language.begun[0].is_cancelled or speaker.admission.running:
            assert time.monotonic() < limit
            time.sleep(0.01)
    assert not speaker.admission.running
