"""The tokenizer in the metadata of a GGUF file, as the content of a tokenizer.json.

There are two models. "llama" is SentencePiece's: neighbours are merged into the token of the greatest score.
"gpt2" merges pairs of bytes in a given order, within words; "tokenizer.ggml.pre" names how words are found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ...vm.errors import ArgumentError
from .file import GgufFile

PREFIX = "tokenizer.ggml."
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # what SentencePiece writes for a space
MAX_TOKEN = 1 << 10  # characters of a token that others are merged into
#: Texts of tokens that end an answer or a text, whatever a file says of them.
ENDS = frozenset({
    "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<end_of_turn>",
    "<EOT>",
})  # fmt: skip
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SHORT_NUMBERS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Words:
    """How a text is split into words: by each of `patterns` in turn. `is_whole`: a word that is a token is
    not merged from parts; `begins`: texts begin with the token for it unless the file says otherwise;
    `composes`: letters and their accents are one character."""

    patterns: tuple[str, ...] = (_GPT2,)
    is_whole: bool = False
    begins: bool = False
    composes: bool = False


_LLAMA3 = Words((_SHORT_NUMBERS % 3,), is_whole=True, begins=True)
_DIGITS = Words((r"\p{N}", _GPT2))
#: By "tokenizer.ggml.pre".
WORDS: Mapping[str, Words] = {
    "gpt-2": Words(), "phi-2": Words(), "olmo": Words(), "mpt": Words(),
    "llama-bpe": _LLAMA3, "llama3": _LLAMA3, "llama-v3": _LLAMA3,
    "qwen2": Words((_SHORT_NUMBERS % 1,), composes=True),
    "smollm": _DIGITS, "starcoder": _DIGITS, "refact": _DIGITS,
    "default": Words((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
}  # fmt: skip


class Kind(IntEnum):
    """A token's kind, as files number it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    OWN = 4  # a user's: found in a text before anything is merged
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a file by id, with their kinds, and the metadata of its tokenizer."""

    path: str
    tokens: Sequence[str]
    kinds: Sequence[int]
    said: Mapping[str, Any]

    def number(self, name: str) -> int | None:
        """Return the id of a special token, such as "bos"; None if there is none."""
        found = self.said.get(f"{name}_token_id")
        if found is None or (isinstance(found, int) and found >= len(self.tokens)):
            return None
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            raise ArgumentError(f"{self.path}: the id of the token {name!r} is {found!r:.40}")
        return found

    def text(self, name: str) -> str | None:
        """Return the text of a special token; None if there is none."""
        number = self.number(name)
        return None if number is None else self.tokens[number]

    def flag(self, name: str, default: bool) -> bool:
        """Return whether the metadata say so."""
        found = self.said.get(name, default)
        return found if isinstance(found, bool) else default


def vocabulary_of(file: GgufFile) -> Vocabulary:
    """Return the vocabulary of a file. Raises ArgumentError for a file without one."""
    said = {
        name.removeprefix(PREFIX): each for name, each in file.metadata.items() if name.startswith(PREFIX)
    }
    tokens = said.get("tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(each, str) for each in tokens):
        raise ArgumentError(f"{file.path} has no tokens; it must have a tokenizer in its metadata")
    kinds = _beside(said, "token_type", tokens, Kind.NORMAL, file.path)
    known = [Kind.CONTROL if text in ENDS else kind for text, kind in zip(tokens, kinds, strict=True)]
    return Vocabulary(file.path, tokens, known, said)


def stop_tokens(vocabulary: Vocabulary) -> frozenset[int]:
    """Return the tokens that end a text."""
    given = [vocabulary.number(name) for name in ("eos", "eot", "eom")]
    named = [i for i, text in enumerate(vocabulary.tokens) if text in ENDS]
    return frozenset([*(number for number in given if number is not None), *named])


def tokenizer_of(vocabulary: Vocabulary) -> str:
    """Return the JSON of a vocabulary's tokenizer. Raises ArgumentError for an unknown kind of tokenizer."""
    model = vocabulary.said.get("model")
    if model not in _MODELS:
        known = ", ".join(_MODELS)
        raise ArgumentError(f"{vocabulary.path}: the tokenizer {model!r:.40} is unknown; known are {known}")
    parts = {"version": "1.0", "truncation": None, "padding": None, **_MODELS[model](vocabulary)}
    return json.dumps({**parts, "added_tokens": list(_added(vocabulary))}, ensure_ascii=False)


def _beside(said: Mapping[str, Any], name: str, tokens: Sequence[str], default: Any, path: str) -> list[Any]:
    """Return a list of numbers, one for each token."""
    found = said.get(name)
    if found is None:
        return [default] * len(tokens)
    if not isinstance(found, list) or len(found) != len(tokens) or any(type(x) is str for x in found):
        raise ArgumentError(f"{path}: {PREFIX}{name} must be a list of {len(tokens)} numbers, one a token")
    return found


