"""What a text may be: a JSON schema or a grammar, which the package llguidance follows."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..text.tokens import Tokenizer
from ..vm.errors import ArgumentError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

#: A JSON schema, or a grammar in llguidance's form of Lark's.
Grammar = Mapping[str, Any] | str
MISSING = "grammars need the package llguidance: pip install 'shapevm[grammar]'"
#: Between values stands what Python's json writes, so that no text is endless space.
_SPACES: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Grammars:
    """Makes guides for a model with `vocabulary` logits, whose texts end at `stop_tokens`."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, stop_tokens: Collection[int]) -> None:
        self._tokenizer, self._vocabulary, self._stop_tokens = tokenizer, vocabulary, sorted(stop_tokens)
        self._read: LLTokenizer | None = None  # when it is first used, since that takes a second

    def guide(self, grammar: Grammar) -> Guide:
        """Return a guide of one text.

        Raises ArgumentError for a grammar that is invalid, for a model without stop tokens, and if the
        package llguidance is missing.
        """
        self._read = self._read or self._tokens()
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(verbose_errors=False)
        matcher = LLMatcher(self._read, _text_of(grammar), log_level=0, limits=limits)
        if matcher.is_error():
            raise _refused(grammar, matcher.get_error())
        return Guide(matcher, self._vocabulary)

    def _tokens(self) -> LLTokenizer:
        try:
            from llguidance import LLTokenizer
        except ImportError:
            raise ArgumentError(MISSING) from None
        if not self._stop_tokens:
            raise ArgumentError("the model names no token that ends a text, so that no grammar can end one")
        n = max(self._vocabulary, self._tokenizer.vocabulary)
        try:
            return LLTokenizer(self._tokenizer.json, n_vocab=n, eos_token=self._stop_tokens)
        except ValueError as error:
            raise ArgumentError(f"llguidance does not read this tokenizer: {_line(error)}") from None


class Guide:
    """Where a text is in its grammar: for one text."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary

    def mask(self) -> np.ndarray[Any, Any]:
        """Return which tokens may come next, bool[1, vocabulary]; stop tokens where the text may end. Raises
        ArgumentError if there are none, or the grammar became too complex."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(bits, count=self._vocabulary, bitorder="little").view(np.bool_)
        self._check(bool(mask.any()))
        return mask[None]

    def take(self, token: int) -> bool:
        """Note the text's next token; return whether others may follow."""
        self._check(self._matcher.consume_token(token))
        return not self._matcher.is_stopped()

    def _check(self, is_allowed: bool) -> None:
        if not is_allowed or self._matcher.is_error():
            why = _line(self._matcher.get_error()) or "none may come next"
            raise ArgumentError(f"the grammar cannot be followed with this model's tokens: {why}")


def _text_of(grammar: Grammar) -> str:
    """Return a grammar as llguidance reads it."""
    from llguidance import LLMatcher

    if isinstance(grammar, str):
        return LLMatcher.grammar_from_lark(grammar)
    if not isinstance(grammar, Mapping):
        raise ArgumentError(
            f"grammar is {grammar!r:.40}; it must be a JSON schema, as a dict, or a grammar in Lark's form, "
            "as a string"
        )
    try:
        return LLMatcher.grammar_from_json_schema(json.dumps(grammar), _SPACES)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(grammar, error) from None


def _refused(grammar: Grammar, why: object) -> ArgumentError:
    what = "the grammar" if isinstance(grammar, str) else "the JSON schema"
    return ArgumentError(f"{what} is refused: {_line(why)}")


def _line(text: object) -> str:
    return " ".join(str(text).split())[:200]
