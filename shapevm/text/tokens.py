"""Texts to token ids, by the package tokenizers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..vm.errors import ArgumentError, ArtifactError
from ..vm.heap import trim

if TYPE_CHECKING:
    from tokenizers import Encoding

MISSING = "text models need the package tokenizers: pip install 'shapevm[text]'"
_LARGE = 1 << 20  # bytes of a tokenizer
#: Characters that are tokenized at a time, unless a text has more: until they are truncated, tokens and their
#: places take some 100 bytes a character.
CHARACTERS = 4096
Text = str | tuple[str, str] | list[str]


class Tokens(list[int]):
    """The token ids of a text, or of a pair of texts; `types`: which of the two each token is of, None for a
    single text."""

    def __init__(self, ids: Sequence[int], types: Sequence[int] | None = None) -> None:
        super().__init__(ids)
        self.types = types

    def __reduce__(self) -> tuple[type[Tokens], tuple[Any, ...]]:
        return Tokens, (list(self), self.types)


class Span(NamedTuple):
    """A token of a text: its id, its part of the text, from character `start` to `stop`; or, of one that the
    tokenizer adds (`special`), its name."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Tokenizer:
    """A tokenizer from its JSON (tokenizer.json).

    Raises ArgumentError if the package tokenizers is missing, and ArtifactError if it refuses the JSON.
    """

    def __init__(self, json: str) -> None:
        try:
            from tokenizers import Tokenizer as Native
        except ModuleNotFoundError:
            raise ArgumentError(MISSING) from None
        try:
            self._data = json.encode()  # one byte a character, where a string with any emoji has four
            self._native = Native.from_buffer(self._data)
        except BaseException as error:  # a panic of the package derives from BaseException
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise ArtifactError(
                f"the tokenizer cannot be read: {' '.join(str(error).split())[:200]}"
            ) from None
        self._native.no_padding()
        self._native.no_truncation()
        self._longest = 0
        self._whole: Tokenizer | None = None
        if len(json) > _LARGE:
            trim()  # reading takes 2 to 3 times what stays

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[str]]:
        return Tokenizer, (self.json,)

    @property
    def json(self) -> str:
        """The tokenizer's JSON."""
        return self._data.decode()

    @property
    def vocabulary(self) -> int:
        """The number of token ids, added tokens included."""
        return int(self._native.get_vocab_size(with_added_tokens=True))

    def encode(self, texts: Sequence[Text], longest: int) -> list[Tokens]:
        """Return the tokens of each text or pair, truncated to `longest` with those that the tokenizer adds.

        Raises ArgumentError, which names the text, for one that is neither.
        """
        for index, text in enumerate(texts):
            if not isinstance(text, str) and not is_pair(text):
                raise ArgumentError(f"text {index} is {text!r:.60}; it must be a text or a pair of texts")
        if longest != self._longest:
            self._native.enable_truncation(longest, strategy="longest_first")
            self._longest = longest
        given = [text if isinstance(text, str) else tuple(text) for text in texts]
        found: list[Tokens] = []
        for part in _parts(given):
            found += map(_tokens, self._encoded(part), part)
        return found

    def encode_whole(self, text: str, with_special: bool = True) -> list[int]:
        """Return all tokens of a text; `with_special`: and those that the tokenizer adds.

        Raises ArgumentError for what is no text.
        """
        if not isinstance(text, str):
            raise ArgumentError(f"the text is {text!r:.60}; it must be a string")
        self._native.no_truncation()
        self._longest = 0
        return list(self._native.encode(text, add_special_tokens=with_special).ids)

    def spans(self, texts: Sequence[str], with_special: bool = True) -> list[list[Span]]:
        """Return all tokens of each text with their places in it; `with_special`: and those that the
        tokenizer adds."""
        if self._whole is None:
            self._whole = Tokenizer(self.json)  # other threads may truncate by this one meanwhile
        found = self._whole._native.encode_batch(list(texts), add_special_tokens=with_special)
        return [_spans(encoding, text) for encoding, text in zip(found, texts, strict=True)]

    def decode(self, tokens: Sequence[int], with_special: bool = False) -> str:
        """Return the text of tokens; special ones are left out unless `with_special`."""
        return str(self._native.decode(list(tokens), skip_special_tokens=not with_special))

    def _encoded(self, given: Sequence[Any]) -> list[Encoding]:
        try:
            return self._native.encode_batch_fast(given)  # without the offsets in the text
        except Exception as error:
            raise ArgumentError(f"the texts cannot be tokenized: {error}") from None


def _parts(texts: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield texts, or pairs, as parts of at most CHARACTERS, or one text."""
    part, n = list[Any](), 0
    for text in texts:
        more = len(text) if isinstance(text, str) else sum(map(len, text))
        if part and n + more > CHARACTERS:
            yield part
            part, n = [], 0
        part.append(text)
        n += more
    yield part


def _tokens(encoding: Encoding, text: Any) -> Tokens:
    return Tokens(encoding.ids, None if isinstance(text, str) else encoding.type_ids)


def _spans(encoding: Encoding, text: str) -> list[Span]:
    rows = zip(encoding.ids, encoding.tokens, encoding.offsets, encoding.special_tokens_mask, strict=True)
    return [
        Span(one, token, True, None, None) if is_special else Span(one, text[start:stop], False, start, stop)
        for one, token, (start, stop), is_special in rows
    ]


def is_pair(text: Any) -> bool:
    """Return whether a value is a pair of texts."""
    return isinstance(text, tuple | list) and len(text) == 2 and all(isinstance(x, str) for x in text)
