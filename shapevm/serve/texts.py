"""Requests of texts: OpenAI's embeddings, rerankers, and the routes of text-embeddings-inference (TEI)."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .fields import (
    ANY,
    COUNT,
    FLAG,
    LIST,
    TEXT,
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
    from .models import Pair, Service

Array = np.ndarray[Any, Any]
Results = Sequence[Array]
_UNIT = 1e-4  # how far the length of a vector of length 1 may be from it

_EMBEDDINGS = {
    "input": ANY._replace(wanted="a text, a list of texts, token ids, or a list of lists of token ids"),
    "model": optional(TEXT), "encoding_format": choice("float", "base64"),
    "dimensions": optional(COUNT), "user": optional(TEXT),
}  # fmt: skip
_EMBED = {
    "inputs": ANY._replace(wanted="a text or a list of texts"), "normalize": flag(True),
    "truncate": optional(FLAG), "dimensions": optional(COUNT),
}  # fmt: skip
_PREDICT = {"inputs": ANY, "raw_scores": flag(False), "truncate": optional(FLAG)}
#: Cohere's and Jina's.
_RERANK = {
    "query": TEXT, "documents": LIST, "model": optional(TEXT), "top_n": optional(COUNT),
    "return_documents": flag(False),
}  # fmt: skip
_TEI_RERANK = {
    "query": TEXT, "texts": LIST, "return_text": flag(False), "raw_scores": flag(False),
    "truncate": optional(FLAG),
}  # fmt: skip


def embeddings(service: Service, request: Request) -> Work:
    """Read OpenAI's POST /v1/embeddings."""
    given = checked(parsed(request.body), _EMBEDDINGS)
    service.check_name(given["model"])
    tokens = _tokens_of(service, given["input"])
    as_text = given["encoding_format"] == "base64"

    def answer(results: Results) -> Answer:
        vectors = (_cut(row, given["dimensions"]) for row in results)
        data = [
            {"object": "embedding", "index": index, "embedding": _base64(row) if as_text else row}
            for index, row in enumerate(vectors)
        ]
        n = sum(map(len, tokens))
        usage = {"prompt_tokens": n, "total_tokens": n}
        return Answer.json({"object": "list", "data": data, "model": service.name, "usage": usage})

    return _work(service, tokens, answer)


def embed(service: Service, request: Request) -> Work:
    """Read TEI's POST /embed."""
    given = checked(parsed(request.body), _EMBED)
    tokens = _tokenized(service, _texts(given["inputs"], "field 'inputs'"))
    prepare = _unit if given["normalize"] else _same

    def answer(results: Results) -> Answer:
        return Answer.json([prepare(_cut(row, given["dimensions"])) for row in results])

    return _work(service, tokens, answer)


def predict(service: Service, request: Request) -> Work:
    """Read TEI's POST /predict: one text or pair, or a list of lists of one or two texts."""
    given = checked(parsed(request.body), _PREDICT)
    _scores_only(given["raw_scores"])
    inputs = given["inputs"]
    is_list = isinstance(inputs, list) and bool(inputs) and isinstance(inputs[0], list)
    texts = [_text_or_pair(each) for each in (inputs if is_list else [inputs])]

    def answer(results: Results) -> Answer:
        rows = [_labels(row) for row in results]
        return Answer.json(rows if is_list else rows[0])

    return _work(service, _tokenized(service, texts), answer)


def rerank(service: Service, request: Request) -> Work:
    """Read POST /rerank in Cohere's, Jina's ("documents") or TEI's ("texts") form."""
    body = parsed(request.body)
    if isinstance(body, dict) and "texts" in body:
        return _tei_rerank(service, checked(body, _TEI_RERANK))
    given = checked(body, _RERANK)
    service.check_name(given["model"])
    documents = [_document(each, index) for index, each in enumerate(given["documents"])]
    tokens = _pairs(service, given["query"], documents)

    def answer(results: Results) -> Answer:
        rows = [{"index": index, "relevance_score": score} for index, score in _ranked(results)]
        if given["return_documents"]:
            rows = [row | {"document": {"text": documents[row["index"]]}} for row in rows]
        return Answer.json(
            {
                "id": str(uuid.uuid4()), "model": service.name, "results": rows[: given["top_n"]],
                "usage": {"total_tokens": sum(map(len, tokens))},
                "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
            }
        )  # fmt: skip

    return _work(service, tokens, answer)


