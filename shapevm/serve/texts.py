"""Requests of texts: OpenAI's embeddings, rerankers, and the routes of text-embeddings-inference (TEI)."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .fields import (
    ANY,
    COUNT,
    FLAG,
    LIST,
    TEXT,
    Field,
    checked,
    choice,
    flag,
    is_token_ids,
    kind_of,
    optional,
    parsed,
)
from .refusals import TOO_LARGE, Refused
from .work import Answer, Request, Work

if TYPE_CHECKING:
    from .models import Service

Array = np.ndarray[Any, Any]
Results = Sequence[Array]
_UNIT = 1e-4  # how far the length of a vector of length 1 may be from it


class Asked(NamedTuple):
    """A request that was read: the model's name, the fields, the texts, and their tokens."""

    model: str
    given: Mapping[str, Any]
    texts: Sequence[Any]
    tokens: Sequence[Sequence[int]]


class Form(NamedTuple):
    """A form of requests. `fields`: of its JSON. `texts`: from these to its texts, pairs of texts or lists of
    token ids. `write`: from the request and the results of its texts to the answer's JSON. `result`: the
    name of a result of tokens, None: the model's own."""

    fields: Mapping[str, Field]
    texts: Callable[[Mapping[str, Any]], Sequence[Any]]
    write: Callable[[Asked, Results], Any]
    result: str | None = None

    def read(self, service: Service, request: Request) -> Work:
        """Read a request. Raises Refused."""
        return self.work(service, parsed(request.body))

    def work(self, service: Service, body: Any) -> Work:
        """Return the work of a request from the value of its JSON. Raises Refused."""
        given = checked(body, self.fields)
        service.check_name(given.get("model"))
        texts = self.texts(given)
        if self.result is not None:
            service.text_model.check_token_embeddings()
        tokens = _tokens(service, texts, given.get("prompt_name"))
        asked = Asked(service.name, given, texts, tokens)

        def answer(results: Results) -> Answer:
            if not all(np.isfinite(row).all() for row in results):
                raise ValueError("the model gave values that are not finite")
            return Answer.json(self.write(asked, results))

        items = [(each, self.result) for each in tokens]
        return Work(service.text_batcher, items, [max(1, len(each)) for each in tokens], answer)


def rerank(service: Service, request: Request) -> Work:
    """Read POST /rerank in Cohere's, Jina's ("documents") or TEI's ("texts") form."""
    body = parsed(request.body)
    is_tei = isinstance(body, dict) and "texts" in body
    return (_TEI_RERANK if is_tei else _RERANK).work(service, body)


def tokenize(service: Service, request: Request) -> list[list[dict[str, Any]]]:
    """Answer POST /tokenize: the tokens of texts, which are not cut."""
    given = checked(parsed(request.body), _TOKENIZE)
    texts, model = _checked_number(service, _inputs(given)), service.text_model
    prompt = _prompt(service, given["prompt_name"])
    rows = model.spans([prompt + text for text in texts], with_special=given["add_special_tokens"])
    return [[span._asdict() for span in row] for row in rows]


# What is given ----------------------------------------------------------------------------------------


def _texts(given: Any, what: str) -> list[str]:
    """Return a text, or the texts of a list, as a list."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise Refused(
            f"{what} is {'an empty list' if texts == [] else kind_of(texts)}; it must be a text or some texts"
        )
    wrong = next((index for index, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise Refused(f"{what}: element {wrong} is {kind_of(texts[wrong])}; it must be a string")
    return texts


def _inputs(given: Mapping[str, Any]) -> list[str]:
    return _texts(given["inputs"], "field 'inputs'")


def _texts_or_ids(given: Mapping[str, Any]) -> list[Any]:
    """Return OpenAI's `input`: texts or token ids, one or a list."""
    found = given["input"]
    first = found[0] if isinstance(found, list) and found else None
    if type(first) is not int and not isinstance(first, list):
        return _texts(found, "field 'input'")
    rows: list[Any] = [found] if type(first) is int else found
    wrong = next((index for index, row in enumerate(rows) if not is_token_ids(row) or not row), None)
    if wrong is not None:
        raise Refused(f"field 'input': element {wrong} must be a list of token ids, 1 or more")
    return rows


def _is_list_of_lists(inputs: Any) -> bool:
    return isinstance(inputs, list) and bool(inputs) and isinstance(inputs[0], list)


def _texts_or_pairs(given: Mapping[str, Any]) -> list[str | tuple[str, str]]:
    """Return the `inputs` of /predict: one text or pair, or a list of lists of one or two texts."""
    inputs = given["inputs"]
    return list(map(_text_or_pair, inputs if _is_list_of_lists(inputs) else [inputs]))


def _text_or_pair(given: Any) -> str | tuple[str, str]:
    one, *rest = _texts(given, "an input")
    if len(rest) > 1:
        raise Refused(f"an input has {len(rest) + 1} texts; it must have one or two")
    return (one, rest[0]) if rest else one


def _pairs(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(given["query"], text) for text in _texts(given["texts"], "field 'texts'")]


