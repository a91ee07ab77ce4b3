"""Texts that are generated for a request: their pieces, as any of them is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..llm import Generation, Piece


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
