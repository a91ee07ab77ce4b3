"""Texts that are generated for a request, as a whole or as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, suppress
from typing import Any, NamedTuple

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ..llm import Generation, Piece
from .chat import Choices, Writer
from .work import Answer

_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # proxies pass events on at once
LAST = b"[DONE]"  # the data of the event that ends a stream


class Talk(NamedTuple):
    """A generation's number within its request, and its next piece; None: it has ended."""

    number: int
    piece: Piece | None


async def pieces(
    generations: Sequence[Generation], threads: ThreadPoolExecutor
) -> AsyncGenerator[Talk, None]:
    """Yield the pieces of several generations as they are made. All are cancelled if the iteration ends
    early. Raises the first error of any."""
    found: asyncio.Queue[Talk | Exception] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def put(item: Talk | Exception) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(found.put_nowait, item)

    def pump(index: int, generation: Generation) -> None:
        try:
            for piece in generation:
                put(Talk(index, piece))
            put(Talk(index, None))
        except Exception as error:
            put(error)

    try:
        for index, generation in enumerate(generations):
            threads.submit(pump, index, generation)
        n_running = len(generations)
        while n_running:
            item = await found.get()
            if isinstance(item, Exception):
                raise item
            n_running -= item.piece is None
            yield item
    finally:
        for generation in generations:
            generation.cancel()


class Texts:
    """The texts of one request, which were begun."""

    def __init__(self, asked: Choices, generations: list[Generation], threads: ThreadPoolExecutor) -> None:
        """`threads`: each takes the pieces of a text."""
        self._asked, self._generations, self._threads = asked, generations, threads

    @property
    def counts(self) -> dict[str, int]:
        """What the log says of them."""
        return {"items": len(self._generations), "tokens": sum(each.n_tokens for each in self._generations)}

    async def whole(self) -> Answer:
        """Await all of them."""
        texts: list[list[Piece]] = [[] for _ in self._generations]
        async with aclosing(pieces(self._generations, self._threads)) as talk:
            async for index, piece in talk:
                if piece is not None:
                    texts[index].append(piece)
        return Answer.json(Writer(self._asked).whole(texts, self._generations))

    async def parts(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the parts of a stream as they are made."""
        writer = Writer(self._asked)
        for part in writer.first(len(self._generations)):
            yield part
        async with aclosing(pieces(self._generations, self._threads)) as talk:
            async for index, piece in talk:
                if piece is None:
                    yield writer.last(index, self._generations[index])
                else:
                    yield writer.part(index, piece)
        for part in writer.usage(self._generations):
            yield part

    def cancel(self) -> None:
        """End them."""
        for each in self._generations:
            each.cancel()


class Stream(StreamingResponse):
    """Server-sent events about texts, which are cancelled if the client leaves; then `held` is released."""

    def __init__(self, data: AsyncIterator[bytes | memoryview], texts: Texts, held: ExitStack) -> None:
        """`data`: of each event."""
        events = (b"data: %s\n\n" % bytes(each) async for each in data)
        super().__init__(events, media_type="text/event-stream", headers=_UNBUFFERED)
        self._texts, self._held = texts, held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        with self._held:
            try:
                await super().__call__(scope, receive, send)
            finally:
                self._texts.cancel()
