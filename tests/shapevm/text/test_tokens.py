"""Texts to tokens: how many are tokenized at a time."""

from __future__ import annotations

from typing import Any

import pytest

from shapevm.text.tokens import CHARACTERS, Tokenizer

from . import folders

LONG = "cat " * (CHARACTERS // 4)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["cat"] * 40, [40]),
        ([LONG] * 3, [1, 1, 1]),
        (["cat", LONG, "dog", "dog"], [1, 1, 2]),
        ([("cat", LONG), ("cat", "dog")], [1, 1]),
        ([LONG[: CHARACTERS // 2]] * 5, [2, 2, 1]),
        ([], [0]),
    ],
)
def test_characters_at_a_time(monkeypatch: pytest.MonkeyPatch, texts: list[Any], expected: list[int]) -> None:
    tokenizer = Tokenizer(folders.tokenizer(0, True).backend_tokenizer.to_str())
    alone = [tokenizer.encode([text], 24)[0] for text in texts]
    encode, sizes = tokenizer._encoded, []

    def recorded(part: list[Any]) -> Any:
        sizes.append(len(part))
        return encode(part)

    monkeypatch.setattr(tokenizer, "_encoded", recorded)
    assert tokenizer.encode(texts, 24) == alone and sizes == expected