def _added(vocabulary: Vocabulary) -> Iterator[dict[str, Any]]:
    """Yield the tokens that are found in a text before it is split."""
    for number, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True)):
        if text and kind in (Kind.UNKNOWN, Kind.CONTROL, Kind.OWN):
            flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            yield {"id": number, "content": text, "special": kind != Kind.OWN, **flags}


def _ends(vocabulary: Vocabulary, begins: bool) -> dict[str, Any] | None:
    """Return the step that adds the tokens of the beginning and the end of a text."""
    names = {"bos": vocabulary.flag("add_bos_token", begins), "eos": vocabulary.flag("add_eos_token", False)}
    ids = {name: vocabulary.number(name) for name, is_added in names.items() if is_added}
    added = {name: number for name, number in ids.items() if number is not None}
    if not added:
        return None

    def whole(*sequences: str) -> list[Any]:
        found: list[Any] = [{"Sequence": {"id": each, "type_id": 0}} for each in sequences]
        ends = {name: [{"SpecialToken": {"id": name, "type_id": 0}}] for name in added}
        return [*ends.get("bos", []), *found, *ends.get("eos", [])]

    special = {
        name: {"id": name, "ids": [number], "tokens": [vocabulary.tokens[number]]}
        for name, number in added.items()
    }
    return {
        "type": "TemplateProcessing", "single": whole("A"), "pair": whole("A", "B"),
        "special_tokens": special,
    }  # fmt: skip


def _model(vocabulary: Vocabulary, merges: list[tuple[str, str]], **more: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
    vocab = {text: number for number, text in enumerate(vocabulary.tokens)}
    return {"type": "BPE", **nothing, "vocab": vocab, "merges": merges, **more}


# SentencePiece ----------------------------------------------------------------------------------------


def _sentencepiece(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the parts of a tokenizer by scores: spaces are visible, and unknown letters become bytes."""
    has_prefix = vocabulary.flag("add_space_prefix", True)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prefix = [{"type": "Prepend", "prepend": SPACE}] if has_prefix else []
    visible = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if has_prefix else []
    decoders = [visible, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*prefix, spaces]},
        "pre_tokenizer": None,
        "post_processor": _ends(vocabulary, begins=True),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _model(
            vocabulary, _by_score(vocabulary), unk_token=vocabulary.text("unknown"), fuse_unk=True,
            byte_fallback=True, ignore_merges=False,
        ),
    }  # fmt: skip


def _by_score(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Return the pairs of tokens whose texts together are a token, those of the greatest score first."""
    scores = _beside(vocabulary.said, "scores", vocabulary.tokens, 0.0, vocabulary.path)
    known, found = frozenset(vocabulary.tokens), []
    for number, text in enumerate(vocabulary.tokens):
        if vocabulary.kinds[number] != Kind.NORMAL:
            continue
        if len(text) > MAX_TOKEN:
            raise ArgumentError(
                f"{vocabulary.path}: token {number} has {len(text)} characters; at most {MAX_TOKEN} are read"
            )
        for at in range(1, len(text)):
            if text[:at] in known and text[at:] in known:
                found.append((-scores[number], number, at))
    return [
        (vocabulary.tokens[number][:at], vocabulary.tokens[number][at:]) for _, number, at in sorted(found)
    ]


# Bytes ------------------------------------------------------------------------------------------------


def _bytes(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the parts of a tokenizer of bytes, each of which is written as a letter."""
    name = vocabulary.said.get("pre", "default")
    if name not in WORDS:
        known = ", ".join(WORDS)
        raise ArgumentError(
            f"{vocabulary.path}: the words {name!r:.40} of its tokenizer are unknown; known are {known}"
        )
    words = WORDS[name]
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in words.patterns
    ]
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "normalizer": {"type": "NFC"} if words.composes else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, letters]},
        "post_processor": _ends(vocabulary, words.begins),
        "decoder": letters,
        "model": _model(
            vocabulary, _in_order(vocabulary), unk_token=None, fuse_unk=False, byte_fallback=False,
            ignore_merges=words.is_whole,
        ),
    }  # fmt: skip


def _in_order(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Return the pairs of tokens that are merged."""
    merges, known = vocabulary.said.get("merges"), frozenset(vocabulary.tokens)
    pairs = [each.partition(" ")[::2] if isinstance(each, str) else ("", "") for each in merges or ()]
    if not pairs or not all(one in known and two in known and one + two in known for one, two in pairs):
        raise ArgumentError(f"{vocabulary.path}: {PREFIX}merges must be pairs of its tokens")
    return pairs


_MODELS = {"llama": _sentencepiece, "gpt2": _bytes}
