"""Requests of generated text: OpenAI's chat completions and completions."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..llm import Ending, Generation, Grammar, LanguageModel, Piece, Probability, Sampling
from .fields import (
    ANY,
    COUNT,
    FLAG,
    LIST,
    OBJECT,
    TEXT,
    Field,
    checked,
    flag,
    is_token_ids,
    kind_of,
    number,
    optional,
    parsed,
    whole,
)
from .refusals import Refused
from .work import Request

if TYPE_CHECKING:
    from .models import Service

_MOST_CHOICES, _MOST_STOPS, _MOST_LOGPROBS = 16, 4, 20
_UNLIMITED = 1 << 24  # tokens: a text then ends where the model's positions do


#: Fields of both routes, with OpenAI's defaults; the three last ones are those of other servers.
_COMMON = {
    "model": optional(TEXT), "max_tokens": optional(COUNT), "temperature": number(0, 2, 1.0),
    "top_p": number(0, 1, 1.0), "n": whole(1, _MOST_CHOICES, 1), "stream": optional(FLAG),
    "stream_options": optional(OBJECT), "stop": ANY._replace(default=None),
    "seed": whole(-(1 << 63), (1 << 63) - 1, None), "user": optional(TEXT),
    "presence_penalty": number(-2, 2, 0.0), "frequency_penalty": number(-2, 2, 0.0),
    "logit_bias": optional(OBJECT), "response_format": optional(OBJECT),
    "top_k": whole(0, 1 << 31, 0), "min_p": number(0, 1, 0.0),
    "repetition_penalty": number(0.01, 100, 1.0),
}  # fmt: skip
_CHAT = _COMMON | {
    "messages": LIST, "max_completion_tokens": optional(COUNT), "logprobs": flag(False),
    "top_logprobs": whole(0, _MOST_LOGPROBS, 0),
    "tools": optional(LIST), "tool_choice": ANY._replace(default=None),
    "parallel_tool_calls": optional(FLAG), "store": optional(FLAG), "metadata": optional(OBJECT),
}  # fmt: skip
_COMPLETION = _COMMON | {
    "prompt": ANY, "logprobs": whole(0, _MOST_LOGPROBS, None), "echo": flag(False),
    "suffix": optional(TEXT), "best_of": whole(1, 1, 1),
}  # fmt: skip
#: Requests that are refused: the field, the values that change nothing, and what is missing.
_UNSUPPORTED: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("presence_penalty", (0,), "presence penalties; use repetition_penalty"),
    ("frequency_penalty", (0,), "frequency penalties; use repetition_penalty"),
    ("logit_bias", (None, {}), "biases of single tokens"),
    ("tools", (None, []), "tools; name them in a message"),
    ("tool_choice", (None, "none", "auto"), "tools; name them in a message"),
    ("echo", (False,), "repeating the prompt"),
    ("suffix", (None, ""), "texts with a given end"),
)


class Choices(NamedTuple):
    """A request that was read: what to generate, and the forms of its answer.

    `prompts`: the tokens of each prompt, for each of which `n` texts are made. `grammar`: what a text may be,
    None: all. `usage`: whether a stream ends with the number of tokens.
    """

    prompts: Sequence[Sequence[int]]
    n: int
    sampling: Sampling
    ending: Ending
    grammar: Grammar | None
    is_stream: bool
    usage: bool
    form: Form
    name: str

    def start(self, model: LanguageModel) -> list[Generation]:
        """Begin the texts. Raises ArgumentError if a prompt is too long, or the grammar is invalid; none is
        then begun."""
        begun: list[Generation] = []
        try:
            for prompt in self.prompts:
                for index in range(self.n):
                    how = _varied(self.sampling, index)
                    begun.append(model.submit(prompt, how, self.ending, grammar=self.grammar))
        except Exception:
            for each in begun:
                each.cancel()
            raise
        return begun


class Form(NamedTuple):
    """How a route writes texts.

    `whole(pieces)`: the fields of a finished choice. `part(piece)`: those of a piece of a stream.
    `first`: of the piece before the first, if there is one. `kind`, `kind_of_part`: names of the objects.
    """

    prefix: str
    kind: str
    kind_of_part: str
    whole: Callable[[Sequence[Piece]], dict[str, Any]]
    part: Callable[[Piece], dict[str, Any]]
    first: Callable[[], dict[str, Any]] | None
    last: Mapping[str, Any]


def chat_completions(service: Service, request: Request) -> Choices:
    """Read OpenAI's POST /v1/chat/completions."""
    given = _read(service, request, _CHAT)
    given["max_tokens"] = given["max_completion_tokens"] or given["max_tokens"]
    n_logprobs = given["top_logprobs"] if given["logprobs"] else None
    messages = [_message(each, index) for index, each in enumerate(given["messages"])]
    if not messages:
        raise Refused("field 'messages' is an empty list; it must have at least one message")
    prompt = service.language_model.encode_chat(messages)
    return _choices(service, given, [prompt], n_logprobs, _CHAT_FORM)


