"""The process of a server: sockets, signals, and its orderly end."""

from __future__ import annotations

import asyncio
import gc
import signal
from pathlib import Path
from types import FrameType

import uvicorn

from ..vm.heap import trim
from .app import application
from .logs import LOG
from .models import Service

_KEEP_ALIVE = 75  # seconds that an idle connection stays open: longer than load balancers keep theirs
_TRIM = 20  # seconds after which freed memory goes back to the system


class _Server(uvicorn.Server):
    """A server that fails its health checks once it ends."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, at a signal; a second Ctrl-C ends at once."""
        self._service.is_draining = True
        super().handle_exit(sig, frame)


async def give_back() -> None:
    """Return freed memory to the system: calls of ever new sizes leave gaps between what stays, which the C
    library keeps."""
    await asyncio.to_thread(trim)


def serve(service: Service, host: str, port: int, uds: Path | None) -> None:
    """Serve at a host and port, or a Unix socket, until SIGTERM or Ctrl-C; then accept no more, let the
    running requests end for `Limits.drain` seconds, cancel the rest, and return. The service is closed."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn raises the signals again when it has ended
    config = uvicorn.Config(
        application(service),
        host=host,
        port=port,
        uds=None if uds is None else str(uds),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_notify=_TRIM,
        callback_notify=give_back,
        timeout_graceful_shutdown=service.limits.drain,
    )
    server = _Server(config, service)
    gc.collect()
    gc.freeze()  # what exists by now stays: a collection that goes through it would hold up requests
    LOG.info("serving %s", service.name)
    try:
        server.run()
    finally:
        service.close()
    LOG.info("ended")
