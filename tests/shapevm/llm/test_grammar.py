"""Grammars and JSON schemas: a model of random weights makes what they allow, and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapevm.vm.errors import ArgumentError

from shapevm.llm import LanguageModel, from_pretrained
from shapevm.llm.artifact import arguments_of
from shapevm.llm.sampling import Sampling

from .folders import write_model

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "kind": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["name", "age", "kind", "tags"],
    "additionalProperties": False,
}
LARK = 'start: ("ab" | "ba")~3 "."'
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0, "seed": 3},
    {"temperature": 2.0, "top_k": 3, "seed": 4},
    {"temperature": 1.0, "top_p": 0.5, "min_p": 0.1, "repetition_penalty": 1.3, "seed": 5},
]


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def model(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    """A model whose vocabulary is larger than its tokenizer's."""
    folder = tmp_path_factory.mktemp("models") / "little"
    write_model(folder, request.param, vocab_size=100)
    with from_pretrained(folder, cache_tokens=1024) as opened:
        yield opened


@pytest.mark.parametrize("how", WAYS)
def test_texts_are_json_of_the_schema(model: LanguageModel, how: dict[str, Any]) -> None:
    for text in model.generate(["abc", "hello world"], grammar=SCHEMA, max_new_tokens=150, **how):
        found = json.loads(text)
        assert list(found) == list(SCHEMA["required"])
        assert len(found["name"]) <= 8 and 0 <= found["age"] <= 130 and found["kind"] in ("cat", "dog")
        assert len(found["tags"]) <= 2 and all(isinstance(each, bool) for each in found["tags"])


@pytest.mark.parametrize("how", WAYS)
def test_texts_are_of_the_grammar(model: LanguageModel, how: dict[str, Any]) -> None:
    texts = [model.generate("abc", grammar=LARK, **how), "".join(model.stream("x", grammar=LARK, **how))]
    texts.append("".join(model.chat([{"role": "user", "content": "x"}], grammar=LARK, **how)))
    assert all(re.fullmatch(r"(ab|ba){3}\.", text) for text in texts), texts


def test_a_text_ends_with_its_grammar_and_only_there(model: LanguageModel) -> None:
    made = model.submit(model.encode("abc"), Sampling(30), grammar=LARK)
    assert len("".join(made.texts())) == 7 and made.reason == "stop"
    made = model.submit(model.encode("abc"), Sampling(7), grammar=LARK)
    assert len("".join(made.texts())) == 7 and made.reason == "stop"
    made = model.submit(model.encode("abc"), Sampling(6), grammar=LARK)
    assert re.fullmatch("(ab|ba){3}", "".join(made.texts())) and made.reason == "length"


def test_company_changes_no_bit(model: LanguageModel) -> None:
    alone = [model.generate("abc", grammar=SCHEMA, max_new_tokens=150, **how) for how in WAYS]
    free = model.generate("abc", max_new_tokens=50, temperature=1.0)
    how = [Sampling(150, **each) for each in WAYS]
    made = [model.submit(model.encode("abc"), each, grammar=SCHEMA) for each in how]
    beside = model.submit(model.encode("abc"), Sampling(50, temperature=1.0))
    assert ["".join(each.texts()) for each in made] == alone and "".join(beside.texts()) == free


@pytest.mark.parametrize("how", WAYS)
def test_a_token_is_drawn_as_if_the_others_had_no_probability(
    model: LanguageModel, how: dict[str, Any]
) -> None:
    rng = np.random.default_rng(1)
    for position in range(1, 30):
        logits = rng.standard_normal(100).astype(np.float32)
        mask = rng.random((1, 100)) < 0.1
        mask[0, position] = True
        tokens = rng.integers(0, 100, position)
        given = arguments_of(logits, Sampling(**how), tokens, mask)
        token = model.exe.call("sample", **given)["token"]
        low = np.where(mask[0], logits, -np.inf).astype(np.float32)
        wanted = model.exe.call("sample", **arguments_of(low, Sampling(**how), tokens))["token"]
        assert mask[0, token[0]] and token == wanted


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ({"type": "strange"}, "the JSON schema is refused: Invalid type: strange"),
        ({"not": {"type": "string"}}, "the JSON schema is refused: Unimplemented keys"),
        ({"$ref": "http://example.com/x"}, "the JSON schema is refused: Resource"),
        ({"type": {1, 2}}, "the JSON schema is refused"),
        ("start: /(/", "the grammar is refused: at 1"),
        ("", "the grammar is refused: Empty grammar"),
        (3, "grammar is 3; it must be a JSON schema, as a dict, or a grammar in Lark's form, as a string"),
    ],
)
def test_refusals_are_one_sentence(model: LanguageModel, grammar: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(said)) as found:
        model.generate("abc", grammar=grammar)
    assert "\n" not in str(found.value)
    assert not model.engine.n_unfinished


def test_deep_schemas_are_refused(model: LanguageModel) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(20_000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ArgumentError, match="the JSON schema is refused"):
        model.generate("abc", grammar=schema)


def test_a_grammar_that_no_token_continues_ends_in_a_sentence(model: LanguageModel) -> None:
    with pytest.raises(ArgumentError, match="the grammar cannot be followed with this model's tokens"):
        model.generate("abc", grammar='start: "ab" "\N{SNOWMAN}"')


def test_a_model_without_stop_tokens_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path, "llama", eos_token_id=None)
    (tmp_path / "generation_config.json").unlink()
    with (
        from_pretrained(tmp_path, cache_tokens=64) as plain,
        pytest.raises(ArgumentError, match="names no token that ends a text"),
    ):
        plain.generate("abc", grammar=LARK)


def test_the_package_is_read_only_when_it_is_used(model: LanguageModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model.svm")
    program = """
import sys
from shapevm.llm import load
model = load(sys.argv[1])
model.generate("abc", max_new_tokens=2)
assert "llguidance" not in sys.modules
sys.modules["llguidance"] = None  # as if it were not installed
try:
    model.generate("abc", grammar={})
except Exception as error:
    print(type(error).__name__, error)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "model.svm")]
    done = subprocess.run(command, capture_output=True, text=True)
    wanted = "ArgumentError grammars need the package llguidance: pip install 'shapevm[grammar]'\n"
    assert done.stdout == wanted, done.stderr