def completions(service: Service, request: Request) -> Choices:
    """Read OpenAI's POST /v1/completions."""
    given = _read(service, request, _COMPLETION)
    prompts = _prompts(service, given["prompt"])
    return _choices(service, given, prompts, given["logprobs"], _COMPLETION_FORM)


def _read(service: Service, request: Request, fields: Mapping[str, Field]) -> dict[str, Any]:
    given = checked(parsed(request.body), fields)
    service.check_name(given["model"])
    for name, values, what in _UNSUPPORTED:
        if name in given and given[name] not in values:
            raise Refused(f"field {name!r}: this server does not support {what}")
    return given


def _sampling(given: Mapping[str, Any]) -> Sampling:
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    seed = secrets.randbits(63) if given["seed"] is None else given["seed"] % (1 << 63)
    most = given["max_tokens"] or _UNLIMITED
    return Sampling(min(most, _UNLIMITED), **{name: given[name] for name in names}, seed=seed)


def _stops(given: Any) -> tuple[str, ...]:
    stop = [given] if isinstance(given, str) else given or []
    is_valid = isinstance(stop, list) and all(isinstance(one, str) and one for one in stop)
    if not is_valid or len(stop) > _MOST_STOPS:
        raise Refused(f"field 'stop' must be a string or a list of at most {_MOST_STOPS} strings, none empty")
    return tuple(stop)


def _varied(sampling: Sampling, index: int) -> Sampling:
    """Return the sampling of a request's text number `index`: each has a seed of its own."""
    return replace(sampling, seed=(sampling.seed + index) % (1 << 63))


def _choices(
    service: Service,
    given: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    n_logprobs: int | None,
    form: Form,
) -> Choices:
    options = checked(given["stream_options"] or {}, {"include_usage": flag(False)}, "field 'stream_options'")
    is_stream, usage = bool(given["stream"]), options["include_usage"]
    ending = Ending(_stops(given["stop"]), n_logprobs)
    how, grammar = _sampling(given), _grammar(given["response_format"])
    return Choices(prompts, given["n"], how, ending, grammar, is_stream, usage, form, service.name)