def _pairs_of_documents(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not given["documents"]:
        raise Refused("there are no documents; give at least one")
    return [(given["query"], _document(each, index)) for index, each in enumerate(given["documents"])]


def _document(given: Any, index: int) -> str:
    text = given.get("text") if isinstance(given, dict) else given
    if not isinstance(text, str):
        raise Refused(
            f"document {index} is {kind_of(given)}; it must be a string or an object with a string 'text'"
        )
    return text


def _checked_number(service: Service, texts: Sequence[Any]) -> Sequence[Any]:
    most = service.limits.max_texts
    if len(texts) > most:
        raise Refused(f"the request has {len(texts)} texts; the limit is {most}", TOO_LARGE)
    return texts


def _prompt(service: Service, name: str | None) -> str:
    return "" if name is None else service.text_model.prompt_of(None, name)


def _tokens(service: Service, texts: Sequence[Any], prompt_name: str | None) -> Sequence[Sequence[int]]:
    """Return the tokens of texts; token ids are returned as they are. Raises Refused if there are too
    many."""
    limits, model = service.limits, service.text_model
    tokens: Sequence[Sequence[int]] = _checked_number(service, texts)
    if not isinstance(texts[0], list):
        tokens = model.tokenize(texts, prompt=_prompt(service, prompt_name))
    longest, n = max(map(len, tokens)), sum(map(len, tokens))
    if longest > model.max_length:
        raise Refused(f"a text has {longest} token ids; there must be at most {model.max_length}")
    if n > limits.max_tokens:
        raise Refused(f"the request has {n} tokens; the limit is {limits.max_tokens}", TOO_LARGE)
    return tokens


# What is returned -------------------------------------------------------------------------------------


def _embeddings(asked: Asked, results: Results) -> dict[str, Any]:
    dimensions, as_text = asked.given["dimensions"], asked.given["encoding_format"] == "base64"
    vectors = (_cut(row, dimensions) for row in results)
    data = [
        {"object": "embedding", "index": index, "embedding": _base64(row) if as_text else row}
        for index, row in enumerate(vectors)
    ]
    n = sum(map(len, asked.tokens))
    usage = {"prompt_tokens": n, "total_tokens": n}
    return {"object": "list", "data": data, "model": asked.model, "usage": usage}


def _vectors(asked: Asked, results: Results) -> list[Array]:
    found = [_cut(row, asked.given["dimensions"]) for row in results]
    return list(map(_unit, found)) if asked.given["normalize"] else found


def _predictions(asked: Asked, results: Results) -> list[Any]:
    rows = list(map(_labels, results))
    return rows if _is_list_of_lists(asked.given["inputs"]) else rows[0]


def _ranking(asked: Asked, results: Results) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [
        {"index": index, "relevance_score": score} for index, score in _ranked(results)
    ]
    if asked.given["return_documents"]:
        rows = [row | {"document": {"text": asked.texts[row["index"]][1]}} for row in rows]
    return {
        "id": str(uuid.uuid4()), "model": asked.model, "results": rows[: asked.given["top_n"]],
        "usage": {"total_tokens": sum(map(len, asked.tokens))},
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
    }  # fmt: skip


def _tei_ranking(asked: Asked, results: Results) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"index": index, "score": score} for index, score in _ranked(results)]
    if not asked.given["return_text"]:
        return rows
    return [row | {"text": asked.texts[row["index"]][1]} for row in rows]


def _cut(row: Array, dimensions: int | None) -> Array:
    """Return the first dimensions of a vector, scaled to length 1; None: the vector as it is."""
    if dimensions is None:
        return row
    if dimensions > len(row):
        raise Refused(f"dimensions is {dimensions}; the model gives {len(row)}")
    return _scaled(row[:dimensions])


def _unit(row: Array) -> Array:
    """Return a vector scaled to length 1: the same bits if the model did that."""
    return row if abs(np.linalg.norm(row) - 1) < _UNIT else _scaled(row)


def _scaled(row: Array) -> Array:
    return row / max(np.linalg.norm(row), np.finfo(np.float32).tiny)


def _base64(row: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(row, "<f4").tobytes()).decode()


def _ranked(results: Results) -> list[tuple[int, Any]]:
    """Return (index, first score) by falling score; equal ones in the order given."""
    return sorted(((index, row[0]) for index, row in enumerate(results)), key=lambda found: -found[1])


def _labels(row: Array) -> list[dict[str, Any]]:
    """Return the scores of a text by falling score."""
    order = np.argsort(-row, kind="stable")
    return [{"score": row[index], "label": f"LABEL_{index}"} for index in order]


# The forms --------------------------------------------------------------------------------------------

_RAW = Field(lambda value: value is False, "false, for the model gives scores", False)
_MODEL, _TRUNCATE = optional(TEXT), optional(FLAG)
_PROMPTED = {"inputs": ANY._replace(wanted="a text or a list of texts"), "prompt_name": optional(TEXT)}
_TEI_INPUTS = _PROMPTED | {"truncate": _TRUNCATE, "truncation_direction": choice("Right", "right")}
EMBEDDINGS = Form(
    {
        "input": ANY._replace(wanted="a text, a list of texts, token ids, or a list of lists of token ids"),
        "model": _MODEL, "encoding_format": choice("float", "base64"),
        "dimensions": optional(COUNT), "user": optional(TEXT),
    },
    _texts_or_ids, _embeddings,
)  # fmt: skip
EMBED = Form(_TEI_INPUTS | {"normalize": flag(True), "dimensions": optional(COUNT)}, _inputs, _vectors)
EMBED_ALL = Form(_TEI_INPUTS, _inputs, lambda asked, results: results, "token_embeddings")
_TOKENIZE = _PROMPTED | {"add_special_tokens": flag(True)}
PREDICT = Form({"inputs": ANY, "raw_scores": _RAW, "truncate": _TRUNCATE}, _texts_or_pairs, _predictions)
#: Cohere's and Jina's.
_RERANK = Form(
    {
        "query": TEXT, "documents": LIST, "model": _MODEL, "top_n": optional(COUNT),
        "return_documents": flag(False),
    },
    _pairs_of_documents, _ranking,
)  # fmt: skip
_TEI_RERANK = Form(
    {
        "query": TEXT, "texts": LIST, "return_text": flag(False), "raw_scores": _RAW, "truncate": _TRUNCATE,
    },
    _pairs, _tei_ranking,
)  # fmt: skip
