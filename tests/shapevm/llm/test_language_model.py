"""Texts from the folders of small models."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from shapevm.vm.errors import ArgumentError, FileError

from shapevm.llm import Ending, LanguageModel, Sampling, from_pretrained

from .folders import tokenizer, write_model

PROMPTS = ["abc", "hello world", "x"]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, LanguageModel]]:
    """Return transformers' model, and ours of its folder."""
    folder = tmp_path_factory.mktemp("models") / "little"
    reference = write_model(folder, "llama")
    with from_pretrained(folder, cache_tokens=512) as model:
        yield reference, model


def test_greedy_texts_are_those_of_transformers(opened: tuple[Any, LanguageModel]) -> None:
    reference, model = opened
    ids = tokenizer()
    made = model.generate(PROMPTS, max_new_tokens=24)
    for prompt, text in zip(PROMPTS, made, strict=True):
        given = torch.tensor([ids(prompt).input_ids])
        seen = torch.ones_like(given)  # a prompt may hold the token that pads
        wanted = reference.generate(given, attention_mask=seen, max_new_tokens=24, do_sample=False)[0]
        assert text == ids.decode(wanted[given.shape[1] :], skip_special_tokens=True)
        assert model.generate(prompt, max_new_tokens=24) == text
        assert "".join(model.stream(prompt, max_new_tokens=24)) == text


def test_a_seed_determines_a_text_whatever_runs_beside_it(opened: tuple[Any, LanguageModel]) -> None:
    _, model = opened
    how = {"max_new_tokens": 20, "temperature": 1.5, "top_p": 0.95}
    alone = [model.generate("abc", seed=seed, **how) for seed in range(4)]
    assert len(set(alone)) > 1
    made: dict[int, str] = {}

    def work(seed: int) -> None:
        made[seed] = model.generate("abc", seed=seed, **how)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [made[seed] for seed in range(4)] == alone


def test_a_text_ends_before_a_stop_string(opened: tuple[Any, LanguageModel]) -> None:
    _, model = opened
    whole = model.generate("abc", max_new_tokens=24)
    stop = whole[5:8]
    assert model.generate("abc", max_new_tokens=24, stop=[stop]) == whole[: whole.index(stop)]
    text = model.submit(model.encode("abc"), Sampling(24), Ending((stop,)))
    assert "".join(piece.text for piece in text) == whole[: whole.index(stop)]
    assert text.reason == "stop" and not model.engine.n_unfinished


def test_probabilities_are_those_of_the_logits(opened: tuple[Any, LanguageModel]) -> None:
    reference, model = opened
    tokens = model.encode("abc")
    (piece,) = [each for each in model.submit(tokens, Sampling(1), Ending(n_logprobs=3)) if each.token]
    with torch.no_grad():
        wanted = reference(torch.tensor([tokens])).logits[0, -1].log_softmax(-1)
    values, order = wanted.topk(3)
    assert piece.token is not None and piece.token == piece.top[0]
    assert [each.token for each in piece.top] == [tokenizer().decode([i]) for i in order]
    assert [each.logprob for each in piece.top] == pytest.approx(values.tolist(), rel=1e-4)


def test_conversations(opened: tuple[Any, LanguageModel]) -> None:
    _, model = opened
    messages = [{"role": "user", "content": "hello"}]
    prompt = "<user>hello\n<assistant>"
    assert model.encode_chat(messages) == model.encode(prompt)
    assert "".join(model.chat(messages, max_new_tokens=5)) == model.generate(prompt, max_new_tokens=5)


def test_a_stream_that_is_left_is_cancelled(opened: tuple[Any, LanguageModel]) -> None:
    _, model = opened
    stream = model.stream("abc", max_new_tokens=200)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert not model.engine.n_unfinished


def test_invalid_arguments_and_folders(opened: tuple[Any, LanguageModel], tmp_path: Path) -> None:
    _, model = opened
    with pytest.raises(ArgumentError, match="'heat' of sampling is unknown; known are max_new_tokens"):
        model.generate("abc", heat=1)
    with pytest.raises(ArgumentError, match="must be a string"):
        model.generate([3])  # type: ignore[list-item]
    with pytest.raises(FileError, match="cannot be read"):
        from_pretrained(tmp_path)
    write_model(tmp_path, "gpt2")
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ArgumentError, match="it must hold an object"):
        from_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "</s>"}}')
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    with from_pretrained(tmp_path) as plain, pytest.raises(ArgumentError, match="has no chat template"):
        plain.encode_chat([{"role": "user", "content": "x"}])
