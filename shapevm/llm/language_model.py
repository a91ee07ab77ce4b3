"""Texts from texts: an engine with its tokenizer, chat template and stop tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..program.saving import write_changed
from ..text.tokens import Tokenizer
from ..vm.errors import ArgumentError
from .artifact import Contents, with_language
from .engine import Engine
from .grammar import Grammar, Grammars
from .pieces import Pieces, Stops
from .sampling import Sampling

if TYPE_CHECKING:
    from ..program.executable import Executable
    from .engine import Request

Message = Mapping[str, Any]
Reason = Literal["stop", "length"]


class Probability(NamedTuple):
    """A token's text and the natural logarithm of its probability."""

    token: str
    logprob: float


class Piece(NamedTuple):
    """The text that is certain after one more token, perhaps ""; if they were requested, the token's
    probability and those of the most probable tokens."""

    text: str
    token: Probability | None = None
    top: Sequence[Probability] = ()


@dataclass(frozen=True)
class Ending:
    """Where a text ends besides its stop tokens, and what is reported beside it.

    `stop`: strings that end it and are no part of it. `n_logprobs`: how many of the most probable tokens are
    reported with each token; None: no probabilities.
    """

    stop: tuple[str, ...] = ()
    n_logprobs: int | None = None


class Generation:
    """A text in the making: an iterator over its pieces, for one thread. Any thread may `cancel` it."""

    def __init__(self, request: Request, tokenizer: Tokenizer, ending: Ending) -> None:
        self._request, self._tokenizer, self._ending = request, tokenizer, ending
        self._stops = Stops(ending.stop)
        self.n_tokens = 0

    def __iter__(self) -> Iterator[Piece]:
        pieces = Pieces(self._tokenizer)
        for token in self._request:
            self.n_tokens += 1
            yield Piece(self._stops.add(pieces.add(token)), *self._probabilities(token))
            if self._stops.is_found:
                self._request.cancel()
                return
        if rest := self._stops.add(pieces.end()) + self._stops.end():
            yield Piece(rest)

    def texts(self) -> Iterator[str]:
        """Yield the text in pieces, none of them empty. The text ends if they are not read on."""
        try:
            for piece in self:
                if piece.text:
                    yield piece.text
        finally:
            self.cancel()

    def _probabilities(self, token: int) -> tuple[Any, ...]:
        """Return the token's probability and the greatest ones, () if they were not requested."""
        logits, most = self._request.logits, self._ending.n_logprobs
        if logits is None or most is None:
            return ()
        row = logits.pop(0).astype(np.float64)  # kept until its token is read
        row -= row.max()
        row -= np.log(np.exp(row).sum())
        best = np.argsort(-row, kind="stable")[:most]
        return self._named(token, row), [self._named(int(each), row) for each in best]

    def _named(self, token: int, logprobs: np.ndarray[Any, Any]) -> Probability:
        return Probability(self._tokenizer.decode([token], with_special=True), float(logprobs[token]))

    @property
    def reason(self) -> Reason:
        """Why the text ended: "stop" at a stop token or string, "length" at its most tokens."""
        return "length" if self._request.finish_reason == "length" and not self._stops.is_found else "stop"

    def cancel(self) -> None:
        """End the text and free its part of the cache."""
        self._request.cancel()


class LanguageModel:
    """A language model with its tokenizer. Threads may share it; close it, or use it in `with`."""

    kind: Literal["language model"] = "language model"

    def __init__(self, exe: Executable, engine: Engine, contents: Contents) -> None:
        """`engine`: runs `exe`."""
        self.exe, self.engine, self.contents = exe, engine, contents
        self.name = contents.name
        self._grammars = Grammars(contents.tokenizer, engine.limits.vocabulary, contents.defaults.stop_tokens)

    @property
    def defaults(self) -> Sampling:
        """The model's stop tokens, and the sampling of `generate`."""
        return self.contents.defaults

    @property
    def max_length(self) -> int:
        """The most tokens of a prompt and its continuation."""
        return self.engine.limits.length

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, with those that the tokenizer adds."""
        return self.contents.tokenizer.encode_whole(text)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of a conversation, ready for the assistant's answer.

        Raises ArgumentError for messages that the template refuses, and for a model without a template.
        """
        template = self.contents.template
        if template is None:
            raise ArgumentError(f"{self.name!r} has no chat template; give a prompt to generate instead")
        return self.contents.tokenizer.encode_whole(template.render(messages), with_special=False)

    def submit(
        self,
        tokens: Sequence[int],
        sampling: Sampling,
        ending: Ending | None = None,
        *,
        grammar: Grammar | None = None,
    ) -> Generation:
        """Begin a text behind `tokens`, and return at once. The model's stop tokens end it, too. `grammar`:
        what it may be, as in `generate`.

        Raises ArgumentError for a prompt that is empty or too long, and an invalid grammar.
        """
        ending = ending or Ending()
        how = replace(sampling, stop_tokens=sampling.stop_tokens | self.defaults.stop_tokens)
        guide = None if grammar is None else self._grammars.guide(grammar)
        request = self.engine.submit(tokens, how, keep_logits=ending.n_logprobs is not None, guide=guide)
        return Generation(request, self.contents.tokenizer, ending)

    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        stop: Sequence[str] = (),
        grammar: Grammar | None = None,
        **sampling: Any,
    ) -> Any:
        """Return the continuation of a prompt, or the list of those of several, which run together.

        Args:
            prompts: One text, or some.
            stop: Strings that end a text and are no part of it.
            grammar: What a text may be: a JSON schema, as a dict, or a grammar in Lark's form, as a string.
            sampling: Fields of `Sampling`, such as max_new_tokens, temperature and seed.

        Raises:
            ArgumentError: for an invalid prompt, grammar or field.
        """
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        ending, how = Ending(tuple(stop)), self._sampling(sampling)
        begun = [self.submit(self.encode(text), how, ending, grammar=grammar) for text in texts]
        made = ["".join(piece.text for piece in each) for each in begun]
        return made[0] if isinstance(prompts, str) else made

    def stream(self, prompt: str, **how: Any) -> Iterator[str]:
        """Yield the continuation of a prompt in pieces, as they are made. `how`: what `generate` takes, with
        the same errors."""
        yield from self._streamed(self.encode(prompt), **how)

    def chat(self, messages: Sequence[Message], **how: Any) -> Iterator[str]:
        """Yield the assistant's answer to a conversation, dicts with "role" and "content", in pieces. `how`:
        what `generate` takes.

        Raises ArgumentError as `encode_chat` and `generate` do.
        """
        yield from self._streamed(self.encode_chat(messages), **how)

    def _streamed(
        self,
        tokens: Sequence[int],
        stop: Sequence[str] = (),
        grammar: Grammar | None = None,
        **sampling: Any,
    ) -> Iterator[str]:
        ending = Ending(tuple(stop))
        yield from self.submit(tokens, self._sampling(sampling), ending, grammar=grammar).texts()

    def _sampling(self, given: Mapping[str, Any]) -> Sampling:
        try:
            return replace(self.defaults, **given)
        except TypeError:
            known = ", ".join(Sampling.__dataclass_fields__)
            unknown = next(name for name in given if name not in Sampling.__dataclass_fields__)
            raise ArgumentError(f"the field {unknown!r} of sampling is unknown; known are {known}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program, its weights, the tokenizer, the chat template and the sampling to one file, for
        `load`. Raises FileError if that fails."""
        write_changed(self.exe.artifact, lambda program: with_language(program, self.contents), path)

    def close(self) -> None:
        """Cancel all texts and free the program."""
        self.engine.close()
        self.exe.close()

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