def _tei_rerank(service: Service, given: dict[str, Any]) -> Work:
    _scores_only(given["raw_scores"])
    texts = _texts(given["texts"], "field 'texts'")

    def answer(results: Results) -> Answer:
        rows: list[dict[str, Any]] = [{"index": index, "score": score} for index, score in _ranked(results)]
        return Answer.json(
            [row | {"text": texts[row["index"]]} for row in rows] if given["return_text"] else rows
        )

    return _work(service, _pairs(service, given["query"], texts), answer)


def _scores_only(raw: bool) -> None:
    if raw:
        raise Refused("raw_scores is true, but the model gives scores; leave it out")


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


def _text_or_pair(given: Any) -> str | Pair:
    one, *rest = _texts(given, "an input")
    if len(rest) > 1:
        raise Refused(f"an input has {len(rest) + 1} texts; it must have one or two")
    return (one, rest[0]) if rest else one


def _document(given: Any, index: int) -> str:
    text = given.get("text") if isinstance(given, dict) else given
    if not isinstance(text, str):
        raise Refused(
            f"document {index} is {kind_of(given)}; it must be a string or an object with a string 'text'"
        )
    return text


def _tokens_of(service: Service, given: Any) -> list[Sequence[int]]:
    """Return the tokens of OpenAI's `input`: texts or token ids, one or a list."""
    first = given[0] if isinstance(given, list) and given else None
    if type(first) is not int and not isinstance(first, list):
        return _tokenized(service, _texts(given, "field 'input'"))
    rows = [given] if type(first) is int else given
    text = service.text_model
    for index, row in enumerate(rows):
        if not is_token_ids(row) or not 0 < len(row) <= text.max_length:
            raise Refused(
                f"field 'input': element {index} must be a list of 1 to {text.max_length} token ids"
            )
    return _limited(service, rows)


def _pairs(service: Service, query: str, documents: Sequence[str]) -> list[Sequence[int]]:
    if not documents:
        raise Refused("there are no documents; give at least one")
    return _tokenized(service, [(query, document) for document in documents])


def _tokenized(service: Service, texts: Sequence[str | Pair]) -> list[Sequence[int]]:
    _check_number(service, len(texts))
    return _limited(service, list(service.text_model.tokenize(texts)))


def _limited(service: Service, tokens: list[Sequence[int]]) -> list[Sequence[int]]:
    """Return the tokens. Raises Refused if they are too many for a request."""
    _check_number(service, len(tokens))
    n, most = sum(map(len, tokens)), service.limits.max_tokens
    if n > most:
        raise Refused(f"the request has {n} tokens; the limit is {most}", TOO_LARGE)
    return tokens


def _check_number(service: Service, n: int) -> None:
    most = service.limits.max_texts
    if n > most:
        raise Refused(f"the request has {n} texts; the limit is {most}", TOO_LARGE)


def _work(service: Service, tokens: Sequence[Sequence[int]], answer: Callable[[Results], Answer]) -> Work:
    return Work(
        service.text_batcher, tokens, [max(1, len(each)) for each in tokens], partial(_finite, answer)
    )


# What is returned -------------------------------------------------------------------------------------


def _finite(answer: Callable[[Results], Answer], results: Results) -> Answer:
    """Return the answer from results that JSON holds. Raises ValueError for others: a failure of the
    server."""
    if not all(np.isfinite(row).all() for row in results):
        raise ValueError("the model gave values that are not finite")
    return answer(results)


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


def _same(row: Array) -> Array:
    return row


def _base64(row: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(row, "<f4").tobytes()).decode()


def _ranked(results: Results) -> list[tuple[int, Any]]:
    """Return (index, first score) by falling score; equal ones in the order given."""
    return sorted(((index, row[0]) for index, row in enumerate(results)), key=lambda found: -found[1])


def _labels(row: Array) -> list[dict[str, Any]]:
    """Return the scores of a text by falling score."""
    order = np.argsort(-row, kind="stable")
    return [{"score": row[index], "label": f"LABEL_{index}"} for index in order]
