"""The table of routes: what each reads, and the form of its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import __version__
from .chat import chat_completions, completions
from .models import Service
from .refusals import UNAVAILABLE, Refused
from .texts import EMBED, EMBED_ALL, EMBEDDINGS, PREDICT, rerank, tokenize
from .work import Answer, Request

GET = "GET"


class Route(NamedTuple):
    """A route. `read`: returns `Work` for a batcher, texts to generate (`Choices`), an `Answer`, or what an
    answer's JSON holds. `needs`: the kind of text model that it is for. Requests of GET have no body and are
    answered at once, also by a server that is full."""

    path: str
    read: Callable[[Service, Request], Any]
    form: str = "plain"
    needs: str = ""
    method: str = "POST"

    def todo(self, service: Service, request: Request) -> Any:
        """Read a request. Raises Refused, also if the model or its kind is another one."""
        service.check_name(request.path.get("name"), request.path.get("version"))
        if self.needs and (own := service.text_model.kind) != self.needs:
            raise Refused(
                f"{service.name!r} is a model of another kind: {own}; the route needs {self.needs}", 404
            )
        return self.read(service, request)


def _ready(service: Service, request: Request) -> dict[str, Any]:
    if service.is_draining:
        raise Refused("the server ends and takes no further requests", UNAVAILABLE)
    service.check()
    return {"ready": True}


def _info(service: Service, request: Request) -> dict[str, Any]:
    """Return a description of the server, with the names that text-embeddings-inference uses."""
    limits, text = service.limits, service.text or service.language
    return {
        "model_id": service.name,
        "model_type": text.kind if text is not None else "program",
        "version": __version__,
        "max_input_length": text.max_length if text is not None else None,
        "max_concurrent_requests": limits.max_requests,
        "max_batch_tokens": limits.batch_tokens,
        "max_client_batch_size": limits.max_texts,
        "max_body_bytes": limits.max_body,
        "routes": [row.path for row in ROUTES],
    }


def _model(service: Service, request: Request) -> dict[str, Any]:
    """Return OpenAI's description of a model."""
    return {"id": service.name, "object": "model", "created": 0, "owned_by": "shapevm"}


def _models(service: Service, request: Request) -> dict[str, Any]:
    return {"object": "list", "data": [_model(service, request)]}


def _metrics(service: Service, request: Request) -> Answer:
    return Answer(*service.metrics.text(request.headers.get("accept", "")))


def _of_model(path: str) -> tuple[Route, ...]:
    """Return the Open Inference Protocol's routes of a model."""
    return (
        Route(path, lambda service, request: service.inference.metadata(), method=GET),
        Route(f"{path}/ready", lambda *given: {"name": given[0].name, **_ready(*given)}, method=GET),
        Route(f"{path}/infer", lambda service, request: service.inference.infer(request)),
    )


ROUTES = (
    Route("/health", _ready, method=GET),
    Route("/info", _info, method=GET),
    Route("/metrics", _metrics, method=GET),
    Route("/v2", lambda service, request: service.inference.server(), method=GET),
    Route("/v2/health/live", lambda service, request: {"live": True}, method=GET),
    Route("/v2/health/ready", _ready, method=GET),
    *_of_model("/v2/models/{name}"),
    *_of_model("/v2/models/{name}/versions/{version}"),
    Route("/v1/models", _models, "openai", method=GET),
    Route("/v1/models/{name}", _model, "openai", method=GET),
    *(Route(path, EMBEDDINGS.read, "openai", "encoder") for path in ("/v1/embeddings", "/embeddings")),
    Route("/v1/chat/completions", chat_completions, "openai"),
    Route("/v1/completions", completions, "openai"),
    Route("/embed", EMBED.read, "tei", "encoder"),
    Route("/embed_all", EMBED_ALL.read, "tei", "encoder"),
    Route("/tokenize", tokenize, "tei"),
    Route("/predict", PREDICT.read, "tei", "cross-encoder"),
    *(Route(path, rerank, "rerank", "cross-encoder") for path in ("/rerank", "/v1/rerank", "/v2/rerank")),
)
