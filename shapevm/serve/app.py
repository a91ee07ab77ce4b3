"""The ASGI application: it admits requests, has them run, and answers, logs and counts each."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeVar

from starlette import routing
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import work
from .batches import Job
from .chat import Choices
from .generation import LAST, Stream, Texts
from .logs import LOG
from .metrics import Metrics
from .models import Service
from .protocols import GET, ROUTES, Route
from .refusals import CLIENT_LEFT, FAILED, FORMS, TOO_LATE, UNAVAILABLE, Refused, refusal_of

_RECORD = "shapevm.record"
_MAX_ID = 100  # characters of a client's request id that are kept
_READERS = 2  # threads that read requests and write answers
#: Bytes of a request and texts of an answer that take less time than a change of threads.
_SMALL_BODY, _SMALL_ANSWER = 2048, 4
Result = TypeVar("Result")


class Endpoint:
    """Answers the requests of one row of the table of routes."""

    def __init__(self, service: Service, row: Route, readers: ThreadPoolExecutor) -> None:
        self._service, self._row, self._readers = service, row, readers

    async def __call__(self, request: Request) -> Response:
        """Answer a request; an error in the form of its protocol."""
        record: dict[str, Any] = request.scope[_RECORD]
        record["route"] = self._row.path
        try:
            async with asyncio.timeout(self._service.limits.timeout):
                answer = await self._answer(request, record)
        except ClientDisconnect:
            return Response(status_code=CLIENT_LEFT)
        except asyncio.CancelledError:
            if not self._service.is_draining:
                raise
            return self._error(record, Refused("the server ended before the request did", UNAVAILABLE))
        except Exception as error:
            return self._error(record, error)
        return answer

    async def _answer(self, request: Request, record: dict[str, Any]) -> Response:
        row, service = self._row, self._service
        given = work.Request(request.headers, request.path_params)
        if row.method == GET:
            return _response(await asyncio.to_thread(row.todo, service, given))
        with ExitStack() as held:
            place = held.enter_context(service.admission.admitted())
            given = replace(given, body=await place.body(request))
            if len(given.body) <= _SMALL_BODY:
                todo = row.todo(service, given)
            else:
                todo = await _unless_left(request, self._in_thread(row.todo, service, given))
            del given  # the body may be large
            if isinstance(todo, work.Work):
                return _response(await _unless_left(request, self._run(todo, record)))
            if not isinstance(todo, Choices):
                return _response(todo)
            begun = await self._in_thread(todo.start, service.language_model)
            texts = Texts(todo, begun, service.talkers)
            if todo.is_stream:
                return Stream(self._data(texts, record), texts, held.pop_all())
            answer = await _unless_left(request, texts.whole())
            record |= texts.counts
            return _response(answer)

    async def _data(self, texts: Texts, record: dict[str, Any]) -> AsyncIterator[bytes | memoryview]:
        """Yield the data of a stream's events. An error ends it: the status was sent before."""
        try:
            async with asyncio.timeout(self._service.limits.timeout):
                async for part in texts.parts():
                    yield work.Answer.json(part).body
        except Exception as error:
            yield self._error(record, error).body
        record |= texts.counts
        yield LAST

    async def _run(self, todo: work.Work, record: dict[str, Any]) -> work.Answer:
        record |= {"items": len(todo.payloads), "tokens": sum(todo.costs)}
        job = Job(todo.payloads, todo.costs)
        results = await todo.batcher.results(job)
        record["waited_ms"] = round(job.waited * 1e3, 3)
        if len(results) <= _SMALL_ANSWER:
            return todo.answer(results)
        return await self._in_thread(todo.answer, results)

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._readers, function, *args)

    def _error(self, record: dict[str, Any], error: Exception) -> Response:
        """Return an error as the protocol has it. What is no refusal is logged, and the client gets its
        request's id."""
        if isinstance(error, TimeoutError):
            error = Refused(f"the request took longer than {self._service.limits.timeout} s", TOO_LATE)
        form, refused = FORMS[self._row.form], refusal_of(error)
        if refused is None:
            LOG.error("request %s failed", record["id"], exc_info=error)
            refused = Refused(f"the server failed; its log describes request {record['id']}", FAILED)
        status, message = refused.status or form.invalid, str(refused)
        record["error"] = message
        made = work.Answer.json(form.body(status, message))
        return Response(made.body, status, refused.headers, made.media_type)


def _response(found: Any) -> Response:
    answer = found if isinstance(found, work.Answer) else work.Answer.json(found)
    return Response(answer.body, media_type=answer.media_type, headers=dict(answer.headers))


async def _unless_left(request: Request, running: Coroutine[Any, Any, Result]) -> Result:
    """Await work for a request. Raises ClientDisconnect, and cancels the work, once the client leaves."""
    answer, left = asyncio.ensure_future(running), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((answer, left), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        for task in (answer, left):
            task.cancel()
        await asyncio.gather(answer, left, return_exceptions=True)


async def _left(request: Request) -> None:
    """Return when the client leaves; its body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Observed:
    """Gives each request an id, logs it and counts it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.monotonic(), CLIENT_LEFT
        record = scope[_RECORD] = {"id": _id_of(scope), "route": "other"}

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = record["id"]
            await send(message)

        try:
            await self._app(scope, receive, observed)
        finally:
            seconds = time.monotonic() - begun
            route = record.pop("route")
            self._metrics.answered(route, status, seconds)
            client = scope.get("client")
            fields = {
                "method": scope["method"], "path": scope["path"], "status": status,
                "ms": round(seconds * 1e3, 3), "client": client[0] if client else None, **record,
            }  # fmt: skip
            LOG.info("request", extra={"fields": fields})


def _id_of(scope: Scope) -> str:
    """Return the client's id for a request if it is plain text, else a new one."""
    given = Headers(scope=scope).get("x-request-id", "")
    is_plain = given.isascii() and given.isprintable() and 0 < len(given) <= _MAX_ID
    return given if is_plain else uuid.uuid4().hex


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:100]}: {error.detail.lower()}; GET /info lists the routes"
    request.scope[_RECORD]["error"] = message
    made = work.Answer.json(FORMS["plain"].body(error.status_code, message))
    return Response(made.body, error.status_code, error.headers, made.media_type)


def application(service: Service) -> ASGIApp:
    """Return the application for a model."""
    readers = ThreadPoolExecutor(_READERS, "shapevm-reader")
    routes = [
        routing.Route(row.path, Endpoint(service, row, readers).__call__, methods=[row.method])
        for row in ROUTES
    ]
    return Observed(Starlette(routes=routes, exception_handlers={HTTPException: _no_route}), service.metrics)
