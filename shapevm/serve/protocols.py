"""The table of routes: what each reads, and the form of its errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .. import __version__
from .chat import Choices, chat_completions, completions
from .models import Service
from .refusals import Refused
from .texts import embed, embeddings, predict, rerank
from .work import Request, Work

_MISSING = 404


class Page(NamedTuple):
    """A route that is answered at once: GET `path`. `answer`: from the service and the parts of the path."""

    path: str
    answer: Callable[[Service, Mapping[str, str]], dict[str, Any]]
    form: str = "plain"


class Route(NamedTuple):
    """A route whose requests are work for a batcher, or texts to generate: POST `path`."""

    path: str
    read: Callable[[Service, Request], Work | Choices]
    form: str = "plain"


def _named(service: Service, path: Mapping[str, str]) -> None:
    """Raise Refused unless the path names the model and its version."""
    version = path.get("version", "1")
    service.check_name(path.get("name"))
    if version != "1":
        raise Refused(
            f"version {version[:20]!r} of {service.name!r} is unknown; there is version '1'", _MISSING
        )


def _metadata(service: Service, path: Mapping[str, str]) -> dict[str, Any]:
    _named(service, path)
    return service.inference.metadata()


def _model_ready(service: Service, path: Mapping[str, str]) -> dict[str, Any]:
    _named(service, path)
    return {"name": service.name, **_ready(service, path)}


def _infer(service: Service, request: Request) -> Work:
    _named(service, request.path)
    return service.inference.infer(request)


def _ready(service: Service, path: Mapping[str, str]) -> dict[str, Any]:
    if service.is_draining:
        raise Refused("the server ends and takes no further requests", 503)
    service.check()
    return {"ready": True}


def _live(service: Service, path: Mapping[str, str]) -> dict[str, Any]:
    return {"live": True}


def _server(service: Service, path: Mapping[str, str]) -> dict[str, Any]:
    return service.inference.server()


def _info(service: Service, path: Mapping[str, str]) -> dict[str, Any]:
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
        "routes": [*(row.path for row in PAGES), *(row.path for row in ROUTES)],
    }


def _models(service: Service, path: Mapping[str, str]) -> dict[str, Any]:
    """Return OpenAI's list of models."""
    return {"object": "list", "data": [_model(service, path)]}


def _model(service: Service, path: Mapping[str, str]) -> dict[str, Any]:
    _named(service, path)
    return {"id": service.name, "object": "model", "created": 0, "owned_by": "shapevm"}


def _of(kind: str, read: Callable[[Service, Request], Work]) -> Callable[[Service, Request], Work]:
    """Return a reader of requests that refuses a model of texts of another kind."""

    def checked(service: Service, request: Request) -> Work:
        own = service.text_model.kind
        if own != kind:
            raise Refused(
                f"{service.name!r} is a model of another kind: {own}; the route needs {kind}", _MISSING
            )
        return read(service, request)

    return checked


_MODEL = "/v2/models/{name}"
PAGES = (
    Page("/health", _ready),
    Page("/info", _info),
    Page("/v1/models", _models, "openai"),
    Page("/v1/models/{name}", _model, "openai"),
    Page("/v2", _server),
    Page("/v2/health/live", _live),
    Page("/v2/health/ready", _ready),
    *(Page(path, _metadata) for path in (_MODEL, f"{_MODEL}/versions/{{version}}")),
    *(Page(f"{path}/ready", _model_ready) for path in (_MODEL, f"{_MODEL}/versions/{{version}}")),
)
ROUTES = (
    *(Route(f"{path}/infer", _infer) for path in (_MODEL, f"{_MODEL}/versions/{{version}}")),
    Route("/v1/embeddings", _of("encoder", embeddings), "openai"),
    Route("/v1/chat/completions", chat_completions, "openai"),
    Route("/v1/completions", completions, "openai"),
    Route("/embed", _of("encoder", embed), "tei"),
    Route("/predict", _of("cross-encoder", predict), "tei"),
    *(
        Route(path, _of("cross-encoder", rerank), "rerank")
        for path in ("/rerank", "/v1/rerank", "/v2/rerank")
    ),
)
