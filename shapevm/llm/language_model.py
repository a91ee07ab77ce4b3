"""Texts from texts: an engine with its tokenizer, chat template and stop tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..text.tokens import Tokenizer
from ..vm.errors import ArgumentError
from .engine import Engine
from .folder import compiled, compute_of, read_json, read_text
from .pieces import Pieces, Stops
from .sampling import Sampling
from .template import ChatTemplate

if TYPE_CHECKING:
    from ..build.options import Options
    from ..program.executable import Executable
    from .engine import Request

Message = Mapping[str, Any]
Reason = Literal["stop", "length"]
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


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


class Texts(NamedTuple):
    """A tokenizer, and the template of conversations; None for a model that holds none."""

    tokenizer: Tokenizer
    template: ChatTemplate | None


class LanguageModel:
    """A language model with its tokenizer. Threads may share it; close it, or use it in `with`."""

    kind: Literal["language model"] = "language model"

    def __init__(self, exe: Executable, engine: Engine, texts: Texts, defaults: Sampling, name: str) -> None:
        """`engine`: runs `exe`. `defaults`: the model's stop tokens, and the sampling of `generate`."""
        self.exe, self.engine, self.texts = exe, engine, texts
        self.defaults, self.name = defaults, name

    @property
    def max_length(self) -> int:
        """The most tokens of a prompt and its continuation."""
        return self.engine.limits.length

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, with those that the tokenizer adds."""
        return self.texts.tokenizer.encode_whole(text)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of a conversation, ready for the assistant's answer.

        Raises ArgumentError for messages that the template refuses, and for a model without a template.
        """
        if self.texts.template is None:
            raise ArgumentError(f"{self.name!r} has no chat template; give a prompt to generate instead")
        return self.texts.tokenizer.encode_whole(self.texts.template.render(messages), with_special=False)

    def submit(self, tokens: Sequence[int], sampling: Sampling, ending: Ending | None = None) -> Generation:
        """Begin a text behind `tokens`, and return at once. The model's stop tokens end it, too.

        Raises ArgumentError for a prompt that is empty or too long.
        """
        ending = ending or Ending()
        how = replace(sampling, stop_tokens=sampling.stop_tokens | self.defaults.stop_tokens)
        request = self.engine.submit(tokens, how, keep_logits=ending.n_logprobs is not None)
        return Generation(request, self.texts.tokenizer, ending)

    def generate(self, prompts: str | Sequence[str], *, stop: Sequence[str] = (), **sampling: Any) -> Any:
        """Return the continuation of a prompt, or the list of those of several, which run together.

        Args:
            prompts: One text, or some.
            stop: Strings that end a text and are no part of it.
            sampling: Fields of `Sampling`, such as max_new_tokens, temperature and seed.

        Raises:
            ArgumentError: for an invalid prompt or field.
        """
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        ending, how = Ending(tuple(stop)), self._sampling(sampling)
        begun = [self.submit(self.encode(text), how, ending) for text in texts]
        made = ["".join(piece.text for piece in each) for each in begun]
        return made[0] if isinstance(prompts, str) else made

    def stream(self, prompt: str, *, stop: Sequence[str] = (), **sampling: Any) -> Iterator[str]:
        """Yield the continuation of a prompt in pieces, as they are made. Raises as `generate` does."""
        yield from self._streamed(self.encode(prompt), stop, sampling)

    def chat(
        self, messages: Sequence[Message], *, stop: Sequence[str] = (), **sampling: Any
    ) -> Iterator[str]:
        """Yield the assistant's answer to a conversation, dicts with "role" and "content", in pieces.

        Raises ArgumentError as `encode_chat` and `generate` do.
        """
        yield from self._streamed(self.encode_chat(messages), stop, sampling)

    def _streamed(
        self, tokens: Sequence[int], stop: Sequence[str], sampling: Mapping[str, Any]
    ) -> Iterator[str]:
        made = self.submit(tokens, self._sampling(sampling), Ending(tuple(stop)))
        try:
            for piece in made:
                if piece.text:
                    yield piece.text
        finally:
            made.cancel()

    def _sampling(self, given: Mapping[str, Any]) -> Sampling:
        try:
            return replace(self.defaults, **given)
        except TypeError:
            known = ", ".join(Sampling.__dataclass_fields__)
            unknown = next(name for name in given if name not in Sampling.__dataclass_fields__)
            raise ArgumentError(f"the field {unknown!r} of sampling is unknown; known are {known}") from None

    def close(self) -> None:
        """Cancel all texts and free the program."""
        self.engine.close()
        self.exe.close()

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def from_pretrained(
    path: str | os.PathLike[str], *, cache_tokens: int = 4096, options: Options | None = None
) -> LanguageModel:
    """Compile the language model of a Hugging Face folder, with its tokenizer and chat template.

    Args:
        path: The folder: config.json, safetensors files, tokenizer.json; perhaps tokenizer_config.json,
            chat_template.jinja and generation_config.json.
        cache_tokens: The tokens of all sequences together whose keys and values are kept.
        options: Of the compilation, such as weights in int8.

    Raises:
        FileError: for a file that is missing or unreadable.
        ArgumentError: for a model that is unknown, or files that are no model's.
    """
    folder = Path(path)
    said = read_json(folder / "tokenizer_config.json", {})
    tokenizer = Tokenizer(read_text(folder / "tokenizer.json"))
    special = {name: text for name in _SPECIAL if (text := _text_of(said.get(name)))}
    template = _template(folder, said)
    texts = Texts(tokenizer, None if template is None else ChatTemplate(template, special))
    defaults = Sampling(stop_tokens=_stop_tokens(folder))
    exe, limits = compiled(folder, cache_tokens=cache_tokens, options=options)
    return LanguageModel(exe, Engine(compute_of(exe), limits), texts, defaults, folder.resolve().name)


def _text_of(token: Any) -> str:
    """Return a special token's text: a string, or an object with a "content"."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _template(folder: Path, said: Mapping[str, Any]) -> str | None:
    """Return the text of the chat template: a file's, the config's, or its default one of several."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return read_text(file)
    found = said.get("chat_template")
    if isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _stop_tokens(folder: Path) -> frozenset[int]:
    """Return the tokens that end a text: "eos_token_id" of generation_config.json, or else of config.json."""
    for name in ("generation_config.json", "config.json"):
        found = read_json(folder / name, {}).get("eos_token_id")
        ids = found if isinstance(found, list) else [found]
        if found is not None and all(type(each) is int for each in ids):
            return frozenset(ids)
    return frozenset()