def _grammar(given: Mapping[str, Any] | None) -> Grammar | None:
    """Return what a `response_format` says of texts; None: nothing."""
    match {"type": "text"} if given is None else given:
        case {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            return schema
        case {"type": "grammar", "grammar": str() as grammar}:
            return grammar
    raise Refused(
        "field 'response_format' must have the type 'text', 'json_object', 'json_schema' with a "
        "'json_schema' that has a 'schema', or 'grammar' with a 'grammar'"
    )


def _message(given: Any, index: int) -> dict[str, Any]:
    """Return a message with its content as one text."""
    what = f"message {index}"
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise Refused(f"{what} is {kind_of(given)}; it must be an object with a 'role' and a 'content'")
    content = given.get("content")
    if isinstance(content, list):
        content = "".join(_part(each, what) for each in content)
    if not isinstance(content, str):
        raise Refused(f"{what}: 'content' is {kind_of(content)}; it must be a text or a list of texts")
    name = {"name": given["name"]} if isinstance(given.get("name"), str) else {}
    return {"role": given["role"], "content": content, **name}


def _part(given: Any, what: str) -> str:
    is_text = isinstance(given, dict) and given.get("type") == "text" and isinstance(given.get("text"), str)
    if not is_text:
        raise Refused(f'{what}: a part of its content is no {{"type": "text", "text": ..}}; give texts only')
    text: str = given["text"]
    return text


def _prompts(service: Service, given: Any) -> list[Sequence[int]]:
    """Return the tokens of OpenAI's `prompt`: texts or token ids, one or a list."""
    is_ids = isinstance(given, list) and bool(given) and type(given[0]) is int
    rows = [given] if isinstance(given, str) or is_ids else given
    if not isinstance(rows, list) or not 0 < len(rows) <= service.limits.max_texts:
        raise Refused(
            f"field 'prompt' must be a text, token ids, or a list of 1 to {service.limits.max_texts} of them"
        )
    return [_prompt(service, row, index) for index, row in enumerate(rows)]


def _prompt(service: Service, row: Any, index: int) -> Sequence[int]:
    if isinstance(row, str):
        return service.language_model.encode(row)
    if not is_token_ids(row):
        raise Refused(f"field 'prompt': element {index} is neither a text nor a list of token ids")
    return row


# What is returned -------------------------------------------------------------------------------------


class Writer:
    """Writes the answer of one request: its id and time are the same in all parts."""

    def __init__(self, asked: Choices) -> None:
        self._asked = asked
        self._head = {"id": f"{asked.form.prefix}-{uuid.uuid4().hex}", "created": int(time.time())}

    def whole(self, texts: Sequence[Sequence[Piece]], generations: Sequence[Generation]) -> dict[str, Any]:
        """Return the answer that is not a stream: the pieces of each text."""
        form = self._asked.form
        rows = [
            {"index": index, "finish_reason": generation.reason, **form.whole(pieces)}
            for index, (pieces, generation) in enumerate(zip(texts, generations, strict=True))
        ]
        return self._object(form.kind, rows) | {"usage": self._usage(generations)}

    def first(self, n: int) -> list[dict[str, Any]]:
        """Return the parts of a stream before the first piece."""
        form = self._asked.form
        return [self._part(index, form.first(), None) for index in range(n)] if form.first else []

    def part(self, index: int, piece: Piece) -> dict[str, Any]:
        """Return a piece's part of a stream."""
        return self._part(index, self._asked.form.part(piece), None)

    def last(self, index: int, generation: Generation) -> dict[str, Any]:
        """Return the part of a stream that ends a text."""
        return self._part(index, dict(self._asked.form.last), generation.reason)

    def usage(self, generations: Sequence[Generation]) -> list[dict[str, Any]]:
        """Return the part of a stream with the number of tokens, if it was requested."""
        if not self._asked.usage:
            return []
        return [self._object(self._asked.form.kind_of_part, []) | {"usage": self._usage(generations)}]

    def _part(self, index: int, fields: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
        row = {"index": index, "finish_reason": reason, **fields}
        return self._object(self._asked.form.kind_of_part, [row])

    def _object(self, kind: str, choices: Sequence[Any]) -> dict[str, Any]:
        return {**self._head, "object": kind, "model": self._asked.name, "choices": choices}

    def _usage(self, generations: Sequence[Generation]) -> dict[str, int]:
        n_prompt = sum(map(len, self._asked.prompts))
        n_made = sum(each.n_tokens for each in generations)
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_made,
            "total_tokens": n_prompt + n_made,
        }


def _text(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def _entry(given: Probability) -> dict[str, Any]:
    return {"token": given.token, "logprob": given.logprob, "bytes": list(given.token.encode())}


def _logprobs_of_chat(pieces: Sequence[Piece]) -> dict[str, Any] | None:
    rows = [
        {**_entry(piece.token), "top_logprobs": list(map(_entry, piece.top))}
        for piece in pieces
        if piece.token is not None
    ]
    return {"content": rows, "refusal": None} if rows else None


def _logprobs(pieces: Sequence[Piece]) -> dict[str, Any] | None:
    rows = [(piece.token, piece.top) for piece in pieces if piece.token is not None]
    if not rows:
        return None
    return {
        "tokens": [token.token for token, _ in rows],
        "token_logprobs": [token.logprob for token, _ in rows],
        "top_logprobs": [{each.token: each.logprob for each in top} for _, top in rows],
    }


_CHAT_FORM = Form(
    "chatcmpl", "chat.completion", "chat.completion.chunk",
    whole=lambda pieces: {
        "message": {"role": "assistant", "content": _text(pieces), "refusal": None},
        "logprobs": _logprobs_of_chat(pieces),
    },
    part=lambda piece: {"delta": {"content": piece.text}, "logprobs": _logprobs_of_chat([piece])},
    first=lambda: {"delta": {"role": "assistant", "content": ""}, "logprobs": None},
    last={"delta": {}, "logprobs": None},
)  # fmt: skip
_COMPLETION_FORM = Form(
    "cmpl", "text_completion", "text_completion",
    whole=lambda pieces: {"text": _text(pieces), "logprobs": _logprobs(pieces)},
    part=lambda piece: {"text": piece.text, "logprobs": _logprobs([piece])},
    first=None,
    last={"text": "", "logprobs": None},
)  # fmt: skip
