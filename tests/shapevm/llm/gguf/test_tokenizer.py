"""Tokenizers of GGUF files: by scores against a plain definition, of bytes against the package tokenizers."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from shapevm.vm.errors import ArgumentError
from tokenizers import Tokenizer as Native
from tokenizers import models, pre_tokenizers, trainers

from shapevm.llm.gguf.file import GgufFile
from shapevm.llm.gguf.tokenizer import WORDS, stop_tokens, tokenizer_of, vocabulary_of
from shapevm.text.tokens import Tokenizer

from .files import PIECES, SENTENCEPIECE, SPACE

TEXTS = [
    "hello world", "", " ", "hello", "  hello   world", "hellollo\n\n\nworldhello", "h\u00e9llo \u4e16\u754c",
    "a<turn>hello</s> b", "It's 12345 o'clock,\tisn't IT?\r\n  x\n \n y\u00e4 \U0001f600",
]  # fmt: skip


def _opened(said: dict[str, Any]) -> Tokenizer:
    return Tokenizer(tokenizer_of(vocabulary_of(_file(said))))


def _file(said: dict[str, Any]) -> GgufFile:
    metadata = {f"tokenizer.ggml.{key}": value for key, value in said.items()}
    return GgufFile("a.gguf", metadata, {}, np.zeros(0, np.uint8))


def _merged(text: str) -> list[str]:
    """Return the tokens of a text without special ones: the two neighbours that make the token of the
    greatest score are merged, the first of equals."""
    scores = {piece: score for piece, kind, score in PIECES if kind == 1}
    parts = list(text.replace(" ", SPACE))
    while True:
        pairs = [(scores.get(a + b, -np.inf), -i) for i, (a, b) in enumerate(pairwise(parts))]
        best, place = max(pairs, default=(-np.inf, 0))
        if best == -np.inf:
            break
        parts[-place : 2 - place] = ["".join(parts[-place : 2 - place])]
    known = [[part] if part in scores else [f"<0x{byte:02X}>" for byte in part.encode()] for part in parts]
    return [each for part in known for each in part]


@pytest.mark.parametrize("has_prefix", [True, False])
@pytest.mark.parametrize(
    "text", [*TEXTS[:4], "worldhellollo", "h\u00e9llo \u4e16\u754c", "hell world wor lldhe"]
)
def test_scores_decide(text: str, has_prefix: bool) -> None:
    made = _opened({**SENTENCEPIECE, "add_space_prefix": has_prefix})
    ids = {piece: i for i, (piece, _, _) in enumerate(PIECES)}
    wanted = _merged(" " + text if has_prefix and text else text)
    assert made.encode_whole(text) == [1, *(ids[each] for each in wanted)]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_come_back(text: str) -> None:
    for has_prefix in (True, False):
        made = _opened({**SENTENCEPIECE, "add_space_prefix": has_prefix})
        found = made.decode(made.encode_whole(text), with_special=True).removeprefix("<s>")
        assert found.replace(" ", "") == text.replace(" ", "")


def test_special_tokens_are_found_first() -> None:
    made = _opened({**SENTENCEPIECE, "add_space_prefix": False, "add_eos_token": True})
    ids = {piece: i for i, (piece, _, _) in enumerate(PIECES)}
    wanted = [1, ids["<turn>"], ids["hello"], ids["\n\n"], ids["<0x0A>"], ids["  "], ids[SPACE + "world"], 2]
    assert made.encode_whole("<turn>hello\n\n\n   world") == wanted
    assert made.encode_whole("hello", with_special=False) == [ids["hello"]]


def test_ends_are_found_by_their_texts() -> None:
    tokens = ["a", "<|im_end|>", "<end_of_turn>", "b"]
    vocabulary = vocabulary_of(_file({"model": "llama", "tokens": tokens, "eos_token_id": 3}))
    assert stop_tokens(vocabulary) == {1, 2, 3}
    assert _opened({"model": "llama", "tokens": tokens}).encode_whole("<|im_end|>") == [1]


def _trained() -> Native:
    native = Native(models.BPE())
    native.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = [*TEXTS * 3, "the world of words 34 34"]
    trainer = trainers.BpeTrainer(
        show_progress=False,
        vocab_size=400,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    native.train_from_iterator(texts, trainer)
    return native


def _of_bytes(**more: Any) -> tuple[Native, dict[str, Any]]:
    native = _trained()
    model = json.loads(native.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(each) if isinstance(each, list) else each for each in model["merges"]]
    return native, {"model": "gpt2", "tokens": tokens, "merges": merges, **more}


@pytest.mark.parametrize("text", TEXTS)
def test_bytes_are_merged_as_by_the_package(text: str) -> None:
    native, said = _of_bytes(pre="gpt-2")
    made = _opened(said)
    assert made.encode_whole(text) == native.encode(text, add_special_tokens=False).ids
    assert made.decode(made.encode_whole(text), with_special=True) == text


@pytest.mark.parametrize("pre", WORDS)
def test_all_words_are_valid(pre: str) -> None:
    made = _opened(_of_bytes(pre=pre, bos_token_id=0)[1])
    for text in TEXTS[:-3]:
        assert made.decode(made.encode_whole(text, with_special=False)) == text
    begins = made.encode_whole("x")[0] == 0
    assert begins == WORDS[pre].begins


def test_numbers_are_split_as_named() -> None:
    said, parts = _of_bytes()[1], {}
    said["tokens"] += ["234", "1234"]
    for pre in ("gpt-2", "llama-bpe", "qwen2", "smollm"):
        made = _opened({**said, "merges": ["3 4", "2 34", "1 234"], "pre": pre})
        parts[pre] = [said["tokens"][i] for i in made.encode_whole("1234")]
    singly = list("1234")
    assert parts == {"gpt-2": ["1234"], "llama-bpe": singly, "qwen2": singly, "smollm": singly}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pre": "other"}, "the words 'other' of its tokenizer are unknown"),
        ({"merges": ["a"]}, "merges must be pairs of its tokens"),
        ({"merges": [1]}, "merges must be pairs of its tokens"),
        ({"merges": ["a nothing"]}, "merges must be pairs of its tokens"),
        ({"bos_token_id": -1}, "the id of the token 'bos' is -1"),
        ({"bos_token_id": 1.5, "add_bos_token": True}, "the id of the token 'bos' is 1.5"),
        ({"tokens": [1]}, "has no tokens"),
    ],
)
def test_other_tokenizers_are_refused(changes: dict[str, Any], message: str) -> None:
    said = {**_of_bytes(pre="gpt-2", add_bos_token=True)[1], **changes}
    with pytest.raises(ArgumentError, match=message):
        tokenizer_of(vocabulary_of(_file(said)))
