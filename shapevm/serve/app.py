"""The ASGI application: it admits requests, has them run, and answers, logs and counts each."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, suppress
from dataclasses import replace
from typing import Any, TypeVar

from starlette import routing
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..llm import Generation, Piece
from . import work
from .batches import Job
from .chat import Choices, Writer
from .generation import pieces
from .logs import LOG
from .metrics import Metrics
from .models import Service
from .protocols import GET, ROUTES, Route
from .refusals import CLIENT_LEFT, FAILED, FORMS, TOO_LATE, UNAVAILABLE, Refused, refusal_of

_RECORD = "shapevm.record"
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # proxies pass events on at once
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
        except TimeoutError:
            return self._error(record, self._too_late())
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
            generations = await self._in_thread(todo.start, service.language_model)
            if not todo.is_stream:
                return _response(await _unless_left(request, self._written(todo, generations, record)))
            return _Stream(self._events(todo, generations, record), generations, held.pop_all())

    async def _written(
        self, todo: Choices, generations: list[Generation], record: dict[str, Any]
    ) -> work.Answer:
        """Await texts as a whole."""
        texts: list[list[Piece]] = [[] for _ in generations]
        async with aclosing(pieces(generations, self._service.talkers)) as talk:
            async for index, piece in talk:
                if piece is not None:
                    texts[index].append(piece)
        record |= {"items": len(texts), "tokens": sum(each.n_tokens for each in generations)}
        return work.Answer.json(Writer(todo).whole(texts, generations))

    async def _events(
        self, todo: Choices, generations: list[Generation], record: dict[str, Any]
    ) -> AsyncIterator[bytes]:
        """Yield the events of a stream. An error ends it: the status was sent before."""
        try:
            async with asyncio.timeout(self._service.limits.timeout):
                async for part in self._parts(Writer(todo), generations):
                    yield _data(work.Answer.json(part).body)
        except TimeoutError:
            yield _data(self._error(record, self._too_late()).body)
        except Exception as error:
            yield _data(self._error(record, error).body)
        record |= {"items": len(generations), "tokens": sum(each.n_tokens for each in generations)}
        yield _data(b"[DONE]")

    async def _parts(self, writer: Writer, generations: list[Generation]) -> AsyncIterator[dict[str, Any]]:
        for part in writer.first(len(generations)):
            yield part
        async with aclosing(pieces(generations, self._service.talkers)) as talk:
            async for index, piece in talk:
                if piece is None:
                    yield writer.last(index, generations[index])
                else:
                    yield writer.part(index, piece)
        for part in writer.usage(generations):
            yield part

    async def _run(self, todo: work.Work, record: dict[str, Any]) -> work.Answer:
        record |= {"items": len(todo.payloads), "tokens": sum(todo.costs)}
        job = Job(todo.payloads, todo.costs)
        results = await todo.batcher.results(job)
        record["waited_ms"] = round(job.waited * 1e3, 3)
        if len(results) <= _SMALL_ANSWER:
            return todo.answer(results)
        return await self._in_thread(todo.answer, results)

    def _too_late(self) -> Refused:
        return Refused(f"the request took longer than {self._service.limits.timeout} s", TOO_LATE)

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._readers, function, *args)

    def _error(self, record: dict[str, Any], error: Exception) -> Response:
        """Return an error as the protocol has it. What is no refusal is logged, and the client gets its
        request's id."""
        form, refused = FORMS[self._row.form], refusal_of(error)
        if refused is None:
            LOG.error("request %s failed", record["id"], exc_info=error)
            refused = Refused(f"the server failed; its log describes request {record['id']}", FAILED)
        status, message = refused.status or form.invalid, str(refused)
        record["error"] = message
        made = work.Answer.json(form.body(status, message))
        return Response(made.body, status, refused.headers, made.media_type)


class _Stream(StreamingResponse):
    """Server-sent events about texts, which are cancelled if the client leaves; then `held` is released."""

    def __init__(self, events: AsyncIterator[bytes], generations: list[Generation], held: ExitStack) -> None:
        super().__init__(events, media_type="text/event-stream", headers=_UNBUFFERED)
        self._generations, self._held = generations, held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        with self._held:
            try:
                await super().__call__(scope, receive, send)
            finally:
                for each in self._generations:
                    each.cancel()


def _response(found: Any) -> Response:
    answer = found if isinstance(found, work.Answer) else work.Answer.json(found)
    return Response(answer.body, media_type=answer.media_type, headers=dict(answer.headers))


def _data(body: bytes | memoryview) -> bytes:
    return b"data: %s\n\n" % bytes(body)


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
                message["headers"] = [*message["headers"], (b"x-request-id", record["id"].encode())]
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
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    with suppress(UnicodeDecodeError):
        text = given.decode("ascii")
        if text.isprintable() and 0 < len(text) <= _MAX_ID:
            return text
    return uuid.uuid4().hex


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
