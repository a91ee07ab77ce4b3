"""Texts of tokens as they come."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, pre_tokenizers

from shapevm.llm.pieces import Pieces, Stops


def _bytes() -> tokenizers.Tokenizer:
    """Return a tokenizer with a token for each byte."""
    letters = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(letters, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return made


BYTES = _bytes()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=30))
def test_pieces_are_whole_characters_and_together_the_text(text: str) -> None:
    pieces = Pieces(BYTES)
    made = [pieces.add(token) for token in BYTES.encode(text).ids]
    assert all("\ufffd" not in piece for piece in made)
    assert "".join(made) + pieces.end() == text


def test_a_character_that_never_ends_comes_last() -> None:
    pieces = Pieces(BYTES)
    assert [pieces.add(token) for token in BYTES.encode("aé").ids[:2]] == ["a", ""]
    assert pieces.end() == "\ufffd"


def stopped(pieces: list[str], stops: list[str]) -> list[str]:
    """Return what is certain after each piece, and what is left."""
    text = Stops(stops)
    return [*map(text.add, pieces), text.end()]


@pytest.mark.parametrize(
    ("pieces", "stops", "wanted"),
    [
        (["ab", "c<", "x"], ["<e>"], ["ab", "c", "<x", ""]),
        (["ab<", "e", ">cd", "f"], ["<e>"], ["ab", "", "", "", ""]),
        (["ab<", "e"], ["<e>"], ["ab", "", "<e"]),
        (["aXbY"], ["Y", "X"], ["a", ""]),
        (["ab"], [], ["ab", ""]),
    ],
)
def test_a_text_ends_before_a_stop_string(pieces: list[str], stops: list[str], wanted: list[str]) -> None:
    assert stopped(pieces, stops) == wanted


@given(st.lists(st.text("ab", max_size=4)), st.lists(st.text("ab", min_size=1, max_size=3), max_size=3))
def test_stop_strings_do_not_depend_on_how_a_text_is_cut(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    ends = [text.find(stop) for stop in stops if stop in text]
    made = "".join(stopped(pieces, stops))
    assert not any(stop in made for stop in stops) and text.startswith(made)
    assert len(made) >= min(ends) - 2 if ends else made == text
